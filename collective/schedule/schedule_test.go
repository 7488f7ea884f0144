package schedule_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/schedule/reference"
)

type variant struct {
	algorithm op.Algorithm
	base      int
}

var variants = []variant{
	{op.Ring, 2}, {op.RecursiveDoubling, 2}, {op.Bcube, 2}, {op.Bcube, 3}, {op.Bcube, 4}, {op.Bcube, 17}, {op.Tree, 2},
}

// each runs a test for every variant and number of ranks, with the programs of all ranks.
func each(t *testing.T, f func(t *testing.T, v variant, programs []*schedule.Program)) {
	for _, v := range variants {
		for n := 1; n <= 17; n++ {
			t.Run(fmt.Sprintf("%v/base=%d/n=%d", v.algorithm, v.base, n), func(t *testing.T) {
				f(t, v, build(t, v, n))
			})
		}
	}
}

func build(t *testing.T, v variant, n int) []*schedule.Program {
	t.Helper()
	programs := make([]*schedule.Program, n)
	for r := range programs {
		p, err := schedule.Build(v.algorithm, op.Rank(r), n, v.base)
		if err != nil {
			t.Fatal(err)
		}
		programs[r] = p
	}
	return programs
}

func symbol(r op.Rank) string { return fmt.Sprint(int(r)) }

func join(a, b string) string { return "(" + a + "+" + b + ")" }

func TestEveryRankGetsTheSumInTheDeclaredOrder(t *testing.T) {
	each(t, func(t *testing.T, v variant, programs []*schedule.Program) {
		for o := range programs[0].Owners {
			finals, err := reference.Evaluate(programs, o, symbol, join)
			if err != nil {
				t.Fatal(err)
			}
			want := reference.Fold(v.algorithm, len(programs), v.base, o, symbol, join)
			for r, got := range finals {
				if got != want {
					t.Errorf("owner %d: rank %d gets %s, want %s", o, r, got, want)
				}
			}
		}
	})
}

