package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polyrail/polyrail/cluster/memnet"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/view"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/test/bubble"
)

func TestNodesFindOneAnotherThroughOneSeed(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		peers := startAll(t, memnet.New(), 6)
		for _, p := range peers {
			if err := p.WaitJoined(t.Context()); err != nil {
				t.Error(err)
			}
			if got := nodes(p.Gossip); got != "n1 n2 n3 n4 n5 n6" {
				t.Errorf("members: %s", got)
			}
		}
		closeAll(t, peers...)
	})
}

// Each sending of a piece of news draws its receivers, so a node misses it with a chance of about
// e to the minus sendings. That nobody misses anything when all join at once must be the rule.
func TestNewsReachesAllOfAFewNodesWithoutAnExchange(t *testing.T) {
	c := config(memnet.New(), "a", 7, seed)
	m, err := c.memberlist()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Transport.Shutdown(); err != nil {
		t.Error(err)
	}
	for n := 2; n < ManyNodes; n++ {
		sendings := float64(m.RetransmitMult) * math.Ceil(math.Log10(float64(n+1)))
		if missed := float64(n*n) * math.Exp(-sendings); missed > 0.03 {
			t.Errorf("%d nodes miss %.4f pieces of news where all join at once", n, missed)
		}
	}
}

func TestTheSeedMayStartLast(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network := memnet.New()
		b := start(t, config(network, "b", 7, "10.0.0.2:7946", seed))
		c := start(t, config(network, "c", 7, "10.0.0.3:7946", seed))
		select {
		case <-time.After(5 * time.Second): // virtual
		case <-b.joined:
			t.Error("joined a cluster that is not there")
		}
		a := start(t, config(network, "a", 7, seed, seed)) // lists itself only
		for _, p := range []peer{a, b, c} {
			if err := p.WaitJoined(t.Context()); err != nil {
				t.Error(err)
			}
		}
		b.expect(t, "c#7 joined")
		c.expect(t, "b#7 joined")
		closeAll(t, a, b, c)
	})
}

func TestSeedsThatDoNotAnswerDelayNobody(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network := memnet.New()
		a := start(t, config(network, "a", 7, seed, seed))
		var list []string
		for i := range 2 * maxJoins {
			list = append(list, fmt.Sprintf("10.0.1.%d:7946", i+1))
		}
		network.Partition(list) // nobody is there, and nobody says so
		began := time.Now()
		b := start(t, config(network, "b", 7, "10.0.0.2:7946", append(list, seed)...))
		if err := b.WaitJoined(t.Context()); err != nil {
			t.Error(err)
		}
		// The living one is in the third lot.
		if took, most := time.Since(began), 3*b.cfg.StreamTimeout; took > most {
			t.Errorf("it has joined after %v, want at most %v", took, most)
		}
		closeAll(t, a, b)
	})
}

func TestWaitJoinedNamesTheSeedsThatDoNotAnswer(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		p := start(t, config(memnet.New(), "b", 7, "10.0.0.2:7946", seed, "10.0.0.9:1"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.WaitJoined(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), seed) {
			t.Errorf("got %v", err)
		}
		err := p.WaitJoined(t.Context())
		if !errors.Is(err, fault.ErrTimeout) || !strings.Contains(err.Error(), seed+" (") || !strings.Contains(err.Error(), "10.0.0.9:1 (") {
			t.Errorf("got %v", err)
		}
		if since := time.Since(p.started); since != p.cfg.JoinTimeout {
			t.Errorf("gave up after %v", since)
		}
		closeAll(t, p)
	})
}

func TestWhoHasJoinedWaitsForNothingEverAfter(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		peers := startAll(t, memnet.New(), 2)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		<-time.After(peers[0].cfg.JoinTimeout + time.Second) // virtual
		for range 50 {
			for _, p := range peers {
				if err := p.WaitJoined(ended); err != nil {
					t.Error(err)
				}
			}
		}
		closeAll(t, peers...)
	})
}

