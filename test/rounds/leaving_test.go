package rounds

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/fault"
	"github.com/polyrail/polyrail/test/bubble"
	"github.com/polyrail/polyrail/test/seeds"
	"github.com/polyrail/polyrail/test/testbed"
)

var leavings = flag.Int("leavings", 5, "in how many rounds of each way a member leaves the others")

// leaving is a cluster in this process, in which one member after the other leaves.
type leaving struct {
	t      *testing.T
	random *rand.Rand
	*testbed.Cluster
	moment time.Duration // when one leaves: before this
}

const (
	leavingNodes = 3
	remarkable   = 500 * time.Millisecond // a wait to be looked at, though it is allowed
)

func newLeaving(t *testing.T, virtual bool) *leaving {
	seed, one := seeds.One() // of the moments
	if !one {
		seed = rand.Uint64()
	}
	t.Logf("-seed %d", seed)
	l := &leaving{t: t, random: rand.New(rand.NewPCG(seed, 0)), moment: 100 * time.Millisecond}
	o := testbed.Options{Nodes: leavingNodes, Rails: 2, Over: testbed.Loopback, Adapt: func(cfg *polyrail.Config) {
		cfg.RankTimeout = rankTimeout
		cfg.Join = []string{testbed.GossipAddr(0), testbed.GossipAddr(1)} // the first one may leave
	}}
	if virtual { // an operation takes time: else nothing could happen within it
		l.moment, o.Over = 20*time.Millisecond, testbed.Memory
		o.Wrap = func(_, _ int, inner transport.Transport) transport.Transport {
			return fault.Wrap(inner, fault.Options{Delay: 100 * time.Microsecond, Rate: 1 << 30})
		}
	}
	var err error
	if l.Cluster, err = testbed.Start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *leaving) each(f func(i int) error) {
	l.t.Helper()
	if err := l.Each(f); err != nil {
		l.t.Fatal(err)
	}
}

func (l *leaving) close() {
	l.each(func(i int) error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		return l.Nodes[i].Close(ctx)
	})
}

// round forms a communicator, has a member end it at some moment, and checks when the others know.
func (l *leaving) round(round int, w way) (worst time.Duration) {
	l.t.Helper()
	mixers := make([]*mixer, leavingNodes)
	l.each(func(i int) error {
		ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
		defer cancel()
		c, err := l.Nodes[i].Communicator(ctx, "mix", leavingNodes)
		mixers[i] = &mixer{node: l.Nodes[i], comm: c, way: w}
		return err
	})
	victim := l.random.IntN(leavingNodes)
	v := mixers[victim]
	v.victim, v.after = true, time.Duration(l.random.Int64N(int64(l.moment)))
	v.die = func() { l.Kill(victim) }
	endings := make([]ending, leavingNodes)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var all sync.WaitGroup
		for i, m := range mixers {
			all.Go(func() { endings[i] = m.run(l.t.Context()) })
		}
		all.Wait()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute): // nothing that hangs can be left behind in a bubble
		panic(fmt.Sprintf("%s: round %d, %s of node %d after %v: a member still waits", l.t.Name(),
			round, w, victim, v.after))
	}
	worst = checkEndings(l.t, fmt.Sprintf("round %d, %s of node %d after %v", round, w, victim,
		v.after), w, endings, victim, l.Configs[victim].Name)
	if w == leaves || w == dies {
		if err := l.Restart(l.t.Context(), victim); err != nil {
			l.t.Fatal(err)
		}
	}
	return worst
}

// checkEndings compares what the members met with what is promised, and returns how long the last
// one waited.
func checkEndings(t *testing.T, what string, w way, endings []ending, victim int,
	name string) (worst time.Duration) {
	t.Helper()
	acted := endings[victim].Acted
	for i, e := range endings {
		waited := e.At.Sub(acted)
		if i != victim {
			worst = max(worst, waited)
		}
		if waited > remarkable {
			t.Logf("%s: member %d waited %v, and closed in %v: %s", what, i, waited, e.Close, e.Error)
		}
		if waited > waitLimit {
			t.Errorf("%s: member %d waited %v: %s", what, i, waited, e.Error)
		}
		culprit := fmt.Sprintf("node %q", name)
		if w == dups {
			// One that hears of it on the child closes what isn't broken there yet, and is named
			// for that.
			culprit = "node "
		}
		if i != victim && !strings.Contains(e.Error, culprit) {
			t.Errorf("%s: member %d ended with %q, which does not name %s", what, i, e.Error, name)
		}
		if strings.Contains(e.Error, "wrong") || e.Close > closeLimit+closeSlack && w != leaves && w != dies {
			t.Errorf("%s: member %d ended with %q, and closed in %v", what, i, e.Error, e.Close)
		}
	}
	return worst
}

func TestNobodyWaitsForWhoLeavesInVirtualTime(t *testing.T) {
	for _, w := range ways {
		t.Run(string(w), func(t *testing.T) {
			bubble.Nodes(t, func(t *testing.T) {
				l := newLeaving(t, true)
				l.rounds(w)
				l.close()
			})
		})
	}
}

func TestNobodyWaitsForWhoLeavesOnLoopback(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short leaves out what takes the time of a clock")
	}
	for _, w := range ways {
		if w == dies {
			continue // processes do
		}
		t.Run(string(w), func(t *testing.T) {
			l := newLeaving(t, false)
			l.rounds(w)
			l.close()
		})
	}
}

func (l *leaving) rounds(w way) {
	var worst time.Duration
	for round := range *leavings {
		worst = max(worst, l.round(round, w))
		if l.t.Failed() {
			return
		}
	}
	l.t.Logf("%d rounds: the last one waited %v at most", *leavings, worst)
}
