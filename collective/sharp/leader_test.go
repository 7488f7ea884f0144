package sharp

import (
	"slices"
	"testing"
	"time"
)

// leaderBed steps a leader of three ranks through time.
type leaderBed struct {
	t     *testing.T
	l     *Leader
	now   time.Time
	fresh uint64
}

func newLeaderBed(t *testing.T) *leaderBed {
	return &leaderBed{t: t, l: NewLeader(sites("", "", ""), 0), now: time.Unix(1000, 0), fresh: 100}
}

// wake lets the leader go on at the time that it has named.
func (b *leaderBed) wake() []LeaderAction {
	b.t.Helper()
	at, ok := b.l.Wake()
	if !ok {
		b.t.Fatal("it waits for no time")
	}
	if at.After(b.now) {
		if early := b.l.Tick(at.Add(-1), b.fresh, nil); len(early) > 0 {
			b.t.Fatalf("%+v before its time", early)
		}
		b.now = at
	}
	b.fresh++
	return b.l.Tick(b.now, b.fresh, nil)
}

func (b *leaderBed) expect(got []LeaderAction, want ...LeaderAction) {
	b.t.Helper()
	if !slices.Equal(got, want) {
		b.t.Fatalf("actions %+v, want %+v", got, want)
	}
}

// serve brings a tree of a node up, and returns its group.
func (b *leaderBed) serve(node string) uint64 {
	b.t.Helper()
	b.expect(b.wake(), LeaderAction{Kind: Seek})
	b.l.Offer(Offer{Site{node, ""}, 0})
	b.expect(b.wake(), LeaderAction{Kind: Ask, Node: node, Group: b.fresh})
	group := b.fresh
	b.expect(b.l.Answer(b.now, node, group, "", 0, nil), LeaderAction{Kind: Open, Group: group})
	for rank := range 2 {
		b.expect(b.l.Ready(b.now, rank, group, "", nil))
		b.expect(b.l.Ready(b.now, rank, group, "", nil)) // said twice
	}
	b.expect(b.l.Ready(b.now, 2, group, "", nil), LeaderAction{Kind: Propose, Group: group})
	if g, n := b.l.Group(); g != group || len(n) != 1 || n[0].Node != node || b.l.state != serving {
		b.t.Fatalf("group %d of %v, serving %v", g, n, b.l.state == serving)
	}
	return group
}

func TestALeaderTakesTheNodeWithTheFewestGroups(t *testing.T) {
	b := newLeaderBed(t)
	b.expect(b.wake(), LeaderAction{Kind: Seek})
	b.l.Offer(Offer{Site{"b", ""}, 2})
	b.l.Offer(Offer{Site{"c", ""}, 1})
	b.l.Offer(Offer{Site{"a", ""}, 1})
	b.l.Offer(Offer{Site{"a", ""}, 0}) // said before
	b.expect(b.wake(), LeaderAction{Kind: Ask, Node: "a", Group: b.fresh})
	b.expect(b.l.Answer(b.now, "b", b.fresh, "", 1, nil))             // not asked
	b.expect(b.l.Answer(b.now, "a", b.fresh+1, "", 1, nil))           // another group
	b.expect(b.l.Answer(b.now, "a", b.fresh, "full", b.fresh+1, nil), // the next one is asked
		LeaderAction{Kind: Ask, Node: "c", Group: b.fresh + 1})
	b.fresh++
	b.expect(b.l.Answer(b.now, "c", b.fresh, "full", b.fresh+1, nil),
		LeaderAction{Kind: Ask, Node: "b", Group: b.fresh + 1})
	b.fresh++
	b.expect(b.l.Answer(b.now, "b", b.fresh, "full", 1, nil)) // nobody is left
	b.expect(b.wake(), LeaderAction{Kind: Seek})
}

