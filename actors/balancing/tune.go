package balancing

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/polyrail/polyrail/actors/tuning"
	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/collective/fault"
)

// This file is about the tuning file. Rank 0 alone uses it: what it has read becomes a table that
// all ranks agree on, so their files may differ.

const (
	keepEvery   = time.Minute // while operations run, so that a process that is killed loses no more than this
	keepTimeout = time.Second // for the balancer's answer
)

// tuner is a group's part: who has learned, and when that is written.
type tuner struct {
	balancer atomic.Pointer[actor.PID] // the living one

	mu    sync.Mutex
	later *time.Timer // nil: nothing is to be written
	ended bool
	write sync.WaitGroup // the timer's
}

// openTuning reads the node's tuning file. One that can't be used changes nothing.
func (n *Node) openTuning() {
	if n.config.Tuning == "" {
		return
	}
	if !n.engine.Config.Measured || n.engine.Rails < 2 && !n.engine.Config.Free {
		n.log.Warn("the tuning file is not used: shares are measured only without weights, over several rails", "file", n.config.Tuning)
		return
	}
	var err error
	if n.tuning, err = tuning.Open(n.config.Tuning); err != nil {
		n.log.Warn("the tuning file is ignored, and left as it is", "error", err)
	}
}

// tuningKey says what a group's figures hold for.
func (g *Group) tuningKey() tuning.Key {
	k := tuning.Key{Ranks: g.Size}
	for _, r := range g.node.fabric.Rails() {
		k.Rails = append(k.Rails, tuning.Rail{Name: r.Name, Protocol: r.Protocol})
	}
	return k
}

// tuned is what the tuning file says about the group's rails.
func (g *Group) tuned() (saved balance.Saved, ok bool) {
	n := g.node
	if n.tuning == nil || g.Rank != 0 || !g.Measured() {
		return balance.Saved{}, false
	}
	key := g.tuningKey()
	saved, ok, first := n.tuning.Get(key)
	if first {
		n.log.Warn("the tuning file has nothing for this communicator", "file", n.tuning.File(),
			"communicator", g.Name,
			"wanted", key.String(), "has", fmt.Sprint(n.tuning.Keys()))
	}
	return saved, ok
}

// keepLater has what was learned written within keepEvery.
func (g *Group) keepLater() {
	if g.node.tuning == nil {
		return
	}
	t := &g.tuner
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.later == nil && !t.ended {
		t.write.Add(1)
		t.later = time.AfterFunc(keepEvery, func() { // KeepTuning stops it, or waits for it
			defer t.write.Done()
			t.mu.Lock()
			t.later = nil
			t.mu.Unlock()
			g.logTuning(g.writeTuning(context.Background()))
		})
	}
}

// KeepTuning writes what was learned, if anything was, when the communicator ends.
func (g *Group) KeepTuning() {
	if g.node.tuning == nil || g.Rank != 0 {
		return
	}
	t := &g.tuner
	t.mu.Lock()
	t.ended = true
	if t.later != nil && t.later.Stop() {
		t.write.Done()
	}
	t.later = nil
	t.mu.Unlock()
	t.write.Wait()
	g.logTuning(g.writeTuning(context.Background()))
}

func (g *Group) logTuning(err error) {
	if err != nil {
		g.node.log.Warn("tuning file not written", "communicator", g.Name, "error", err)
	}
}

// writeTuning asks the balancer and writes what is new. A file that was refused at the start was
// reported then.
func (g *Group) writeTuning(ctx context.Context) error {
	n, pid := g.node, g.tuner.balancer.Load()
	if pid == nil || n.tuning.Check() != nil {
		return nil
	}
	m := &saveBalance{make(chan learned, 1)}
	n.tell(pid, m)
	timeout := time.NewTimer(keepTimeout) // a panic of the balancer loses the request
	defer timeout.Stop()
	select {
	case l := <-m.done:
		if !l.ok {
			return nil
		}
		return n.tuning.Put(g.tuningKey(), l.saved, time.Now())
	case <-g.gone:
		return nil // and with it what the balancer knew
	case <-timeout.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("communicator %q: tuning file: %w", g.Name, context.Cause(ctx))
	}
}

// SaveTuning writes what rank 0 has learned to the tuning file now.
func (g *Group) SaveTuning(ctx context.Context) error {
	switch {
	case g.Rank != 0:
		return fmt.Errorf("communicator %q: rank 0 (node %q) keeps the tuning file, this is rank %d",
			g.Name, g.Nodes[0], g.Rank)
	case g.node.tuning == nil:
		return fmt.Errorf("communicator %q: %w: there is no tuning file in use", g.Name, fault.ErrConfig)
	}
	if err := g.ShutError(); err != nil {
		return err
	}
	if err := g.Over(ctx); err != nil {
		return err
	}
	if err := g.node.tuning.Writable(); err != nil { // also where there is nothing to write yet
		return err
	}
	return g.writeTuning(ctx)
}
