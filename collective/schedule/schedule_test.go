package schedule_test

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/schedule/reference"
)

// variant is an algorithm of a kind; base is Bcube's; hosts are for algorithms by host.
type variant struct {
	kind      op.Kind
	algorithm op.Algorithm
	base      int
	inPlace   bool
	hosts     string // of hostLayouts
}

// hostLayouts are where ranks may be: a number of a host for each of n.
var hostLayouts = map[string]func(r, n int) int{
	"apart":       func(r, _ int) int { return r },
	"together":    func(int, int) int { return 0 },
	"pairs":       func(r, _ int) int { return r / 2 },
	"round robin": func(r, n int) int { return r % max(1, n/3) },
	"uneven":      func(r, n int) int { return bits.Len(uint(r * 16 / n)) }, // 1, 1, 2, 4, 8 sixteenths
	"mixed":       func(r, n int) int { return 2*(r*r%7%4) + (r&1)*(n&1) },  // in no order
}

// places are the hosts of n ranks.
func places(layout string, n int) *schedule.Hosts {
	if layout == "" {
		return nil
	}
	numbers := make([]int, n)
	for r := range numbers {
		numbers[r] = hostLayouts[layout](r, n)
	}
	return schedule.NewHosts(numbers)
}

// together are the ranks of each host in the order of their lowest ones, from first principles.
func together(layout string, n int) (hosts [][]int) {
	if layout == "" {
		layout = "apart"
	}
	for r := range n {
		i := slices.IndexFunc(hosts, func(ranks []int) bool {
			return hostLayouts[layout](ranks[0], n) == hostLayouts[layout](r, n)
		})
		if i < 0 {
			i, hosts = len(hosts), append(hosts, nil)
		}
		hosts[i] = append(hosts[i], r)
	}
	return hosts
}

// spec is that of rank 0.
func (v variant) spec(n, root int) schedule.Spec {
	return schedule.Spec{Kind: v.kind, Algorithm: v.algorithm, N: n, Root: op.Rank(root), Base: v.base,
		InPlace: v.inPlace, Hosts: places(v.hosts, n)}
}

// order is the value of an owner's part, from first principles.
func (v variant) order(n, owner int, input func(op.Rank) string) string {
	if v.algorithm.ByHost() {
		return reference.FoldByHost(v.kind, v.algorithm, together(v.hosts, n), owner, input, join)
	}
	return reference.Fold(v.algorithm, n, v.base, owner, input, join)
}

func (v variant) String() string {
	s := fmt.Sprintf("%v/%v", v.kind, v.algorithm)
	if v.algorithm == op.Bcube {
		s += fmt.Sprintf("-%d", v.base)
	}
	if v.hosts != "" {
		s += "/" + v.hosts
	}
	if v.inPlace {
		s += "/in place"
	}
	return s
}

// variants are all algorithms of all kinds.
func variants() (all []variant) {
	for _, k := range append([]op.Kind{op.KindBarrier}, op.Kinds...) {
		for _, a := range schedule.Algorithms(k) {
			v := variant{kind: k, algorithm: a, base: 2}
			all = append(all, v)
			if k == op.KindAllToAll {
				v.inPlace = true
				all = append(all, v)
			}
			if a == op.Bcube {
				for _, v.base = range []int{3, 4, 17} {
					all = append(all, v)
				}
			}
			if a.ByHost() {
				for _, v.hosts = range slices.Sorted(maps.Keys(hostLayouts)) {
					all = append(all, v)
				}
			}
		}
	}
	return all
}

// sizes are the numbers of ranks that everything is tried with.
var sizes = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 16, 17, 32, 65}

// each runs a test for every variant, number of ranks and root, with the programs of all ranks.
func each(t *testing.T, f func(t *testing.T, v variant, programs []*schedule.Program)) {
	for _, v := range variants() {
		for _, n := range sizes {
			if n > 13 && v.hosts != "" && v.hosts != "mixed" {
				continue // as small ones
			}
			t.Run(fmt.Sprintf("%v/n=%d", v, n), func(t *testing.T) {
				for root := range n {
					if root == 0 || v.kind.Rooted() {
						f(t, v, build(t, v, n, root))
					}
				}
			})
		}
	}
}

