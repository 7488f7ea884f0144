package simulate

import "time"

// event is what happens at a time. Events at the same time happen in the order in which they were
// added.
type event struct {
	at   time.Duration
	seq  uint64
	kind eventKind
	node bool // it is a node of a tree whose event this is
	lane int32
	who  int32 // the rank, or the tree's node
	a    int64 // by kind
	f    *frame
}

type eventKind uint8

const (
	reaching eventKind = iota // a frame's first byte is at who's link, its last one may be at a
	wired                     // a frame is in at who, after it was coming for a
	arrived                   // it is read
	folded                    // who has done the kernel a
	released                  // who's memory of a is free
	began                     // who has begun the operation
)

// frame is a frame of data, or a grant.
type frame struct {
	from, span int32
	mark, step int32
	bytes      int
	rail       int32 // that carries it
	grant      int   // spans; 0: it carries data
	ref        uint32
	ack        bool // its sender waits for the acknowledgement
	number     uint64
	up         bool // of a tree: a request
	child      int32
}

// queue is a heap of events.
type queue struct {
	events []event
	seq    uint64
}

func (q *queue) less(i, j int) bool {
	a, b := &q.events[i], &q.events[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

func (q *queue) add(e event) {
	q.seq++
	e.seq = q.seq
	q.events = append(q.events, e)
	for i := len(q.events) - 1; i > 0; {
		up := (i - 1) / 4
		if !q.less(i, up) {
			return
		}
		q.events[i], q.events[up] = q.events[up], q.events[i]
		i = up
	}
}

// next takes the first event; ok is false when there is none.
func (q *queue) next() (e event, ok bool) {
	if len(q.events) == 0 {
		return event{}, false
	}
	e = q.events[0]
	last := len(q.events) - 1
	q.events[0] = q.events[last]
	q.events = q.events[:last]
	for i := 0; ; {
		first := i
		for child := 4*i + 1; child <= 4*i+4 && child < last; child++ {
			if q.less(child, first) {
				first = child
			}
		}
		if first == i {
			return e, true
		}
		q.events[i], q.events[first] = q.events[first], q.events[i]
		i = first
	}
}
