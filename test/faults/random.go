package faults

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// Random makes a scenario, the same for the same seed. Most are such that all operations have to
// succeed: any pair of nodes keeps a rail, or gets it back long before the rank timeout. In some a
// node is killed or stopped.
func Random(seed uint64) Scenario {
	r := generator{rand.New(rand.NewPCG(seed, 0x5ce4a710))}
	s := Scenario{
		Nodes: 2 + r.IntN(4), Rails: 1 + r.IntN(3), Operations: 3 + r.IntN(10), Lost: -1, Broken: -1,
		Pause: r.between(0, 100*time.Millisecond), Speed: int64(10+r.IntN(200)) << 20,
	}
	for range 1 + r.IntN(4) {
		s.Sizes = append(s.Sizes, []int{8, 1 << 10, 16 << 10, 72 << 10, 200 << 10, 1 << 20}[r.IntN(6)])
	}
	spare := r.IntN(s.Rails) // that lives, or does again soon
	for range 1 + r.IntN(5) {
		s.Steps = append(s.Steps, r.trouble(s, spare)...)
	}
	if r.IntN(5) == 0 {
		s.Lost = r.IntN(s.Nodes)
		s.Steps = append(s.Steps, Step{At: r.between(0, time.Second), Do: []Action{Kill, Stop}[r.IntN(2)], Nodes: []int{s.Lost}})
	}
	slices.SortStableFunc(s.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return s
}

type generator struct{ *rand.Rand }

func (r generator) between(least, most time.Duration) time.Duration {
	return (least + time.Duration(r.Int64N(int64(most-least)))).Round(time.Microsecond)
}

// trouble is a fault and its end.
func (r generator) trouble(s Scenario, spare int) []Step {
	node, rail := []int{r.IntN(s.Nodes)}, r.IntN(s.Rails)
	begin := r.between(0, time.Second)
	end := begin + r.between(time.Millisecond, time.Second)
	if rail == spare {
		end = begin + r.between(time.Millisecond, 100*time.Millisecond)
	}
	step := func(at time.Duration, do Action) Step { return Step{At: at, Do: do, Nodes: node, Rail: rail} }
	switch n := r.IntN(13); {
	case n < 6 && n%3 == 0 && rail == spare:
		// A host that refuses connections on its last rail is a process that is gone, and lost at once.
		return []Step{step(begin, Reset)}
	case n < 6:
		return []Step{step(begin, []Action{Cut, Silence, Unplug}[n%3]), step(end, Heal)}
	case n < 7:
		return []Step{step(begin, Reset)}
	case n < 8:
		slow, well := step(begin, Delay), step(end, Delay)
		slow.Duration = r.between(time.Microsecond, 30*time.Millisecond)
		return []Step{slow, well}
	case n < 9:
		slow, well := step(begin, Rate), step(end, Rate)
		slow.Bytes, well.Bytes = int64(1+r.IntN(20))<<20, s.Speed
		return []Step{slow, well}
	case n < 11:
		return []Step{step(begin, []Action{Duplicate, Corrupt, Replay, Stale}[r.IntN(4)])}
	case n < 12:
		bug := step(begin, Panic)
		bug.Rail, bug.Actor = 0, []string{"pair", "peer", "rail", "rails"}[r.IntN(4)]
		return []Step{bug}
	}
	return []Step{{At: begin, Do: Part, Nodes: node}, {At: min(end, begin+200*time.Millisecond), Do: Unite}}
}
