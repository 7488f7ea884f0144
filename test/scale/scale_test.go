package scale

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/test/bubble"
	"github.com/polyrail/polyrail/test/testbed"
)

var (
	nodes    = flag.Int("nodes", 0, "form a communicator of this many nodes in real time, and print what it takes; 0: not")
	rails    = flag.Int("rails", 2, "of each node, with -nodes")
	loopback = flag.Bool("loopback", false, "with -nodes, over sockets instead of memory")
)

// limit bounds a run in real time: a machine that is busy with other things is slow.
const limit = 3 * time.Minute

func TestManyRanksFormOperateLoseOneShrinkAndClose(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: long under the race detector")
	}
	bubble.Nodes(t, func(t *testing.T) {
		c := start(t, testbed.Options{Nodes: 64, Rails: 1})
		began := time.Now()
		comms, err := c.Form(t.Context(), "train")
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("forming took %v", took)
		}
		live(t, c, comms)
	})
}

// Ranks that no operation has connected to a rank hear that it closed the communicator.
func TestRanksThatMeetLateHearOfAClosedCommunicator(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		c := start(t, testbed.Options{Nodes: 24, Rails: 1})
		comms := byRank(form(t, c, "train"))
		const from, to = 0, 11 // no link, in no tree
		if err := comms[from].Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got [1]int64
		if _, err := polyrail.Recv(t.Context(), comms[to], got[:], from, 1); !errors.Is(err, polyrail.ErrClosed) {
			t.Errorf("a receive from a rank that has closed ends with %v", err)
		}
		second := byRank(form(t, c, "second")) // the nodes go on
		if err := polyrail.Send(t.Context(), second[from], []int64{7}, to, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := polyrail.Recv(t.Context(), second[to], got[:], from, 1); err != nil || got[0] != 7 {
			t.Errorf("received %d, %v", got[0], err)
		}
	})
}

// An abort reaches ranks that the one where it arose is not connected to.
func TestAnAbortReachesAllRanks(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		c := start(t, testbed.Options{Nodes: 24, Rails: 1})
		comms := byRank(form(t, c, "train"))
		const at = 5
		err := c.Each(func(i int) error {
			if i == at {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				return comms[i].Barrier(ctx)
			}
			if i == at+1 { // it calls late
				<-time.After(2 * time.Second)
			}
			return comms[i].Barrier(t.Context())
		})
		var joined interface{ Unwrap() []error }
		if !errors.As(err, &joined) || len(joined.Unwrap()) != len(comms) {
			t.Errorf("not all ranks failed: %v", err)
		}
	})
}

// TestFigures is the long form: make scale.
func TestFigures(t *testing.T) {
	if *nodes == 0 {
		t.Skip("SKIPPED: takes minutes; -nodes N runs it")
	}
	o := testbed.Options{Nodes: *nodes, Rails: *rails, Balance: polyrail.BalanceMeasured,
		Adapt: func(c *polyrail.Config) { c.RankTimeout = limit / 10 }} // they share the cores
	if *loopback {
		o.Over, o.Gossip = testbed.Loopback, testbed.Loopback
	}
	before := use()
	c := start(t, o)
	began := time.Now()
	comms := form(t, c, "figures")
	formed := time.Since(began)
	runtime.GC()
	after := use()
	rank := func(x int64) int64 { return x / int64(*nodes) }
	idle := processorTime(t, func() { <-time.After(2 * time.Second) })
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "ranks\tforming\tKiB/rank\tgoroutines/rank\tdescriptors/rank\tidle %/rank\t8 B\t64 KiB\t1 MiB")
	fmt.Fprintf(out, "%d\t%.2fs\t%d\t%d\t%d\t%.3f", *nodes, formed.Seconds(), rank(after.heap-before.heap)>>10,
		rank(after.goroutines-before.goroutines), rank(after.descriptors-before.descriptors),
		idle.Seconds()/2*100/float64(*nodes))
	for _, bytes := range []int{8, 64 << 10, 1 << 20} {
		fmt.Fprintf(out, "\t%v", allreduce(t, comms, bytes).Round(10*time.Microsecond))
	}
	fmt.Fprintln(out)
	out.Flush()
	live(t, c, comms)
}

// allreduce is the median time of a few, from the first call to the last return.
func allreduce(t *testing.T, comms []*polyrail.Communicator, bytes int) time.Duration {
	t.Helper()
	var took []time.Duration
	for range 9 {
		began := time.Now()
		if err := testbed.Each(len(comms), func(i int) error {
			return polyrail.AllReduce(t.Context(), comms[i], make([]float32, bytes/4), polyrail.Sum)
		}); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	return median(took)
}

// live runs every collective, loses a member, shrinks, runs them again and closes.
func live(t *testing.T, c *testbed.Cluster, comms []*polyrail.Communicator) {
	t.Helper()
	n := len(comms)
	if err := c.Each(func(i int) error { return every(t.Context(), comms[i]) }); err != nil {
		t.Fatal(err)
	}
	if n < 4 { // fewer have no majority without one
		return
	}
	lost := n / 3
	if c.Rails != nil {
		c.Kill(lost)
	} else if err := c.Nodes[lost].Close(t.Context()); err != nil {
		t.Fatal(err)
	} else {
		c.Nodes[lost] = nil
	}
	if err := c.Each(func(i int) error {
		if err := comms[i].Barrier(t.Context()); err == nil {
			return errors.New("a barrier without a member ended well")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := c.Each(func(i int) (err error) {
		comms[i], _, err = comms[i].Shrink(t.Context())
		if err == nil && comms[i].Size() != n-1 {
			err = fmt.Errorf("%d are left of %d", comms[i].Size(), n)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := c.Each(func(i int) error { return every(t.Context(), comms[i]) }); err != nil {
		t.Fatal(err)
	}
	if err := c.Each(func(i int) error { return comms[i].Close(t.Context()) }); err != nil {
		t.Fatal(err)
	}
}
