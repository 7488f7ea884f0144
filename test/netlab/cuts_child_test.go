//go:build linux

package netlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/polyrail/polyrail"
)

// childEnv makes this test's program a rank that sums without end; its value is a childConfig.
const childEnv = "POLYRAIL_NETLAB_CHILD"

// childConfig is what a rank is told.
type childConfig struct {
	Name, Bind, Join string
	Rails            []string // devices
	Protocol         string   // theirs
	Jobs             int      // communicators that sum at the same time; the first one is told of
	Ranks, Elements  int
}

// line is what a rank tells: an operation, or an event. All hosts have one clock.
type line struct {
	Operation int // 1, 2, …; 0: an event
	Begin     time.Time
	Took      time.Duration
	Wrong     int              // elements
	Sent      map[string]int64 // by rail: bytes since the last operation

	Kind, Node, Rail, Communicator             string
	Unacknowledged, Waiting, Resent, Remaining int64
}

// child runs operation after operation until its standard input ends at rank 0.
func child(c childConfig) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cfg := polyrail.DefaultConfig()
	cfg.Name, cfg.Bind, cfg.Join = c.Name, c.Bind, []string{c.Join}
	for _, d := range c.Rails {
		cfg.Rails = append(cfg.Rails, polyrail.Rail{Name: d, Protocol: c.Protocol, Device: d})
	}
	node, err := polyrail.Start(ctx, cfg)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	say := func(l line) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(l) // whoever listened is gone: the bed ends this process
	}
	events := node.Events(ctx)
	go func() {
		for e := range events {
			say(line{Begin: e.Time, Kind: e.Kind.String(), Node: e.Node, Rail: e.Rail, Communicator: e.Communicator,
				Unacknowledged: e.Unacknowledged, Waiting: e.Waiting, Resent: e.Resent, Remaining: e.Remaining})
		}
	}()
	var over atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		over.Store(true)
	}()
	errs := make([]error, c.Jobs)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			errs[i] = job(ctx, node, i, c, &over, say)
		})
	}
	all.Wait()
	return errors.Join(append(errs, node.Close(ctx))...)
}

// jobName is that of a communicator.
func jobName(i int) string { return fmt.Sprintf("cuts-%d", i) }

// job is one communicator's. The first one's operations are told; a wrong sum of another one is an
// error.
func job(ctx context.Context, node *polyrail.Node, i int, c childConfig, over *atomic.Bool, say func(line)) error {
	comm, err := node.Communicator(ctx, jobName(i), c.Ranks)
	if err != nil {
		return err
	}
	var wrong error
	if i > 0 {
		say = func(l line) {
			if l.Wrong > 0 && wrong == nil {
				wrong = fmt.Errorf("%s: operation %d has %d wrong elements", jobName(i), l.Operation, l.Wrong)
			}
		}
	}
	if err := sums(ctx, comm, node, c.Elements, over, say); err != nil {
		return fmt.Errorf("%s: %w", jobName(i), err)
	}
	return errors.Join(wrong, comm.Close(ctx))
}

// sums goes on until rank 0 is to end. Its operands are whole numbers, so that there is one right sum.
func sums(ctx context.Context, comm *polyrail.Communicator, node *polyrail.Node, elements int, over *atomic.Bool, say func(line)) error {
	buf := make([]float32, elements)
	operand := func(i, k, rank int) int { return (i + 7*k + 13*rank) % 1021 }
	for k := 1; ; k++ {
		goOn := []int32{1}
		if comm.Rank() == 0 && over.Load() {
			goOn[0] = 0
		}
		for i := range buf {
			buf[i] = float32(operand(i, k, comm.Rank()))
		}
		if err := polyrail.AllReduce(ctx, comm, goOn, polyrail.Min); err != nil || goOn[0] == 0 {
			return err
		}
		before, l := sentBy(node), line{Operation: k, Begin: time.Now()}
		if err := polyrail.AllReduce(ctx, comm, buf, polyrail.Sum); err != nil {
			return fmt.Errorf("operation %d: %w", k, err)
		}
		l.Took, l.Sent = time.Since(l.Begin), since(before, sentBy(node))
		for i, x := range buf {
			want := 0
			for rank := range comm.Size() {
				want += operand(i, k, rank)
			}
			if x != float32(want) {
				l.Wrong++
			}
		}
		say(l)
	}
}

// sentBy is how many bytes a node has sent on each rail.
func sentBy(node *polyrail.Node) map[string]int64 {
	sent := map[string]int64{}
	for _, r := range node.Rails() {
		sent[r.Name] = int64(r.BytesSent)
	}
	return sent
}

// since is what was sent between two readings. It is the second one's map.
func since(before, after map[string]int64) map[string]int64 {
	for rail := range after {
		after[rail] -= before[rail]
	}
	return after
}
