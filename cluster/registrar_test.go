package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polyrail/polyrail/cluster/memnet"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/test/bubble"
)

// withStore is a node's configuration that knows nobody but the store.
func withStore(network *memnet.Network, s Store, node string, incarnation uint64, bind string) Config {
	c := config(network, node, incarnation, bind)
	c.Store = s
	return c
}

// startAtOnce starts nodes n1 … nK at the same time.
func startAtOnce(t *testing.T, network *memnet.Network, s Store, k int) []peer {
	t.Helper()
	peers := make([]peer, k)
	var starts sync.WaitGroup
	for i := range peers {
		starts.Go(func() {
			peers[i] = start(t, withStore(network, s, fmt.Sprintf("n%d", i+1), 7,
				fmt.Sprintf("10.0.0.%d:7946", i+1)))
		})
	}
	starts.Wait()
	return peers
}

// expectAll waits until all know all.
func expectAll(t *testing.T, peers []peer) {
	t.Helper()
	for i, p := range peers {
		for j := range peers {
			if i != j {
				p.expect(t, fmt.Sprintf("n%d#7 joined", j+1))
			}
		}
	}
}

func TestNodesThatStartAtOnceFindEachOtherInAnEmptyStore(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		// Each calls before another one has gone on.
		s := &board{together: &sync.WaitGroup{}, calls: 4}
		s.together.Add(s.calls)
		began := time.Now()
		peers := startAtOnce(t, memnet.New(), s, 4)
		expectAll(t, peers)
		// A second look would have been needed.
		if d := time.Since(began); d >= peers[0].cfg.RetryMin {
			t.Errorf("it took %v", d)
		}
		if got := s.processes(); !slices.Equal(got, []string{"n1#7", "n2#7", "n3#7", "n4#7"}) {
			t.Errorf("the store holds %q", got)
		}
		closeAll(t, peers...)
		if got := s.processes(); len(got) != 0 {
			t.Errorf("the closed nodes left %q", got)
		}
	})
}

// A store whose lists lag, as on some shared file systems: all nodes saw it empty.
func TestNodesThatAllSawAnEmptyStoreConverge(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		s := &board{lags: make(chan bool)}
		peers := startAtOnce(t, memnet.New(), s, 4)
		for _, p := range peers {
			if err := p.WaitJoined(t.Context()); err != nil { // it may well be the first one
				t.Error(err)
			}
			if !p.roster.alone() {
				t.Error("found somebody in an empty store")
			}
		}
		pass(10 * time.Second)
		caughtUp := time.Now()
		close(s.lags)
		expectAll(t, peers)
		if d := time.Since(caughtUp); d > peers[0].cfg.RetryMax {
			t.Errorf("it took %v", d)
		}
		closeAll(t, peers...)
	})
}

func TestDeadEntriesAreSkippedAndExpire(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network, s, log := memnet.New(), &board{}, &journal{}
		a := start(t, withStore(network, s, "a", 7, "10.0.0.1:7946"))
		for i := range 20 { // of a cluster that was killed a moment ago; later than a's
			s.pin(Entry{"polyrail", fmt.Sprintf("dead%d", i), 3, fmt.Sprintf("10.0.9.%d:7946", i+1)})
		}
		s.pin(Entry{"polyrail", "b", 6, "10.0.0.2:9999"}) // b's former process
		c := withStore(network, s, "b", 7, "10.0.0.2:7946")
		c.Logger = log.logger()
		b := start(t, c)
		if err := b.WaitJoined(t.Context()); err != nil {
			t.Error(err)
		}
		b.expect(t, "a#7 joined")
		pass(10 * time.Second)
		for _, process := range []string{"dead0#3", "dead19#3", "b#6"} {
			if n := log.count("rendezvous entry skipped", process, "store=board"); n != 1 {
				t.Errorf("%d lines say that the entry of %s is skipped", n, process)
			}
		}
		pass(20 * time.Second)
		if entries, _ := b.registrar.found(); len(entries) != 1 || entries[0].Process() != "a#7" {
			t.Errorf("after all that b sees %v", entries)
		}
		closeAll(t, a, b)
	})
}