func build(t *testing.T, v variant, n, root int) []*schedule.Program {
	t.Helper()
	programs := make([]*schedule.Program, n)
	s := v.spec(n, root)
	for r := range programs {
		s.Rank = op.Rank(r)
		p, err := schedule.Build(s)
		if err != nil {
			t.Fatal(err)
		}
		programs[r] = p
	}
	return programs
}

// symbol is rank r's operand of a part: "r", or "r.part" where there are several.
func symbol(parts int) func(r op.Rank, part int) string {
	return func(r op.Rank, part int) string {
		if parts == 1 {
			return fmt.Sprint(int(r))
		}
		return fmt.Sprintf("%d.%d", r, part)
	}
}

func join(a, b string) string { return "(" + a + "+" + b + ")" }

// want is what rank r is to find at a target, from first principles.
func want(v variant, n, root, r, target int) string {
	parts := schedule.Parts(v.kind, v.algorithm, n)
	input := symbol(parts)
	fold := func(owner, part int) string {
		return v.order(n, owner, func(r op.Rank) string { return input(r, part) })
	}
	switch v.kind {
	case op.KindReduce:
		return fold(root, 0)
	case op.KindReduceScatter:
		return fold(r, r)
	case op.KindAllGather, op.KindGather:
		return input(op.Rank(target), 0)
	case op.KindScatter:
		return input(op.Rank(root), r)
	case op.KindBroadcast:
		return input(op.Rank(root), 0)
	case op.KindAllToAll:
		return input(op.Rank(target), r)
	case op.KindScan, op.KindExScan:
		return reference.Prefix(v.kind, v.algorithm, r, func(r op.Rank) string { return input(r, 0) }, join)
	}
	if v.algorithm == op.Tree || v.algorithm == op.Leaders {
		return fold(0, 0)
	}
	return fold(target, target)
}

// results is how many results a rank is to get.
func results(v variant, n, root, r int) int {
	switch v.kind {
	case op.KindReduce, op.KindGather:
		if r != root {
			return 0
		}
	case op.KindBroadcast:
		if r == root {
			return 0
		}
	case op.KindExScan:
		if r == 0 {
			return 0
		}
	}
	switch v.kind {
	case op.KindReduceScatter, op.KindScatter:
		return 1
	}
	return schedule.Parts(v.kind, v.algorithm, n)
}

func TestEveryRankGetsWhatItIsToGetInTheDeclaredOrder(t *testing.T) {
	each(t, func(t *testing.T, v variant, programs []*schedule.Program) {
		n, root := len(programs), int(programs[0].Root)
		got, err := reference.Evaluate(programs, symbol(programs[0].Parts), join)
		if err != nil {
			t.Fatal(err)
		}
		for r := range n {
			if len(got[r]) != results(v, n, root, r) {
				t.Errorf("rank %d gets %d results, want %d", r, len(got[r]), results(v, n, root, r))
			}
			for target, expr := range got[r] {
				if want := want(v, n, root, r, target); expr != want {
					t.Errorf("root %d, rank %d gets %s at %d, want %s", root, r, expr, target, want)
				}
			}
		}
	})
}

