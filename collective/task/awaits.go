package task

import (
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
)

// Awaits adds the ranks that a task waits for, and whether anything has come from them: who is to grant,
// who sends what comes in the earliest step, and, where all has come, who has not taken what goes to it.
func (t *Task) Awaits(heard map[op.Rank]bool) {
	if !t.started {
		return
	}
	from, to, begun := make(map[op.Rank]bool), make(map[op.Rank]bool), make(map[op.Rank]bool)
	step := 0 // of from
	for ref, s := range t.state {
		in := &t.Program.Code[ref%len(t.Program.Code)]
		switch {
		case in.Kind == schedule.Recv && s != waiting:
			begun[in.Peer] = true
		case in.Kind == schedule.Recv && (len(from) == 0 || in.Step < step):
			clear(from)
			from[in.Peer], step = true, in.Step
		case in.Kind == schedule.Recv && in.Step == step:
			from[in.Peer] = true
		case in.Kind == schedule.Send && s != done:
			to[in.Peer] = true
		}
	}
	for link, peer := range t.Program.To {
		switch {
		case t.Eager || !to[peer]:
		case t.limits[link] == 0:
			from[peer] = true
		default:
			begun[peer] = true
		}
	}
	if len(from) == 0 {
		from = to
	}
	for peer := range from {
		heard[peer] = heard[peer] || begun[peer]
	}
}
