package schedule_test

import (
	"testing"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
)

// sentByHosts is how many blocks each host sends to others.
func sentByHosts(programs []*schedule.Program, hosts [][]int) []int {
	of := make(map[op.Rank]int)
	for i, ranks := range hosts {
		for _, r := range ranks {
			of[op.Rank(r)] = i
		}
	}
	sent := make([]int, len(hosts))
	for _, p := range programs {
		for i := range p.Code {
			if in := &p.Code[i]; in.Kind == schedule.Send && of[in.Peer] != of[p.Rank] {
				sent[of[p.Rank]] += len(in.Blocks)
			}
		}
	}
	return sent
}

// A network carries what the hosts need, whatever ranks they have.
func TestHostsSendTheBound(t *testing.T) {
	for _, layout := range []string{"pairs", "round robin"} {
		for _, n := range []int{6, 12} {
			hosts := together(layout, n)
			h, p := len(hosts), n/len(hosts)
			for _, c := range []struct {
				kind   op.Kind
				blocks int // sent by each host
			}{
				{op.KindAllReduce, 2 * (h - 1) * p}, // of n: 2(h-1)/h
				{op.KindReduceScatter, (h - 1) * p}, {op.KindAllGather, (h - 1) * p},
			} {
				v := variant{kind: c.kind, algorithm: op.Hierarchical, hosts: layout}
				for host, sent := range sentByHosts(build(t, v, n, 0), hosts) {
					if sent != c.blocks {
						t.Errorf("%v, %d ranks: host %d sends %d blocks, want %d", v, n, host, sent, c.blocks)
					}
				}
			}
			for _, v := range []variant{{kind: op.KindReduce, algorithm: op.Hierarchical}, {kind: op.KindBroadcast, algorithm: op.Hierarchical},
				{kind: op.KindReduce, algorithm: op.Leaders}, {kind: op.KindBroadcast, algorithm: op.Leaders}} {
				v.hosts = layout
				for root := range n {
					total := 0
					for _, sent := range sentByHosts(build(t, v, n, root), hosts) {
						total += sent
					}
					if total != h-1 {
						t.Errorf("%v, %d ranks, root %d: hosts send %d times, want %d", v, n, root, total, h-1)
					}
				}
			}
		}
	}
}

func TestAlgorithmsByHostAreChosenWhereRanksShareHosts(t *testing.T) {
	const small, large = 8, 1 << 20
	for _, c := range []struct {
		kind   op.Kind
		bytes  int64
		n      int
		layout string
		want   op.Algorithm
	}{
		{op.KindAllReduce, small, 6, "pairs", op.Leaders}, {op.KindAllReduce, large, 6, "round robin", op.Hierarchical},
		{op.KindBarrier, 0, 6, "uneven", op.Leaders}, {op.KindReduce, large, 6, "pairs", op.Hierarchical},
		{op.KindAllGather, small, 6, "pairs", op.Tree}, {op.KindAllGather, large, 6, "pairs", op.Hierarchical},
		{op.KindScatter, large, 6, "pairs", op.Direct}, {op.KindScan, large, 6, "pairs", op.Chain},
		{op.KindAllReduce, small, 4, "together", op.Tree}, {op.KindAllReduce, large, 4, "together", op.Hierarchical},
		{op.KindAllReduce, 64 << 10, 4, "together", op.RecursiveDoubling}, {op.KindReduceScatter, 64 << 10, 4, "together", op.Hierarchical},
		{op.KindAllReduce, large, 2, "together", op.Ring}, {op.KindAllReduce, large, 17, "together", op.Ring},
		{op.KindAllReduce, large, 8, "pairs", op.Hierarchical}, {op.KindAllReduce, large, 10, "pairs", op.Ring},
		{op.KindAllReduce, 256 << 10, 16, "pairs", op.Hierarchical}, {op.KindAllReduce, large, 16, "round robin", op.Hierarchical},
		{op.KindAllGather, large, 16, "pairs", op.Ring}, {op.KindBroadcast, large, 16, "pairs", op.Hierarchical},
		{op.KindAllReduce, small, 6, "apart", op.Tree}, {op.KindAllReduce, large, 6, "", op.Ring},
	} {
		if got := schedule.Choose(c.kind, c.bytes, c.n, places(c.layout, c.n)); got != c.want {
			t.Errorf("%v of %d bytes, %d ranks %s: %v, want %v", c.kind, c.bytes, c.n, c.layout, got, c.want)
		}
	}
}

// The bits that users of one host, or of one rank on each, see are those of the flat algorithms.
func TestTheOrderOnOneHostIsTheFlatOne(t *testing.T) {
	for _, layout := range []string{"apart", "together"} {
		for n := 1; n <= 17; n++ {
			for owner := range n {
				for _, a := range [][2]op.Algorithm{{op.Hierarchical, op.Ring}, {op.Leaders, op.Tree}} {
					byHost := variant{kind: op.KindAllReduce, algorithm: a[0], hosts: layout}
					flat := variant{kind: op.KindAllReduce, algorithm: a[1]}
					got := evaluate(t, n, schedule.Order(byHost.spec(n, 0), owner))
					if want := evaluate(t, n, schedule.Order(flat.spec(n, 0), owner)); got != want {
						t.Errorf("%v, %d ranks, owner %d: %s, want %s", byHost, n, owner, got, want)
					}
				}
			}
		}
	}
}
