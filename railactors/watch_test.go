package railactors

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

// exchange sends frames of both nodes in turn on all rails, and returns how long it took until all
// were acknowledged. First is the number of the first frame.
func (b *bed) exchange(ab, ba *Peer, first uint64, frames, bytes int) time.Duration {
	b.t.Helper()
	start := time.Now()
	last := first + uint64(frames) - 1
	for seq := first; seq <= last; seq++ {
		b.nodes[0].send(ab, seq, int(seq)%len(b.rails), bytes, 0)
		b.nodes[1].send(ba, seq, int(seq)%len(b.rails), bytes, 0)
	}
	b.nodes[0].expect("b", last)
	b.nodes[1].expect("a", last)
	b.nodes[0].expectReleased(last, nil)
	b.nodes[1].expectReleased(last, nil)
	return time.Since(start)
}

func TestASilentRailIsLeftWithinTheRailTimeout(t *testing.T) {
	for _, victim := range []string{"a", "b"} {
		for _, bytes := range []int{100, 200 << 10} { // fits into the network's buffers, and doesn't
			t.Run(fmt.Sprintf("%s/%d", victim, bytes), func(t *testing.T) {
				virtual(t, 2, func(b *bed, net *mem.Network) {
					n := b.start("a", "b")
					ab, ba := join(n[0], n[1])
					b.exchange(ab, ba, 1, 20, bytes)
					<-time.After(10 * time.Second) // idle for long
					net.Silence(victim, "rail1")
					if took := b.exchange(ab, ba, 21, 20, bytes); took > 210*time.Millisecond || took < 100*time.Millisecond {
						t.Errorf("it took %v", took)
					}
					s := n[0].fabric.Rails()[1].Silences + n[1].fabric.Rails()[1].Silences
					if s == 0 {
						t.Error("no silence was counted")
					}
					net.Heal(victim, "rail1")
				})
			})
		}
	}
}

func TestALinkThatGoesDownIsLeftAtOnce(t *testing.T) {
	for _, victim := range []int{0, 1} {
		virtual(t, 2, func(b *bed, net *mem.Network) {
			n := b.start("a", "b")
			ab, ba := join(n[0], n[1])
			b.exchange(ab, ba, 1, 20, 1000)
			net.Unplug(n[victim].name, "rail1")
			if took := b.exchange(ab, ba, 21, 20, 100<<10); took > 20*time.Millisecond {
				t.Errorf("it took %v", took)
			}
			if s := n[victim].fabric.Rails()[1]; s.LinkDowns != 1 || s.Up || s.Silences != 0 {
				t.Errorf("rail %+v", s)
			}
			<-time.After(time.Hour)
			net.Heal(n[victim].name, "rail1")
			<-time.After(20 * time.Millisecond) // the news start an attempt
			if s := n[victim].fabric.Rails()[1]; !s.Up {
				t.Errorf("20ms after the repair: %+v", s)
			}
		})
	}
}

// TestASlowRankIsNoSilence: its process takes nothing, its host confirms; checks go on, and find
// nothing.
func TestASlowRankIsNoSilence(t *testing.T) {
	virtual(t, 2, func(b *bed, _ *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		release := make(chan struct{})
		n[1].land = func(*Peer, *wire.Header) (Landing, error) {
			<-release
			return Landing{}, nil
		}
		for seq := range uint64(40) {
			n[0].send(ab, seq+1, int(seq)%2, 200<<10, 0)
		}
		<-time.After(time.Minute)
		close(release)
		n[0].expectReleased(40, nil)
		for _, r := range n[0].fabric.Rails() {
			if r.Silences != 0 || r.Reconnects != 0 {
				t.Errorf("rail %+v", r)
			}
		}
	})
}

func TestAnIdlePeerIsNotChecked(t *testing.T) {
	virtual(t, 2, func(b *bed, _ *mem.Network) {
		n := b.start("a", "b")
		ab, ba := join(n[0], n[1])
		b.exchange(ab, ba, 1, 2, 1000)
		<-time.After(100 * time.Millisecond)
		for range 200 { // heartbeats come and go
			<-time.After(10 * time.Millisecond)
			synctest.Wait()
			for _, p := range []*Peer{ab, ba} {
				p.mu.Lock()
				watching := p.watching
				p.mu.Unlock()
				if watching {
					t.Fatalf("node %s still watches %s", p.fabric.cfg.Node, p.node)
				}
			}
		}
	})
}

