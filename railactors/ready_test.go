package railactors

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polyrail/polyrail/collective/fault"
	wrap "github.com/polyrail/polyrail/railactors/transport/fault"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

// badRails are the ways in which one rail of a node can be down when two nodes meet.
var badRails = map[string]func(net *mem.Network, node, rail string){
	"refused": (*mem.Network).Cut,
	"silent":  (*mem.Network).Silence,
	"no link": (*mem.Network).Unplug,
}

// ready connects two nodes, and returns how long it took until both could use each other.
func ready(t *testing.T, a, b *testNode) (ab, ba *Peer, took time.Duration) {
	t.Helper()
	start := time.Now()
	ab, ba = a.connect(b), b.connect(a)
	for _, p := range []*Peer{ab, ba} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if err := p.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	return ab, ba, time.Since(start)
}

func TestTwoNodesMeetWithoutTheRailThatIsDown(t *testing.T) {
	for name, fail := range badRails {
		for _, at := range []string{"a", "b"} {
			t.Run(name+" at "+at, func(t *testing.T) {
				virtual(t, 3, func(b *bed, net *mem.Network) {
					events := make(chan PairEvent, 100)
					b.tune = func(c *Config) { c.Watch = func(e PairEvent) { events <- e } }
					fail(net, at, "rail1")
					n := b.start("a", "b")
					ab, ba, took := ready(b.t.(*testing.T), n[0], n[1])
					if took < formGrace || took > formGrace+100*time.Millisecond {
						t.Errorf("took %v", took)
					}
					synctest.Wait()
					downs := 0
					for len(events) > 0 {
						if e := <-events; e.Kind == PairDown {
							downs++
							if e.Rail != "rail1" || e.Err == nil {
								t.Errorf("told of %+v", e)
							}
						}
					}
					if downs != 2 {
						t.Errorf("%d nodes were told of the missing rail", downs)
					}
					for seq := range uint64(9) {
						n[0].send(ab, seq+1, int(seq)%3, 50_000, 0)
						n[1].send(ba, seq+1, int(seq)%3, 50_000, 0)
					}
					n[0].expect("b", 9)
					n[1].expect("a", 9)
					if ab.Whole() || ba.Whole() {
						t.Error("the rail is connected: the fault was none")
					}
					net.Heal(at, "rail1")
					<-time.After(3 * time.Second)
					if !ab.Whole() || !ba.Whole() {
						t.Error("the rail hasn't come back")
					}
				})
			})
		}
	}
}

func TestTwoNodesWithoutAnyRailSayWhatKeepsEach(t *testing.T) {
	virtual(t, 2, func(b *bed, net *mem.Network) {
		net.Cut("b", "rail0")
		net.Silence("b", "rail1")
		n := b.start("a", "b")
		ab, ba := n[0].connect(n[1]), n[1].connect(n[0])
		for i, p := range []*Peer{ab, ba} {
			ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
			err := p.WaitReady(ctx)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after a second: %v", err)
			}
			want := [][]string{{`node "b"`, "rail0 (", "connection refused", "rail1 (", "deadline"},
				{`node "a"`, "rail0 (it has not dialed)", "rail1 (it has not dialed)"}}
			for _, w := range want[i] {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("%q is not in %v", w, err)
				}
			}
		}
		err := ab.WaitReady(b.t.Context())
		for _, w := range []string{`node "b"`, "rail0 (", "rail1 ("} {
			if !errors.Is(err, fault.ErrRankLost) || !strings.Contains(err.Error(), w) {
				t.Errorf("%q is not in the reason of the loss: %v", w, err)
			}
		}
	})
}

