package polyrail_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/test/testbed"
)

// Eight jobs overlap on the same ranks and aggregation nodes, whose memory and quotas hold trees of
// some of them only. All have many operations outstanding, all end right, and no node gives more
// than it has.
func TestJobsShareAggregationNodes(t *testing.T) {
	const (
		ranks, nodes, jobs = 4, 3, 8
		elements           = 2048 // 8 KiB: no operation is eager
	)
	inFlight := 256
	if brief() {
		inFlight = 32
	}
	const fragment, window = 4 << 10, 16
	const group = (2 + 4) * window * fragment // of a node below the root, with two children
	adapt := func(c *Config) {
		c.TreeRadix, c.TreeFragment, c.EagerBytes, c.MaxInFlight = 2, fragment, 1<<10, inFlight
		c.AggregateMemory, c.AggregateQuota = 5*group, 2*group
	}
	inGrove(t, ranks, nodes, 2, adapt, func(b *bed, comms []*Communicator) {
		all := make([][]*Communicator, jobs)
		for j := range all {
			all[j] = make([]*Communicator, ranks)
			b.each(func(i int) (err error) {
				if i < ranks {
					all[j][i], err = b.Nodes[i].Communicator(b.t.Context(), fmt.Sprintf("job%d", j), ranks)
				}
				return err
			})
		}
		// Two of one job: the quota holds no third one.
		for range 2 {
			children := make([]*Communicator, ranks)
			b.each(func(i int) (err error) {
				if i < ranks {
					children[i], err = all[0][i].Dup(b.t.Context())
				}
				return err
			})
			all = append(all, children)
		}
		most := 0
		for range 2 {
			var running sync.WaitGroup
			for _, job := range all {
				for r, c := range job {
					running.Go(func() { b.outstanding(c, r, inFlight, elements) })
				}
			}
			running.Wait()
			if t.Failed() {
				t.Fatalf("log:\n%s", b.log)
			}
			<-time.After(3 * time.Second) // those that were refused ask again
			most = max(most, b.withinLimits())
		}
		if most < 4 {
			t.Errorf("%d groups at most are served by a node that has memory for 5", most)
		}
	})
}

// outstanding starts operations of integers all at once, and checks what comes of them.
func (b *bed) outstanding(c *Communicator, rank, operations, elements int) {
	bufs, works := make([][]int32, operations), make([]*Work, operations)
	for k := range bufs {
		bufs[k] = make([]int32, elements)
		for i := range bufs[k] {
			bufs[k][i] = int32(k + i + rank)
		}
		var err error
		if works[k], err = StartAllReduce(b.t.Context(), c, bufs[k], Sum); err != nil {
			b.t.Errorf("%s, operation %d: %v", c.Name(), k, err)
			return
		}
	}
	n := int32(c.Size())
	for k, w := range works {
		if err := w.Wait(b.t.Context()); err != nil {
			b.t.Errorf("%s, operation %d: %v", c.Name(), k, err)
			return
		}
		for i, got := range bufs[k] {
			if want := n*int32(k+i) + n*(n-1)/2; got != want {
				b.t.Errorf("%s, operation %d, element %d: %d, want %d", c.Name(), k, i, got, want)
				return
			}
		}
	}
}

// withinLimits checks what the nodes have reserved, and returns the most groups that one serves.
func (b *bed) withinLimits() (most int) {
	all, err := b.Nodes[0].Aggregators(b.t.Context())
	if err != nil {
		b.t.Error(err)
	}
	for _, a := range all {
		sum, jobs := int64(0), map[uint64]int64{}
		for _, g := range a.Groups {
			sum += g.ReservedBytes
			jobs[g.Job] += g.ReservedBytes
			if jobs[g.Job] > a.JobMemory {
				b.t.Errorf("%s: a job has %d bytes of %d", a.Node, jobs[g.Job], a.JobMemory)
			}
		}
		if len(a.Rails) > 0 && sum > a.MemoryLimit {
			b.t.Errorf("%s has given %d bytes of %d", a.Node, sum, a.MemoryLimit)
		}
		most = max(most, len(a.Groups))
	}
	return most
}

// serving is the index of a node of a group's tree, its root.
func (b *bed) serving(group uint64) int {
	all, err := b.Nodes[0].Aggregators(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for i, a := range all {
		for _, g := range a.Groups {
			if g.Group == group && g.Parent == "" && a.Node == testbed.NodeName(i) {
				return i
			}
		}
	}
	b.t.Fatalf("nobody serves group %016x: %+v", group, all)
	return -1
}