func TestAKilledNodeIsSeenToFailSoon(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		peers := startAll(t, memnet.New(), 6)
		killed := time.Now()
		closeAll(t, peers[3])
		for i, p := range peers {
			if i != 3 {
				p.expect(t, "n4#7 failed")
			}
		}
		if d := time.Since(killed); d > 5*time.Second {
			t.Errorf("found after %v", d)
		}
		closeAll(t, append(peers[:3:3], peers[4:]...)...)
	})
}

func TestARestartedNodeComesBack(t *testing.T) {
	for name, bind := range map[string]string{"on its address": "10.0.0.3:7946", "on another port": "10.0.0.3:9000"} {
		t.Run(name, func(t *testing.T) {
			bubble.Nodes(t, func(t *testing.T) {
				network := memnet.New()
				peers := startAll(t, network, 3)
				closeAll(t, peers[2])
				again := start(t, config(network, "n3", 8, bind, seed)) // at once, before anybody missed it
				for _, p := range peers[:2] {
					p.expect(t, "n3#8 joined")
					if i, j := slices.Index(p.events, "n3#7 failed"), slices.Index(p.events, "n3#8 joined"); i < 0 || i > j {
						t.Errorf("heard %v", p.events)
					}
				}
				if err := again.WaitJoined(t.Context()); err != nil {
					t.Error(err)
				}
				closeAll(t, peers[0], peers[1], again)
			})
		})
	}
}

func TestARestartedSeedIsFoundAgain(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network := memnet.New()
		peers := startAll(t, network, 3)
		closeAll(t, peers[0])
		peers[1].expect(t, "n1#7 failed")
		peers[2].expect(t, "n1#7 failed")
		again := start(t, config(network, "n1", 8, seed, seed)) // knows nobody
		peers[1].expect(t, "n1#8 joined")
		peers[2].expect(t, "n1#8 joined")
		again.expect(t, "n2#7 joined")
		again.expect(t, "n3#7 joined")
		closeAll(t, peers[1], peers[2], again)
	})
}

func TestAPartitionHeals(t *testing.T) {
	for name, lasts := range map[string]time.Duration{"short": 3 * time.Second, "longer than memberlist remembers": 2 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			bubble.Nodes(t, func(t *testing.T) {
				network := memnet.New()
				peers := startAll(t, network, 4)
				network.Partition([]string{"10.0.0.1:7946", "10.0.0.2:7946"}, []string{"10.0.0.3:7946", "10.0.0.4:7946"})
				for i, p := range peers {
					for j := range peers {
						if i/2 != j/2 {
							p.expect(t, fmt.Sprintf("n%d#7 failed", j+1))
						}
					}
				}
				pass(lasts)
				for _, p := range peers {
					p.forget()
				}
				network.Heal()
				for i, p := range peers {
					for j := range peers {
						if i/2 != j/2 {
							p.expect(t, fmt.Sprintf("n%d#7 joined", j+1))
						}
					}
				}
				closeAll(t, peers...)
			})
		})
	}
}

func TestALivingNodesNameIsRefused(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network := memnet.New()
		peers := startAll(t, network, 3)
		_, err := Start(t.Context(), config(network, "n2", 99, "10.0.0.9:7946", seed), newEar())
		var conflict *ConflictError
		if !errors.As(err, &conflict) || conflict.Node != "n2" || conflict.Addr != "10.0.0.2:7946" || !errors.Is(err, fault.ErrConfig) {
			t.Errorf("got %v", err)
		}
		pass(5 * time.Second)
		for _, p := range peers {
			if p.heard("n2#99 joined") || p.heard("n2#7 failed") || p.heard("n2#7 left") {
				t.Errorf("heard %v", p.events)
			}
			if got := nodes(p.Gossip); got != "n1 n2 n3" {
				t.Errorf("members: %s", got)
			}
		}
		closeAll(t, peers...)
	})
}

func TestAConflictThatShowsLaterEndsTheLaterNode(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network := memnet.New()
		first := start(t, config(network, "x", 1, "10.0.0.2:7946", seed))
		second := start(t, config(network, "x", 2, "10.0.0.3:7946", seed))
		a := start(t, config(network, "a", 7, seed))
		<-second.Failed()
		var conflict *ConflictError
		if !errors.As(second.Err(), &conflict) || conflict.Addr != "10.0.0.2:7946" {
			t.Errorf("got %v", second.Err())
		}
		if err := second.WaitJoined(t.Context()); err != second.Err() && second.Err() == nil {
			t.Errorf("WaitJoined: %v", err)
		}
		a.expect(t, "x#1 joined")
		if first.Err() != nil {
			t.Errorf("the first holder of the name was told %v", first.Err())
		}
		closeAll(t, first, second, a)
	})
}