// TestAFalseAlarmCostsAFailoverAndIsCounted: a rail that pauses for a little longer than the timeout.
func TestAFalseAlarmCostsAFailoverAndIsCounted(t *testing.T) {
	virtual(t, 2, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		ab, ba := join(n[0], n[1])
		net.Silence("b", "rail0")
		time.AfterFunc(250*time.Millisecond, func() { net.Heal("b", "rail0") })
		b.exchange(ab, ba, 1, 10, 1000)
		<-time.After(time.Second)
		var silences, alarms uint64
		for _, x := range n {
			silences += x.fabric.Rails()[0].Silences
			alarms += x.fabric.Rails()[0].FalseAlarms
		}
		if silences == 0 || alarms == 0 {
			t.Errorf("%d silences, %d of them false", silences, alarms)
		}
		b.exchange(ab, ba, 11, 10, 1000)
	})
}

// TestARailIsBackWithinTwoSeconds: however long it was away, and however often it has flapped.
func TestARailIsBackWithinTwoSeconds(t *testing.T) {
	faults := map[string]func(net *mem.Network){
		"cut":      func(net *mem.Network) { net.Cut("b", "rail0") },
		"silenced": func(net *mem.Network) { net.Silence("b", "rail0") },
		"unplug":   func(net *mem.Network) { net.Unplug("b", "rail0") },
	}
	for name, fault := range faults {
		for _, flaps := range []int{1, 20} {
			for _, away := range []time.Duration{300 * time.Millisecond, 3 * time.Second, time.Hour} {
				if flaps > 1 && away > time.Minute {
					continue // heartbeats of twenty hours take their time
				}
				t.Run(fmt.Sprintf("%s/%d/%v", name, flaps, away), func(t *testing.T) {
					virtual(t, 2, func(b *bed, net *mem.Network) {
						n := b.start("a", "b")
						ab, ba := join(n[0], n[1])
						next := uint64(1)
						for range flaps {
							fault(net)
							b.exchange(ab, ba, next, 4, 1000)
							next += 4
							<-time.After(away)
							net.Heal("b", "rail0")
							<-time.After(2 * time.Second)
							for _, x := range n {
								if s := x.fabric.Rails()[0]; !s.Up {
									t.Fatalf("node %s, frame %d: %+v", x.name, next, s)
								}
							}
						}
						if seen := n[0].fabric.Rails()[0].Reconnects; seen < uint64(flaps) {
							t.Errorf("%d reconnections after %d faults", seen, flaps)
						}
					})
				})
			}
		}
	}
}

// TestAFlappingRailIsDamped: a rail that breaks as soon as it is up costs about an attempt a second.
func TestAFlappingRailIsDamped(t *testing.T) {
	virtual(t, 2, func(b *bed, _ *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		stop := time.After(time.Minute)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for flapping := true; flapping; {
			select {
			case <-stop:
				flapping = false
			case <-tick.C:
				breakRail(ab, 0)
			}
		}
		if seen := n[0].fabric.Rails()[0].Reconnects; seen < 50 || seen > 150 {
			t.Errorf("%d reconnections in a minute", seen)
		}
	})
}

// TestADeadRailIsFoundOnceForAllNodes: the silence with one node makes this node look at the same
// rail to others, which then need no timeout of their own; a rail that works is left alone.
func TestADeadRailIsFoundOnceForAllNodes(t *testing.T) {
	virtual(t, 2, func(b *bed, net *mem.Network) {
		n := b.start("a", "b", "c")
		ab, ba := join(n[0], n[1])
		ac, _ := join(n[0], n[2])
		bc, cb := join(n[1], n[2])
		net.Silence("b", "rail0")
		begin := time.Now()
		n[0].send(ab, 1, 0, 1000, 0)
		n[1].expect("a", 1)
		n[1].send(bc, 1, 0, 1000, 0) // only now: b learned of the silence from a
		n[2].expect("b", 1)
		if took := time.Since(begin); took > 240*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		for _, p := range []*Peer{ab, ba, bc, cb} {
			if p.Lost() != nil {
				t.Error(p.Lost())
			}
		}
		<-time.After(time.Second)
		ac.mu.Lock()
		if c := ac.conns[0]; c == nil || c.generation != 1 {
			t.Error("the rail between a and c works, and was closed")
		}
		ac.mu.Unlock()
		net.Heal("b", "rail0")
	})
}