// All nodes of a tree serve it, or none does.
func TestALeaderAsksAllNodesOfATree(t *testing.T) {
	b := newLeaderBed(t)
	b.l = NewLeader(sites("a", "a", "b", "b"), 0)
	ask := func(node string) LeaderAction { return LeaderAction{Kind: Ask, Node: node, Group: b.fresh} }
	release := func(node string) LeaderAction { return LeaderAction{Kind: Relinquish, Node: node, Group: b.fresh} }
	b.expect(b.wake(), LeaderAction{Kind: Seek})
	for _, o := range offers("top", "A@a", "B@b") {
		b.l.Offer(o)
	}
	b.expect(b.wake(), ask("top"), ask("B"), ask("A"))
	b.expect(b.l.Answer(b.now, "A", b.fresh, "", 1, nil))
	b.expect(b.l.Answer(b.now, "A", b.fresh, "", 1, nil)) // said twice
	got := b.l.Answer(b.now, "B", b.fresh, "full", b.fresh+1, nil)
	let := []LeaderAction{release("top"), release("A")}
	b.fresh++
	b.expect(got, append(let, ask("top"), ask("A"))...)
	b.expect(b.l.Answer(b.now, "A", b.fresh, "", 1, nil))
	b.expect(b.l.Answer(b.now, "top", b.fresh, "", 1, nil), LeaderAction{Kind: Open, Group: b.fresh})
	if _, l := b.l.Group(); l.String() != "top(A(0 1) 2 3)" {
		t.Errorf("the tree is %s", l.String())
	}
	b.expect(b.l.Lost(b.now, b.fresh, "gone", nil), LeaderAction{Kind: Lose, Group: b.fresh, Reason: "gone"})
	for rank := range 3 {
		b.expect(b.l.Fenced(b.now, rank, b.fresh, 0, nil))
	}
	b.expect(b.l.Fenced(b.now, 3, b.fresh, 0, nil), LeaderAction{Kind: Repair, Group: b.fresh}, release("top"),
		release("A"))
}

func TestALeaderAsksLessAndLessOftenWhereNobodyServes(t *testing.T) {
	for name, refuses := range map[string]bool{"nobody aggregates": false, "the only node refuses": true} {
		t.Run(name, func(t *testing.T) {
			b := newLeaderBed(t)
			last, longest := b.now, time.Duration(0)
			for range 30 {
				b.expect(b.wake(), LeaderAction{Kind: Seek})
				pause := b.now.Sub(last)
				if pause < longest || pause > maxSeek+seekFor {
					t.Fatalf("a pause of %v after one of %v", pause, longest)
				}
				last, longest = b.now, pause
				if refuses {
					b.l.Offer(Offer{Site{"a", ""}, 0})
					b.expect(b.wake(), LeaderAction{Kind: Ask, Node: "a", Group: b.fresh})
					b.expect(b.l.Answer(b.now, "a", b.fresh, "full", 1, nil))
				} else {
					b.expect(b.wake())
				}
			}
			if longest < maxSeek {
				t.Errorf("it asks every %v", longest)
			}
		})
	}
}

func TestALeaderGivesUpWhoDoesNotAnswer(t *testing.T) {
	b := newLeaderBed(t)
	b.expect(b.wake(), LeaderAction{Kind: Seek})
	b.l.Offer(Offer{Site{"a", ""}, 0})
	b.expect(b.wake(), LeaderAction{Kind: Ask, Node: "a", Group: b.fresh})
	group := b.fresh
	b.expect(b.wake(), LeaderAction{Kind: Relinquish, Node: "a", Group: group})
	b.expect(b.l.Answer(b.now, "a", group, "", 1, nil)) // too late
	for _, next := range []string{"b", "c", "a", "b"} { // else it would ask a for ever
		b.expect(b.wake(), LeaderAction{Kind: Seek})
		b.l.Offer(Offer{Site{"a", ""}, 0})
		b.l.Offer(Offer{Site{"b", ""}, 5})
		b.l.Offer(Offer{Site{"c", ""}, 6})
		b.expect(b.wake(), LeaderAction{Kind: Ask, Node: next, Group: b.fresh})
		b.expect(b.wake(), LeaderAction{Kind: Relinquish, Node: next, Group: b.fresh - 1})
	}
}