func TestANameIsRefusedToAHostWhoseClockIsBehind(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network := memnet.New()
		peers := startAll(t, network, 3)
		pass(2 * settleTime)
		// By its clock it was there before n2#7.
		late := start(t, config(network, "n2", 5, "10.0.0.9:7946", seed))
		select {
		case <-late.Failed():
		case <-time.After(2 * settleTime):
			t.Error("two nodes live under one name")
		}
		var conflict *ConflictError
		if err := late.Err(); !errors.As(err, &conflict) || conflict.Addr != "10.0.0.2:7946" {
			t.Errorf("got %v", err)
		}
		for _, p := range peers {
			if p.Err() != nil || p.heard("n2#7 failed") || p.heard("n2#7 left") {
				t.Errorf("error %v, heard %v", p.Err(), p.events)
			}
		}
		closeAll(t, append(peers, late)...)
	})
}

// Nodes whose rails can't talk to each other must not meet.
func TestAnotherVersionIsRefusedByName(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network := memnet.New()
		a := start(t, config(network, "a", 7, seed))
		b := startVersion(config(network, "b", 7, "10.0.0.2:7946", seed), wire.Version-1)
		<-b.Failed()
		var v *VersionError
		if err := b.Err(); !errors.As(err, &v) || v.Node != "a" || v.Theirs != wire.Version ||
			v.Mine != wire.Version-1 || v.ThisNode != "b" {
			t.Errorf("got %v", err)
		}
		if got := nodes(a.Gossip); got != "a" || a.Err() != nil {
			t.Errorf("a has members %s, error %v", got, a.Err())
		}
		closeAll(t, a, peer{b, nil})
	})
}

// startVersion starts a node that speaks another version of the protocol.
func startVersion(c Config, version uint32) *Gossip {
	g := newGossip(c, newEar())
	if err := g.listen(version); err != nil {
		panic(err)
	}
	g.run()
	return g
}

func TestAnotherClusterIsNotJoined(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		for _, name := range []string{"other", "p", "polyrail2", strings.Repeat("x", 200)} {
			network := memnet.New()
			var log bytes.Buffer
			conf := config(network, "a", 7, seed)
			conf.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
			a := start(t, conf)
			c := config(network, "b", 7, "10.0.0.2:7946", seed)
			c.Cluster = name
			b := start(t, c)
			err := b.WaitJoined(t.Context())
			if !errors.Is(err, fault.ErrTimeout) || !strings.Contains(err.Error(), seed+" (it is of another cluster)") {
				t.Errorf("got %v", err)
			}
			if nodes(a.Gossip) != "a" || nodes(b.Gossip) != "b" {
				t.Errorf("members: %s; %s", nodes(a.Gossip), nodes(b.Gossip))
			}
			closeAll(t, a, b)
			if text := log.String(); strings.Count(text, "another cluster") != 1 || !strings.Contains(text, "from=10.0.0.2") ||
				!strings.Contains(text, name[:min(len(name), 64)]) || len(text) > 500 {
				t.Errorf("the seed logs %q", text)
			}
		}
	})
}

func TestAnErrorWithoutSeedsEndsInNoColon(t *testing.T) {
	if err := (&JoinError{After: 7800 * time.Millisecond}); err.Error() != "no seed reached within 7.8s" {
		t.Errorf("got %q", err.Error())
	}
}

func TestAnotherClusterIsNamedOverSockets(t *testing.T) {
	a := start(t, config(nil, "a", 7, "127.0.0.1:0"))
	c := config(nil, "b", 7, "127.0.0.1:0", a.Addr())
	c.Cluster = "other"
	b := start(t, c) // after a first attempt
	if err := b.Unjoined(); err == nil || !strings.Contains(err.Error(), "it is of another cluster") {
		t.Errorf("got %v", err)
	}
	closeAll(t, a, b)
}