func TestANodeAloneWithDeadEntriesIsUpAndIsFound(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network, s, log := memnet.New(), &board{}, &journal{}
		for i := range MaxEntries {
			s.pin(Entry{"polyrail", fmt.Sprintf("dead%d", i), 3, fmt.Sprintf("10.0.9.%d:7946", i)})
		}
		c := withStore(network, s, "a", 7, "10.0.0.1:7946")
		c.Logger = log.logger()
		a := start(t, c)
		if n := log.count("entry skipped"); n != maxHints { // hosts that are gone take their time
			t.Errorf("%d entries were tried before the start was over", n)
		}
		if err := a.WaitJoined(t.Context()); err != nil {
			t.Error(err)
		}
		b := start(t, withStore(network, s, "b", 7, "10.0.0.2:7946"))
		b.expect(t, "a#7 joined")
		closeAll(t, a, b)
	})
}

func TestTheSeekerTriesWhatItHasTakenOnlyOnce(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		s, log := &board{}, &journal{}
		for i := range MaxEntries {
			s.pin(Entry{"polyrail", fmt.Sprintf("dead%d", i), 3, fmt.Sprintf("10.0.9.%d:7946", i)})
		}
		c := withStore(memnet.New(), s, "a", 7, "10.0.0.1:7946")
		c.Logger = log.logger()
		g := newGossip(c, newEar())
		if err := g.listen(ProtocolVersion); err != nil {
			t.Fatal(err)
		}
		if err := g.registrar.round(t.Context()); err != nil { // before the seeker looks
			t.Fatal(err)
		}
		g.run()
		synctest.Wait() // until the seeker pauses
		if n := log.count("entry skipped"); n != maxHints {
			t.Errorf("%d entries were tried before the first pause", n)
		}
		s.pin(Entry{"polyrail", "late", 3, "10.0.8.1:7946"})
		if err := g.registrar.round(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := log.count("entry skipped", "late#3"); n != 1 {
			t.Errorf("a new entry was tried %d times at once", n)
		}
		closeAll(t, peer{g, nil})
	})
}

func TestANodeThatRestartsOnAnotherPortIsFoundAgain(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network, s := memnet.New(), &board{}
		peers := startAtOnce(t, network, s, 3)
		expectAll(t, peers)
		old := Entry{"polyrail", "n3", 7, "10.0.0.3:7946"}
		closeAll(t, peers[2])
		s.pin(old) // it was killed: the entry stays
		again := start(t, withStore(network, s, "n3", 8, "10.0.0.3:9000"))
		for _, p := range peers[:2] {
			p.expect(t, "n3#8 joined")
		}
		again.expect(t, "n1#7 joined")
		again.expect(t, "n2#7 joined")
		pass(20 * time.Second) // the old entry expires, and harms nobody
		if got := nodes(again.Gossip); got != "n1 n2 n3" || again.Err() != nil {
			t.Errorf("members %s, error %v", got, again.Err())
		}
		closeAll(t, peers[0], peers[1], again)
	})
}

func TestTwoClustersInOneStoreDoNotMix(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network, s, log := memnet.New(), &board{}, &journal{}
		var peers []peer
		for i, cluster := range []string{"red", "blue", "red", "blue"} {
			c := withStore(network, s, fmt.Sprintf("n%d", i+1), 7, fmt.Sprintf("10.0.0.%d:7946", i+1))
			c.Cluster, c.Logger = cluster, log.logger()
			peers = append(peers, start(t, c))
		}
		// An entry that lies about its cluster, one at the wrong place, and one that is none.
		s.pin(Entry{"red", "liar", 7, "10.0.0.2:7946"})
		s.pinRaw("red", "stray", Entry{"blue", "stray", 7, "10.0.0.2:7946"}.Encode())
		s.pinRaw("red", "junk", []byte("{"))
		peers[0].expect(t, "n3#7 joined")
		peers[1].expect(t, "n4#7 joined")
		pass(8 * time.Second)
		for i, want := range []string{"n1 n3", "n2 n4", "n1 n3", "n2 n4"} {
			if got := nodes(peers[i].Gossip); got != want {
				t.Errorf("members of n%d: %s", i+1, got)
			}
		}
		if log.count("rendezvous entry skipped", "liar#7") == 0 ||
			log.count("no entry of this cluster", "ignored=2") == 0 {
			t.Errorf("not said:\n%s", log.buf.String())
		}
		closeAll(t, peers...)
	})
}

