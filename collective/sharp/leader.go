package sharp

import (
	"cmp"
	"slices"
	"time"
)

// Times of making a tree.
const (
	seekFor   = 100 * time.Millisecond // offers are collected for so long
	answerIn  = 5 * time.Second        // a node's answer, and the ranks' to connect to it
	minRetry  = 100 * time.Millisecond // after a failure, twice as long each time
	maxRetry  = 2 * time.Second
	maxSeek   = 10 * time.Second // where nobody aggregates
	forgiving = 10 * time.Second // a tree that has served for so long is no failure
)

// Leader makes the trees of one rail of a communicator, and sees to it that one that is lost is
// done without on all ranks alike: it is rank 0's.
type Leader struct {
	ranks    int
	state    leaderState
	until    time.Time // when the state ends by itself
	offers   []offer
	avoid    string // the node whose tree was lost last
	node     string
	group    uint64
	since    time.Time // the group was offered
	failures int

	said    []bool // by rank: it has answered in this state
	missing int
	settled uint64 // the highest that a rank has said
}

type offer struct {
	node   string
	groups int
}

type leaderState uint8

const (
	resting leaderState = iota // no tree; another attempt at until
	seeking                    // offers are collected
	asking                     // a node was asked to serve
	opening                    // the ranks connect to it
	serving                    // the table names the group, or is about to
	fencing                    // it was lost; ranks fence it
)

// LeaderActionKind says what a leader wants done.
type LeaderActionKind uint8

// The kinds of action.
const (
	Seek       LeaderActionKind = iota // ask all nodes who aggregates
	Ask                                // ask Node to serve Group
	Open                               // tell all ranks to connect to Node for Group
	Propose                            // have the table name Group, or none if it is 0
	Lose                               // tell all ranks that Group is lost, because of Reason
	Repair                             // tell all ranks to do without Group from fragment From on
	Relinquish                         // tell Node that Group isn't needed any more
)

// LeaderAction is what is to be done.
type LeaderAction struct {
	Kind   LeaderActionKind
	Node   string
	Group  uint64
	From   uint64
	Reason string
}

// NewLeader makes the leader of so many ranks, itself among them.
func NewLeader(ranks int) *Leader { return &Leader{ranks: ranks, said: make([]bool, ranks)} }

// Wake is when Tick has something to do; ok is false if it hasn't.
func (l *Leader) Wake() (at time.Time, ok bool) {
	return l.until, l.state != serving && l.state != fencing
}

// Group is the one that is being made or in use, and the node that aggregates it; 0 if there is
// none.
func (l *Leader) Group() (group uint64, node string) {
	if l.state == resting || l.state == seeking {
		return 0, ""
	}
	return l.group, l.node
}

// Tick goes on at the time that Wake has named. fresh is a random number for a group.
func (l *Leader) Tick(now time.Time, fresh uint64, out []LeaderAction) []LeaderAction {
	if _, ok := l.Wake(); !ok || now.Before(l.until) {
		return out
	}
	switch l.state {
	case resting:
		l.state, l.until, l.offers = seeking, now.Add(seekFor), nil
		return append(out, LeaderAction{Kind: Seek})
	case seeking:
		return l.ask(now, fresh, out)
	case asking:
		return l.rest(now, maxRetry, append(out, LeaderAction{Kind: Relinquish, Node: l.node, Group: l.group}))
	default: // opening
		return l.lose("the ranks did not connect to it in time", out)
	}
}

// Offer says that a node aggregates, for so many groups at present.
func (l *Leader) Offer(node string, groups int) {
	known := slices.ContainsFunc(l.offers, func(o offer) bool { return o.node == node })
	if l.state == seeking && !known {
		l.offers = append(l.offers, offer{node, groups})
	}
}