func TestDeclaredOrders(t *testing.T) {
	rank := func(r op.Rank) string { return fmt.Sprint(int(r)) }
	for _, c := range []struct {
		a              op.Algorithm
		base, n, owner int
		want           string
	}{
		{op.Ring, 0, 4, 1, "(((2+3)+0)+1)"},
		{op.Ring, 0, 1, 0, "0"},
		{op.Chain, 0, 3, 1, "((2+0)+1)"},
		{op.RecursiveDoubling, 0, 4, 0, "((0+1)+(2+3))"},
		{op.RecursiveDoubling, 0, 6, 0, "(((0+1)+(2+3))+(4+5))"},
		{op.Bcube, 2, 8, 3, "(((0+1)+(2+3))+((4+5)+(6+7)))"},
		{op.Bcube, 4, 4, 2, "(((0+1)+2)+3)"},
		{op.Tree, 2, 9, 0, "((((((((0+1)+2)+3)+4)+5)+6)+7)+8)"},
		{op.Tree, 2, 10, 0, "((((((((0+1)+2)+3)+4)+5)+6)+7)+(8+9))"},
		{op.Tree, 2, 3, 2, "((2+0)+1)"},
		{op.Bcube, 2, 6, 5, "(((0+1)+(2+3))+(4+5))"},
	} {
		if got := reference.Fold(c.a, c.n, c.base, c.owner, rank, join); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	for _, c := range []struct {
		k    op.Kind
		a    op.Algorithm
		r    int
		want string
	}{
		{op.KindScan, op.Chain, 2, "((0+1)+2)"},
		{op.KindExScan, op.Chain, 3, "((0+1)+2)"},
		{op.KindScan, op.RecursiveDoubling, 3, "((0+1)+(2+3))"},
		{op.KindScan, op.RecursiveDoubling, 4, "(0+((1+2)+(3+4)))"},
		{op.KindExScan, op.RecursiveDoubling, 1, "0"},
		{op.KindExScan, op.RecursiveDoubling, 4, "(0+((1+2)+3))"},
	} {
		if got := reference.Prefix(c.k, c.a, c.r, rank, join); got != c.want {
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

func TestMarkAndStepNameAFrameAtItsReceiver(t *testing.T) {
	each(t, func(t *testing.T, _ variant, programs []*schedule.Program) {
		type frame struct{ mark, step int }
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
					f := frame{in.Mark, in.Step}
					if v, ok := p.FindRecv(in.Mark, in.Step); seen[f] || !ok || int(v) != i {
						t.Errorf("rank %d: FindRecv(%+v) = %d, %v, seen before: %v", r, f, v, ok, seen[f])
					}
					seen[f] = true
				}
				if links[in.Link] != in.Peer {
					t.Errorf("rank %d: link %d of %v is not rank %d", r, in.Link, links, in.Peer)
				}
			}
			for mark := -1; mark <= len(p.Blocks)+1; mark++ {
				for step := -1; step <= p.Steps; step++ {
					if _, ok := p.FindRecv(mark, step); ok != seen[frame{mark, step}] {
						t.Errorf("rank %d: FindRecv(%d, %d) = %v", r, mark, step, ok)
					}
				}
			}
		}
	})
}

// A slot has one value that is received into it, or put together there. A value is stored over an
// operand only where kernels allow it and nobody else reads that operand.
func TestValuesInScratchDontOverwriteOneAnother(t *testing.T) {
	each(t, func(t *testing.T, _ variant, programs []*schedule.Program) {
		for r, p := range programs {
			begun := map[int]bool{}
			for v := range p.Code {
				in := &p.Code[v]
				if in.Store.Kind != schedule.Scratch {
					continue
				}
				if in.Store.Slot < 0 || in.Store.Slot >= len(p.Slots) ||
					!slices.Equal(p.Slots[in.Store.Slot], in.Blocks) {
					t.Fatalf("rank %d: instruction %d, of blocks %v, is in slot %d of %v", r, v,
						in.Blocks, in.Store.Slot, p.Slots)
				}
				over := slices.IndexFunc(in.Args,
					func(a schedule.Value) bool { return a >= 0 && p.Code[a].Store == in.Store })
				if over < 0 {
					if begun[in.Store.Slot] || in.Kind == schedule.Reduce && len(in.Args) != 2 {
						t.Errorf("rank %d: two values begin in slot %d, or one of %d operands", r,
							in.Store.Slot, len(in.Args))
					}
					begun[in.Store.Slot] = true
					continue
				}
				if over > 1 || in.Kind == schedule.Copy {
					t.Errorf("rank %d: instruction %d overwrites argument %d", r, v, over)
				}
				if uses := p.Code[in.Args[over]].Uses; !slices.Equal(uses,
					[]schedule.Value{schedule.Value(v)}) {
					t.Errorf("rank %d: what instruction %d overwrites is used by %v", r, v, uses)
				}
			}
			if len(begun) != len(p.Slots) {
				t.Errorf("rank %d: %d slots, %d used", r, len(p.Slots), len(begun))
			}
		}
	})
}

// A value that nobody uses, or an argument that comes later, would be a slip of its builder.
func TestEveryValueIsUsedAndDefinedBefore(t *testing.T) {
	each(t, func(t *testing.T, _ variant, programs []*schedule.Program) {
		for r, p := range programs {
			for v := range p.Code {
				in := &p.Code[v]
				if in.Store.Kind == schedule.Scratch && len(in.Uses) == 0 {
					t.Errorf("rank %d: nobody uses the value of %+v", r, in)
				}
				for _, a := range slices.Concat(in.Args, in.Hazards, in.After) {
					if int(a) >= v {
						t.Errorf("rank %d: instruction %d waits for %d", r, v, a)
					}
				}
			}
		}
	})
}

// received reports whether an instruction only copies what came from another rank.
func received(p *schedule.Program, in *schedule.Instr) bool {
	_, own := in.Args[0].Input()
	return in.Kind == schedule.Copy && !own && p.Code[in.Args[0]].Kind == schedule.Recv
}

// An average is divided where a sum over all ranks is complete. The sums of a scan are passed on:
// divided, they would be so again at the next rank.
func TestOnlySumsOverAllRanksAreLast(t *testing.T) {
	each(t, func(t *testing.T, v variant, programs []*schedule.Program) {
		averages := v.kind == op.KindAllReduce || v.kind == op.KindReduce || v.kind == op.KindReduceScatter
		for r, p := range programs {
			for _, in := range p.Code {
				complete := in.Store.Kind == schedule.Final && in.Kind != schedule.Recv && !received(p, &in)
				if in.Last != (averages && complete) {
					t.Errorf("rank %d: %+v", r, in)
				}
			}
		}
	})
}

func TestBuildRefusesWhatMakesNoSense(t *testing.T) {
	for _, s := range []schedule.Spec{
		{Kind: op.KindAllReduce, Algorithm: op.Ring, N: 0},
		{Kind: op.KindAllReduce, Algorithm: op.Ring, Rank: -1, N: 3},
		{Kind: op.KindAllReduce, Algorithm: op.Ring, Rank: 3, N: 3},
		{Kind: op.KindAllReduce, Algorithm: op.Auto, N: 3},
		{Kind: op.KindAllReduce, Algorithm: 99, N: 3},
		{Kind: op.KindAllReduce, Algorithm: op.Bcube, N: 3, Base: 1},
		{Kind: op.KindAllReduce, Algorithm: op.Ring, N: schedule.MaxRanks + 1},
		{Kind: op.KindAllReduce, Algorithm: op.Ring, N: 3, Root: 1},
		{Kind: op.KindAllReduce, Algorithm: op.Direct, N: 3},
		{Kind: op.KindBroadcast, Algorithm: op.Chain, N: 3, Root: 3},
		{Kind: op.KindBroadcast, Algorithm: op.Chain, N: 3, Root: -1},
		{Kind: 99, Algorithm: op.Ring, N: 3},
		{Kind: op.KindAllReduce, Algorithm: op.Leaders, N: 3, Hosts: places("together", 4)},
	} {
		if p, err := schedule.Build(s); err == nil {
			t.Errorf("%+v: %+v", s, p)
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	for _, a := range []op.Algorithm{op.Ring, op.RecursiveDoubling, op.Bcube} {
		b.Run(fmt.Sprintf("algorithm=%v/n=6", a), func(b *testing.B) {
			for b.Loop() {
				if _, err := schedule.Build(schedule.Spec{Kind: op.KindAllReduce, Algorithm: a,
					Rank: 3, N: 6, Base: 2}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