func TestTheBoundAddressIsNamedWhenItIsTaken(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network := memnet.New()
		a := start(t, config(network, "a", 7, seed))
		_, err := Start(t.Context(), config(network, "b", 7, seed), newEar())
		if err == nil || !strings.Contains(err.Error(), seed) || !strings.Contains(err.Error(), "in use") {
			t.Errorf("got %v", err)
		}
		closeAll(t, a)
	})
}

func TestValidateListsEveryFault(t *testing.T) {
	c := DefaultConfig()
	c.Node, c.Bind, c.Join, c.Rejoin, c.Cluster = "a b", "nowhere", []string{"host", "host:0"}, 0, "c\xff"
	err := c.Validate()
	if !errors.Is(err, fault.ErrConfig) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{`"a b"`, `"nowhere"`, `"host"`, `"host:0"`, "Rejoin", "incarnation", `"c\xff"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is missing in: %v", want, err)
		}
	}
}

func TestRealSocketsOnLoopback(t *testing.T) {
	// Other processes may test the same here, and take a port that a node of this one had.
	cluster := fmt.Sprint(os.Getpid(), "-", time.Now().UnixNano())
	mk := func(node string, join ...string) Config {
		c := config(nil, node, 7, "127.0.0.1:0", join...)
		c.Cluster = cluster
		return c
	}
	a := start(t, mk("a"))
	b := start(t, mk("b", a.Addr()))
	c := start(t, mk("c", a.Addr()))
	for _, p := range []peer{a, b, c} {
		if err := p.WaitJoined(t.Context()); err != nil {
			t.Error(err)
		}
	}
	a.expect(t, "c#7 joined") // who comes and goes before the handler is told is no news
	b.expect(t, "c#7 joined")
	c.expect(t, "b#7 joined")
	if err := c.Send("b", RendezvousOf(&view.Accept{Name: "x", ID: 5}, 7)); err != nil {
		t.Error(err)
	}
	b.until(t, "the message", func() bool { return len(b.msgs) == 1 })
	if err := c.Leave(t.Context()); err != nil {
		t.Error(err)
	}
	closeAll(t, c)
	a.expect(t, "c#7 left")
	b.expect(t, "c#7 left")
	_, err := Start(t.Context(), func() Config { x := mk("d"); x.Bind = a.Addr(); return x }(), newEar())
	if err == nil || !strings.Contains(err.Error(), a.Addr()) {
		t.Errorf("a taken address: %v", err)
	}
	closeAll(t, a, b)
}

func TestWhoListensOnAllInterfacesIsReachedAtOneOfThem(t *testing.T) {
	for _, bind := range []string{":0", "0.0.0.0:0", "[::]:0"} {
		t.Run(bind, func(t *testing.T) {
			cluster := fmt.Sprint(os.Getpid(), "-", time.Now().UnixNano())
			mk := func(node string, join ...string) Config {
				c := config(nil, node, 7, bind, join...)
				c.Cluster = cluster
				return c
			}
			e := newEar()
			g, err := Start(t.Context(), mk("a"), e)
			if err != nil && strings.Contains(err.Error(), "no private IP address") {
				t.Skip("this host has no address to advertise: ", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			a := peer{g, e}
			if ap, err := netip.ParseAddrPort(a.Addr()); err != nil || ap.Addr().IsUnspecified() {
				t.Errorf("others are to reach it at %s", a.Addr())
			}
			b := start(t, mk("b", a.Addr()))
			b.expect(t, "a#7 joined")
			closeAll(t, a, b)
		})
	}
}

func TestANodeOnLoopbackSaysThatASeedElsewhereCannotReachIt(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		const elsewhere = "240.0.0.1:7946" // no host can have it
		for seed, want := range map[string]int{elsewhere: 1, "127.0.0.2:7946": 0} {
			var log journal
			conf := config(memnet.New(), "a", 7, "127.0.0.1:7946", seed)
			conf.Logger = log.logger()
			a := start(t, conf)
			pass(time.Minute)
			closeAll(t, a)
			if got := log.count("level=WARN", "bound to loopback", seed); got != want {
				t.Errorf("joining %s it warns %d times, want %d", seed, got, want)
			}
		}
	})
}
