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
		want := schedule.CostOf(v.algorithm, n, v.base)
		var got schedule.Cost
		for r, p := range programs {
			sends := 0
			for i := range p.Code {
				if p.Code[i].Kind == schedule.Send {
					sends++
				}
			}
			got.Volume = max(got.Volume, float64(sends)/float64(p.Owners))
			got.Slots = max(got.Slots, p.Slots)
			for owner, code := range p.ByOwner {
				for at := range code {
					got.Stages = max(got.Stages, stages(programs, r, owner, schedule.Value(at)))
				}
			}
		}
		if d := got.Volume - want.Volume; got.Stages != want.Stages || got.Slots != want.Slots || d < -1e-9 || d > 1e-9 {
			t.Errorf("%+v, the programs have %+v", want, got)
		}
	})
}

// stages is the number of messages, one after the other, that a value of a rank's waits for.
func stages(programs []*schedule.Program, rank, owner int, v schedule.Value) (most int) {
	if v == schedule.Input {
		return 0
	}
	in := &programs[rank].ByOwner[owner][v]
	if in.Kind != schedule.Recv {
		for _, a := range in.Args {
			most = max(most, stages(programs, rank, owner, a))
		}
		return most
	}
	for at, sent := range programs[in.Peer].ByOwner[owner] {
		if sent.Kind == schedule.Send && sent.Step == in.Step && sent.Peer == op.Rank(rank) {
			return 1 + stages(programs, int(in.Peer), owner, schedule.Value(at))
		}
	}
	return -1 << 20 // nobody sends it: another test's failure
}