func TestDeclaredOrders(t *testing.T) {
	for _, c := range []struct {
		v        variant
		n, owner int
		want     string
	}{
		{variant{op.Ring, 0}, 4, 1, "(((2+3)+0)+1)"},
		{variant{op.Ring, 0}, 1, 0, "0"},
		{variant{op.RecursiveDoubling, 0}, 4, 0, "((0+1)+(2+3))"},
		{variant{op.RecursiveDoubling, 0}, 6, 0, "(((0+1)+(2+3))+(4+5))"},
		{variant{op.Bcube, 2}, 8, 3, "(((0+1)+(2+3))+((4+5)+(6+7)))"},
		{variant{op.Bcube, 4}, 4, 2, "(((0+1)+2)+3)"},
		{variant{op.Tree, 2}, 9, 0, "((((((((0+1)+2)+3)+4)+5)+6)+7)+8)"},
		{variant{op.Tree, 2}, 10, 0, "((((((((0+1)+2)+3)+4)+5)+6)+7)+(8+9))"},
		{variant{op.Bcube, 2}, 6, 5, "(((0+1)+(2+3))+(4+5))"},
	} {
		if got := reference.Fold(c.v.algorithm, c.n, c.v.base, c.owner, symbol, join); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestDimensions(t *testing.T) {
	for _, c := range []struct {
		n, base int
		want    []int
	}{
		{1, 2, nil}, {2, 2, []int{2}}, {8, 2, []int{2, 2, 2}}, {8, 4, []int{4, 2}}, {8, 8, []int{8}}, {7, 2, []int{7}},
		{12, 4, []int{4, 3}}, {12, 2, []int{2, 2, 3}}, {30, 6, []int{6, 5}}, {9, 100, []int{9}}, {32749, 2, []int{32749}},
	} {
		if got := schedule.Dimensions(c.n, c.base); !slices.Equal(got, c.want) {
			t.Errorf("Dimensions(%d, %d) = %v, want %v", c.n, c.base, got, c.want)
		}
	}
}

func TestStepAndOwnerNameAFrameAtItsReceiver(t *testing.T) {
	each(t, func(t *testing.T, _ variant, programs []*schedule.Program) {
		type frame struct{ owner, step int }
		for r, p := range programs {
			seen := map[frame]bool{}
			for i := range p.Code {
				in := &p.Code[i]
				if in.Kind != schedule.Recv && in.Kind != schedule.Send {
					continue
				}
				if in.Step < 0 || in.Step >= p.Steps || in.Peer == p.Rank {
					t.Errorf("rank %d: %+v of %d steps", r, in, p.Steps)
				}
				links := p.To
				if in.Kind == schedule.Recv {
					links = p.From
					f := frame{in.Owner, in.Step}
					if v, ok := p.FindRecv(in.Owner, in.Step); seen[f] || !ok || p.Base[in.Owner]+int(v) != i {
						t.Errorf("rank %d: FindRecv(%+v) = %d, %v, seen before: %v", r, f, v, ok, seen[f])
					}
					seen[f] = true
				}
				if links[in.Link] != in.Peer {
					t.Errorf("rank %d: link %d of %v is not rank %d", r, in.Link, links, in.Peer)
				}
			}
			for o := -1; o <= p.Owners; o++ {
				for step := -1; step <= p.Steps; step++ {
					if _, ok := p.FindRecv(o, step); ok != seen[frame{o, step}] {
						t.Errorf("rank %d: FindRecv(%d, %d) = %v", r, o, step, ok)
					}
				}
			}
		}
	})
}

// A slot has one receiver; a value is stored over an operand only where kernels allow it
// and nobody else reads that operand.
func TestValuesInScratchDontOverwriteOneAnother(t *testing.T) {
	each(t, func(t *testing.T, _ variant, programs []*schedule.Program) {
		for r, p := range programs {
			received := map[int]bool{}
			for o, code := range p.ByOwner {
				for v, in := range code {
					if in.Store.Kind != schedule.Scratch {
						continue
					}
					if in.Store.Slot < 0 || in.Store.Slot >= p.Slots {
						t.Errorf("rank %d owner %d: slot %d of %d", r, o, in.Store.Slot, p.Slots)
					}
					if in.Kind == schedule.Recv {
						if received[in.Store.Slot] {
							t.Errorf("rank %d owner %d: two values are received into slot %d", r, o, in.Store.Slot)
						}
						received[in.Store.Slot] = true
						continue
					}
					over := slices.IndexFunc(in.Args, func(a schedule.Value) bool {
						return a != schedule.Input && code[a].Store == in.Store
					})
					if over != 0 && over != 1 {
						t.Errorf("rank %d owner %d: instruction %d overwrites argument %d", r, o, v, over)
						continue
					}
					if uses := code[in.Args[over]].Uses; !slices.Equal(uses, []schedule.Value{schedule.Value(v)}) {
						t.Errorf("rank %d owner %d: what instruction %d overwrites is used by %v", r, o, v, uses)
					}
				}
			}
			if len(received) != p.Slots {
				t.Errorf("rank %d: %d slots, %d used", r, p.Slots, len(received))
			}
		}
	})
}

func TestSlotsAreOneForEachOtherOperandWhereOwnersShareTheWork(t *testing.T) {
	for n := 2; n <= 17; n++ {
		for _, v := range variants {
			if schedule.Owners(v.algorithm, n) == 1 {
				continue
			}
			for r, p := range build(t, v, n) {
				if p.Slots != n-1 {
					t.Errorf("%v: rank %d of %d has %d slots", v, r, n, p.Slots)
				}
			}
		}
	}
}

func TestBuildRefusesWhatMakesNoSense(t *testing.T) {
	for _, c := range []struct {
		a             op.Algorithm
		rank, n, base int
	}{
		{op.Ring, 0, 0, 2}, {op.Ring, -1, 3, 2}, {op.Ring, 3, 3, 2}, {op.Auto, 0, 3, 2}, {99, 0, 3, 2}, {op.Bcube, 0, 3, 1},
		{op.Ring, 0, schedule.MaxRanks + 1, 2},
	} {
		if p, err := schedule.Build(c.a, op.Rank(c.rank), c.n, c.base); err == nil {
			t.Errorf("%+v: %+v", c, p)
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	for _, v := range variants[:3] {
		b.Run(fmt.Sprintf("algorithm=%v/n=6", v.algorithm), func(b *testing.B) {
			for b.Loop() {
				if _, err := schedule.Build(v.algorithm, 3, 6, v.base); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