// ask asks the best of those that have offered themselves: the one with the fewest groups that was
// not lost last.
func (l *Leader) ask(now time.Time, fresh uint64, out []LeaderAction) []LeaderAction {
	if len(l.offers) == 0 {
		return l.rest(now, maxSeek, out)
	}
	lost := func(o offer) int {
		if o.node == l.avoid {
			return 1
		}
		return 0
	}
	slices.SortFunc(l.offers, func(a, b offer) int {
		return cmp.Or(lost(a)-lost(b), a.groups-b.groups, cmp.Compare(a.node, b.node))
	})
	l.node, l.group, l.offers = l.offers[0].node, fresh, l.offers[1:]
	l.state, l.until = asking, now.Add(answerIn)
	return append(out, LeaderAction{Kind: Ask, Node: l.node, Group: l.group})
}

// rest ends an attempt. The next one begins after a while, of at most so long.
func (l *Leader) rest(now time.Time, longest time.Duration, out []LeaderAction) []LeaderAction {
	l.state, l.until = resting, now.Add(min(longest, minRetry<<min(l.failures, 20)))
	l.failures++
	return out
}

// Answer is what a node says to Ask. One that refuses is followed by the next offer.
func (l *Leader) Answer(now time.Time, node string, group uint64, refusal string, fresh uint64,
	out []LeaderAction) []LeaderAction {
	switch {
	case l.state != asking || group != l.group || node != l.node:
		return out
	case refusal != "":
		return l.ask(now, fresh, out)
	}
	l.state, l.until = opening, now.Add(answerIn)
	l.await()
	return append(out, LeaderAction{Kind: Open, Node: l.node, Group: l.group})
}

func (l *Leader) await() {
	clear(l.said)
	l.missing = l.ranks
}

// heard notes a rank's answer, and reports whether it is the last one.
func (l *Leader) heard(rank int) (last bool) {
	if rank < 0 || rank >= l.ranks || l.said[rank] {
		return false
	}
	l.said[rank] = true
	l.missing--
	return l.missing == 0
}

// Ready is what a rank says to Open: it is connected, or what keeps it from that.
func (l *Leader) Ready(now time.Time, rank int, group uint64, obstacle string,
	out []LeaderAction) []LeaderAction {
	if l.state != opening || group != l.group {
		return out
	}
	if obstacle != "" {
		return l.lose(obstacle, out)
	}
	if !l.heard(rank) {
		return out
	}
	l.state, l.since = serving, now
	return append(out, LeaderAction{Kind: Propose, Group: l.group})
}

// lose has all ranks fence the group. One that no table has named yet is no exception: some ranks
// have room for it.
func (l *Leader) lose(reason string, out []LeaderAction) []LeaderAction {
	l.state, l.avoid, l.settled = fencing, l.node, 0
	l.await()
	return append(out, LeaderAction{Kind: Lose, Group: l.group, Reason: reason})
}

// Lost says that the group can't be used any more, as some rank or its node has found.
func (l *Leader) Lost(now time.Time, group uint64, reason string, out []LeaderAction) []LeaderAction {
	switch {
	case group != l.group:
		return out
	case l.state == opening:
		return l.lose(reason, out)
	case l.state != serving:
		return out
	}
	if now.Sub(l.since) >= forgiving {
		l.failures = 0
	}
	return append(l.lose(reason, out), LeaderAction{Kind: Propose})
}

// Fenced is what a rank says to Lose: it takes no more of the group, and knows so many fragments to
// be settled. Once all have, they can go on.
func (l *Leader) Fenced(now time.Time, rank int, group, settled uint64, out []LeaderAction) []LeaderAction {
	if l.state != fencing || group != l.group {
		return out
	}
	if rank >= 0 && rank < l.ranks && !l.said[rank] {
		l.settled = max(l.settled, settled)
	}
	if !l.heard(rank) {
		return out
	}
	return l.rest(now, maxRetry, append(out,
		LeaderAction{Kind: Repair, Group: l.group, From: l.settled},
		LeaderAction{Kind: Relinquish, Node: l.node, Group: l.group}))
}