// Rail 1 was never connected and times out: what it does not say must not hide what rail 0 says.
func TestAProcessIsGoneWhenAllRailsThatWereConnectedRefuse(t *testing.T) {
	virtual(t, 2, func(b *bed, net *mem.Network) {
		net.Silence("a", "rail1")
		n := b.start("a", "b")
		ab, _, _ := ready(b.t.(*testing.T), n[0], n[1])
		net.Kill("b")
		if took := n[0].expectLost(ab, "refuses"); took > 100*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

// What is remembered of nodes must not grow with what they do.
func TestNothingIsLeftOfNodesThatWereNeverAskedForAndOfFormerSessions(t *testing.T) {
	virtual(t, 1, func(b *bed, _ *mem.Network) {
		b.tune = func(c *Config) { c.Linger = time.Millisecond }
		n := b.start("a", "b")
		ab := n[0].connect(n[1]) // b never asks for a
		<-time.After(10 * time.Second)
		n[0].fabric.Disconnect(ab)
		<-ab.ended
		<-time.After(10 * time.Second)
		f := n[1].fabric
		f.mu.Lock()
		if len(f.awaited) != 0 || f.held != 0 {
			t.Errorf("%d nodes are awaited, by %d connections", len(f.awaited), f.held)
		}
		f.mu.Unlock()
		for range 5 {
			ab, ba := join(n[0], n[1])
			for _, p := range []*Peer{ab, ba} {
				p.mu.Lock()
				if p.predecessor != nil {
					t.Error("a former session is kept")
				}
				p.mu.Unlock()
				p.fabric.Disconnect(p)
			}
			<-time.After(2 * time.Millisecond) // it says farewell
		}
	})
}

func TestARailWhoseDeviceIsAbsentIsTakenInWhenItComes(t *testing.T) {
	for _, at := range []string{"a", "b", "ab"} {
		t.Run(at, func(t *testing.T) {
			virtual(t, 2, func(b *bed, net *mem.Network) {
				var absent atomic.Bool
				absent.Store(true)
				b.tune = func(c *Config) {
					if strings.Contains(at, c.Node) {
						c.Rails[1].Transport = wrap.Absent{Transport: c.Rails[1].Transport, Now: &absent}
					}
				}
				n := b.start("a", "b")
				ab, ba, took := ready(b.t.(*testing.T), n[0], n[1])
				if took > formGrace+100*time.Millisecond {
					t.Errorf("took %v", took)
				}
				if s := n[at[0]-'a'].fabric.Rails()[1]; s.Up || s.Addr != "" ||
					!strings.Contains(s.Chosen, "rail1 is down") {
					t.Errorf("status %+v", s)
				}
				absent.Store(false)
				<-time.After(5 * time.Second)
				if !ab.Whole() || !ba.Whole() {
					t.Fatal("the rail isn't connected")
				}
				for seq := range uint64(4) {
					n[0].send(ab, seq+1, 1, 50_000, 0)
					n[1].send(ba, seq+1, 1, 50_000, 0)
				}
				n[0].expect("b", 4)
				n[1].expect("a", 4)
				if s := n[0].fabric.Rails()[1]; !s.Up || s.BytesSent < 200_000 {
					t.Errorf("status %+v", s)
				}
			})
		})
	}
}

func TestANodeWithoutAnyDeviceNamesEach(t *testing.T) {
	var absent atomic.Bool
	absent.Store(true)
	cfg := Config{Node: "a", Incarnation: 1, Cluster: "test", Logger: quiet}
	for _, r := range []string{"rail0", "rail1"} {
		cfg.Rails = append(cfg.Rails, RailConfig{Name: r, Device: "eth" + r[4:],
			Transport: wrap.Absent{Transport: mem.NewNetwork().Transport("a"), Now: &absent}})
	}
	_, err := Start(nil, cfg, nil)
	for _, want := range []string{"rail0", "eth0", "rail1", "eth1", "is down"} {
		if !errors.Is(err, fault.ErrRail) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

func TestARailOnWhichNobodyAnswersIsSaidToBe(t *testing.T) {
	virtual(t, 2, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		// A stopped process: its kernel accepts, and nobody reads.
		silent, err := net.Transport("c").Open("rail1")
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		to := n[1].remote()
		to.Rails[1].Addr = silent.Addr()
		ab, err := n[0].fabric.Connect(to)
		if err != nil {
			t.Fatal(err)
		}
		from := n[0].remote()
		from.Rails[1].Addr = "" // so b asks nothing there, which would have a begin anew
		if _, err := n[1].fabric.Connect(from); err != nil {
			t.Fatal(err)
		}
		<-time.After(10 * time.Second)
		ab.mu.Lock()
		why := ab.obstacle(1)
		ab.mu.Unlock()
		if !errors.Is(why, context.DeadlineExceeded) || !strings.Contains(why.Error(), "nobody answered within 2s") {
			t.Errorf("the rail is not connected because of: %v", why)
		}
	})
}