func TestStartNamesTheStoreThatDoesNotAnswer(t *testing.T) {
	away := errors.New("no route")
	for name, s := range map[string]*board{"refuses": {away: away}, "hangs": {hangs: true}} {
		t.Run(name, func(t *testing.T) {
			bubble.Nodes(t, func(t *testing.T) {
				c := withStore(memnet.New(), s, "a", 7, "10.0.0.1:7946")
				began := time.Now()
				_, err := Start(t.Context(), c, newEar())
				var e *StoreError
				if !errors.As(err, &e) || e.Store != "board" || !errors.Is(err, fault.ErrTimeout) ||
					s.away != nil && !errors.Is(err, away) {
					t.Errorf("got %v", err)
				}
				if d := time.Since(began); d > c.JoinTimeout+3*c.StoreTimeout {
					t.Errorf("after %v", d)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				began = time.Now()
				if _, err = Start(ctx, c, newEar()); !errors.As(err, &e) ||
					!errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
				if d := time.Since(began); d > 3*time.Second {
					t.Errorf("with 3 s of time it took %v", d)
				}
			})
		})
	}
}

func TestANodeLeavesThoughItsStoreHangs(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		s := &board{}
		p := start(t, withStore(memnet.New(), s, "a", 7, "10.0.0.1:7946"))
		s.set(nil, true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_ = p.Leave(ctx)
		closeAll(t, p)
		if d := time.Since(began); d > time.Second {
			t.Errorf("with 1 s of time it took %v", d)
		}
	})
}

func TestStartWaitsForAStoreThatComesLate(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network, s := memnet.New(), &board{away: errors.New("not yet")}
		time.AfterFunc(10*time.Second, func() { s.set(nil, false) })
		began := time.Now()
		peers := startAtOnce(t, network, s, 3)
		if d := time.Since(began); d < 10*time.Second || d > 13*time.Second {
			t.Errorf("started after %v", d)
		}
		expectAll(t, peers)
		closeAll(t, peers...)
	})
}

func TestANodeThatMayOnlyReadJoinsWhomItFinds(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network, s, log := memnet.New(), &board{}, &journal{}
		a := start(t, withStore(network, s, "a", 7, "10.0.0.1:7946"))
		forbidden := errors.New("forbidden")
		reader := &board{sealed: forbidden}
		reader.pin(Entry{"polyrail", "a", 7, "10.0.0.1:7946"})
		c := withStore(network, reader, "b", 7, "10.0.0.2:7946")
		c.Logger = slog.New(slowWarnings{log.logger().Handler()})
		b := start(t, c)
		b.expect(t, "a#7 joined")
		if log.count("cannot be used", "forbidden") != 1 {
			t.Errorf("not said:\n%s", log.buf.String())
		}
		_, err := Start(t.Context(), withStore(network, &board{sealed: forbidden}, "c", 7,
			"10.0.0.3:7946"), newEar())
		if !errors.Is(err, forbidden) {
			t.Errorf("alone, and not to be found: %v", err)
		}
		closeAll(t, a, b)
	})
}

func TestASeedMakesUpForTheStore(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network := memnet.New()
		a := start(t, config(network, "a", 7, seed))
		c := withStore(network, &board{hangs: true}, "b", 7, "10.0.0.2:7946")
		c.Join = []string{seed}
		began := time.Now()
		b := start(t, c)
		if d := time.Since(began); d >= c.StoreTimeout {
			t.Errorf("started after %v", d)
		}
		b.expect(t, "a#7 joined")
		closeAll(t, a, b)
	})
}

