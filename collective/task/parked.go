package task

// kernelsAt stands for a link, of the kernels among what is parked.
func (t *Task) kernelsAt() int { return len(t.limits) }

// park adds an instruction to those of its link and span that wait.
func (t *Task) park(link, span int, ref Ref) {
	list := &t.parked[link*len(t.lane.Spans)+span]
	if *list == 0 {
		t.next[ref] = ref
	} else {
		last := *list - 1
		t.next[ref], t.next[last] = t.next[last], ref
	}
	*list = ref + 1
}

// unpark begins what waited, in the order in which it was parked.
func (t *Task) unpark(link, from, to int, out []Action) []Action {
	for span := from; span < to; span++ {
		list := &t.parked[link*len(t.lane.Spans)+span]
		if *list == 0 {
			continue
		}
		last := *list - 1
		*list = 0
		for ref := t.next[last]; ; ref = t.next[ref] {
			out = t.begin(span, int(ref)%len(t.Program.Code), out)
			if ref == last {
				break
			}
		}
	}
	return out
}