// Ranks that can't all connect have no tree, and none of them keeps what it has of it.
func TestALeaderGivesUpWhatARankCannotReach(t *testing.T) {
	for _, end := range []string{"obstacle", "loss", "silence"} {
		b := newLeaderBed(t)
		b.expect(b.wake(), LeaderAction{Kind: Seek})
		b.l.Offer(Offer{Site{"a", ""}, 0})
		b.wake()
		group := b.fresh
		b.l.Answer(b.now, "a", group, "", 0, nil)
		b.expect(b.l.Ready(b.now, 0, group, "", nil))
		var got []LeaderAction
		reason := "no route"
		switch end {
		case "obstacle":
			got = b.l.Ready(b.now, 1, group, reason, nil)
		case "loss":
			got = b.l.Lost(b.now, group, reason, nil)
		case "silence":
			got, reason = b.wake(), "the ranks did not connect to it in time"
		}
		b.expect(got, LeaderAction{Kind: Lose, Group: group, Reason: reason})
		b.expect(b.l.Fenced(b.now, 0, group, 0, nil))
		b.expect(b.l.Fenced(b.now, 1, group, 0, nil))
		b.expect(b.l.Fenced(b.now, 2, group, 0, nil), LeaderAction{Kind: Repair, Group: group},
			LeaderAction{Kind: Relinquish, Node: "a", Group: group})
		b.expect(b.wake(), LeaderAction{Kind: Seek})
	}
}

// A tree that is lost is repaired from the highest number that a rank knows to be settled, once all
// have fenced it; another node is preferred then.
func TestALeaderRepairsWhatIsLost(t *testing.T) {
	b := newLeaderBed(t)
	group := b.serve("a")
	if _, ok := b.l.Wake(); ok {
		t.Error("a tree that serves has a time")
	}
	b.expect(b.l.Lost(b.now, group+1, "another", nil))
	b.expect(b.l.Lost(b.now, group, "gone", nil), LeaderAction{Kind: Lose, Group: group, Reason: "gone"},
		LeaderAction{Kind: Propose})
	b.expect(b.l.Lost(b.now, group, "gone", nil)) // as another rank has found
	b.expect(b.l.Fenced(b.now, 2, group, 7, nil))
	b.expect(b.l.Fenced(b.now, 2, group, 99, nil)) // said before
	b.expect(b.l.Fenced(b.now, 5, group, 99, nil)) // no rank
	b.expect(b.l.Fenced(b.now, 0, group, 9, nil))
	b.expect(b.l.Fenced(b.now, 1, group, 8, nil), LeaderAction{Kind: Repair, Group: group, From: 9},
		LeaderAction{Kind: Relinquish, Node: "a", Group: group})
	b.expect(b.wake(), LeaderAction{Kind: Seek})
	b.l.Offer(Offer{Site{"a", ""}, 0})
	b.l.Offer(Offer{Site{"b", ""}, 5})
	b.expect(b.wake(), LeaderAction{Kind: Ask, Node: "b", Group: b.fresh})
}

// A node that is lost again and again is asked less and less often; one that has served for long,
// at once.
func TestALeaderForgivesWhoHasServed(t *testing.T) {
	lose := func(b *leaderBed, served time.Duration) (pause time.Duration) {
		group := b.serve("a")
		b.now = b.now.Add(served)
		b.l.Lost(b.now, group, "gone", nil)
		for rank := range 3 {
			b.l.Fenced(b.now, rank, group, 0, nil)
		}
		at, _ := b.l.Wake()
		return at.Sub(b.now)
	}
	b := newLeaderBed(t)
	first := lose(b, 0)
	var last time.Duration
	for range 4 {
		last = lose(b, 0)
	}
	if last < 8*first {
		t.Errorf("after five losses it waits %v, after one %v", last, first)
	}
	if again := lose(b, forgiving); again > first {
		t.Errorf("after %v of service it waits %v", forgiving, again)
	}
}

// A tree whose nodes failed again and again is no reason to leave a moment without offers for long.
func TestALeaderSeeksAgainSoonWhereTheLastSeekFoundNobody(t *testing.T) {
	b := newLeaderBed(t)
	b.l.failures = 20
	b.expect(b.wake(), LeaderAction{Kind: Seek})
	b.expect(b.wake())
	last := b.now
	b.expect(b.wake(), LeaderAction{Kind: Seek})
	if pause := b.now.Sub(last); pause > minRetry {
		t.Errorf("it seeks again after %v", pause)
	}
}