func TestAStoreThatGoesAwayHarmsNoMember(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network, s, log := memnet.New(), &board{}, &journal{}
		c := withStore(network, s, "n1", 7, "10.0.0.1:7946")
		c.Logger = log.logger()
		first := start(t, c)
		second := start(t, withStore(network, s, "n2", 7, "10.0.0.2:7946"))
		expectAll(t, []peer{first, second})
		s.set(nil, true)
		pass(time.Minute)
		if entries, _ := first.registrar.found(); len(entries) != 0 {
			t.Errorf("entries that were read a minute ago are still tried: %v", entries)
		}
		if n := log.count("cannot be used", "level=WARN"); n != 1 {
			t.Errorf("%d warnings", n)
		}
		for _, p := range []peer{first, second} {
			if p.heard("n1#7 failed") || p.heard("n2#7 failed") || nodes(p.Gossip) != "n1 n2" {
				t.Errorf("heard %v", p.events)
			}
		}
		s.set(nil, false)
		s.mu.Lock()
		s.notices = nil // it came back empty
		s.mu.Unlock()
		third := start(t, withStore(network, s, "n3", 7, "10.0.0.3:7946"))
		expectAll(t, []peer{first, second, third})
		pass(first.cfg.EntryTTL) // each has asked again
		if log.count("can be used again") != 1 {
			t.Error("its return is not said")
		}
		s.set(nil, true)
		began := time.Now()
		closeAll(t, first, second, third)
		if d := time.Since(began); d > 3*c.StoreTimeout {
			t.Errorf("to close three nodes beside a dead store took %v", d)
		}
	})
}

func TestThePartsOfAPartitionThatForgotEachOtherMeetAgain(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network, s := memnet.New(), &board{}
		network.Partition([]string{"10.0.0.1:7946", "10.0.0.2:7946"},
			[]string{"10.0.0.3:7946", "10.0.0.4:7946"})
		peers := startAtOnce(t, network, s, 4)
		peers[0].expect(t, "n2#7 joined")
		peers[2].expect(t, "n4#7 joined")
		pass(30 * time.Second)
		network.Heal()
		expectAll(t, peers)
		closeAll(t, peers...)
	})
}

func TestEntriesAreRenewedWhileTheNodeLives(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		s := &board{}
		peers := startAtOnce(t, memnet.New(), s, 2)
		expectAll(t, peers)
		before := s.written()
		pass(10 * time.Minute)
		values, err := s.List(t.Context(), "polyrail", peers[0].cfg.EntryTTL)
		if err != nil || len(values) != 2 {
			t.Errorf("%d entries, error %v", len(values), err)
		}
		if n := s.written() - before; n > 2*10*60*3/15+2 {
			t.Errorf("%d writes in ten minutes", n)
		}
		if err := peers[0].Leave(t.Context()); err != nil {
			t.Error(err)
		}
		pass(time.Nanosecond)
		if got := s.processes(); !slices.Equal(got, []string{"n2#7"}) {
			t.Errorf("after n1 left the store holds %q", got)
		}
		closeAll(t, peers...)
	})
}

func TestHintsThatFailedAreTriedLast(t *testing.T) {
	var h hints
	e := func(n string) Entry { return Entry{"c", n, 1, n} }
	all := []Entry{e("a"), e("b"), e("c"), e("d")}
	skip := func(addr string) bool { return addr == "c" }
	if got := h.pick(all, skip); !slices.Equal(got, []Entry{e("a"), e("b"), e("d")}) {
		t.Errorf("got %v", got)
	}
	h.failed["a"], h.failed["b"] = time.Unix(2, 0), time.Unix(1, 0)
	if got := h.pick(all, skip); !slices.Equal(got, []Entry{e("d"), e("b"), e("a")}) {
		t.Errorf("got %v", got)
	}
	if h.pick(all[:1], skip); len(h.failed) != 1 {
		t.Errorf("remembers %v", h.failed)
	}
}
