package schedule_test

import (
	"testing"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
)

func TestCostIsThatOfThePrograms(t *testing.T) {
	each(t, func(t *testing.T, v variant, programs []*schedule.Program) {
		n := len(programs)
		if n < 2 {
			return
		}
		want := schedule.CostOf(v.spec(n, int(programs[0].Root)))
		s := staging{programs: programs, memory: map[moment]int{}}
		var got schedule.Cost
		for r, p := range programs {
			var sent, received, slots int
			for at := range p.Code {
				in := &p.Code[at]
				switch in.Kind {
				case schedule.Send:
					sent += len(in.Blocks)
					got.Widest = max(got.Widest, len(in.Blocks))
				case schedule.Recv:
					received += len(in.Blocks)
				}
				got.Stages = max(got.Stages, s.stages(op.Rank(r), schedule.Value(at)))
			}
			for _, blocks := range p.Slots {
				slots += len(blocks)
			}
			got.Volume = max(got.Volume, float64(max(sent, received))/float64(p.Parts))
			got.Slots = max(got.Slots, slots)
		}
		if d := got.Volume - want.Volume; got.Stages != want.Stages || d < -1e-9 || d > 1e-9 {
			t.Errorf("%+v, the programs have %+v", want, got)
		}
		if got.Slots > want.Slots || got.Widest > want.Widest ||
			v.kind == op.KindAllReduce && got.Slots != want.Slots {
			t.Errorf("%+v, the programs have %+v", want, got)
		}
	})
}

// staging counts messages, one after the other.
type staging struct {
	programs []*schedule.Program
	memory   map[moment]int
}

// stages is the number that a value of a rank's waits for.
func (s *staging) stages(rank op.Rank, v schedule.Value) (most int) {
	if _, isInput := v.Input(); isInput {
		return 0
	}
	key := moment{rank, v, true}
	if known, ok := s.memory[key]; ok {
		return known
	}
	in := &s.programs[rank].Code[v]
	if in.Kind == schedule.Recv {
		most = 1 + s.stages(in.Peer, s.sender(rank, in))
	}
	for _, a := range in.Args {
		most = max(most, s.stages(rank, a))
	}
	s.memory[key] = most
	return most
}

// sender is the Send whose frame an instruction receives.
func (s *staging) sender(rank op.Rank, in *schedule.Instr) schedule.Value {
	for at, sent := range s.programs[in.Peer].Code {
		if sent.Kind == schedule.Send && sent.Mark == in.Mark && sent.Step == in.Step && sent.Peer == rank {
			return schedule.Value(at)
		}
	}
	panic("nobody sends it: another test's failure")
}
