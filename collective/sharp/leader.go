package sharp

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Times of making a tree.
const (
	seekFor   = 100 * time.Millisecond // offers are collected for so long
	answerIn  = 5 * time.Second        // a node's answer, and the ranks' to connect to it
	minRetry  = 100 * time.Millisecond // after a failure, twice as long each time
	maxRetry  = time.Second            // so a tree whose node fails again and again is back within 2 s
	maxSeek   = 10 * time.Second       // where nobody aggregates, or all refuse
	forgiving = 10 * time.Second       // a tree that has served for so long is no failure
)

// Leader makes the trees of one rail of a communicator, and sees to it that one that is lost is
// done without on all ranks alike: it is rank 0's.
type Leader struct {
	ranks    []Site
	radix    int
	state    leaderState
	until    time.Time // when the state ends by itself
	offers   []Offer
	mishaps  int            // trees that failed, ever
	avoid    map[string]int // nodes by which one failed: the last one's number
	layout   Layout
	group    uint64
	since    time.Time // the group was offered
	failures int
	unserved int // attempts in a row for which nobody served

	said    []bool // by rank, or by node of the layout: it has answered in this state
	missing int
	settled uint64 // the highest that a rank has said
	left    []int  // ranks that have closed the communicator
}

type leaderState uint8

const (
	resting leaderState = iota // no tree; another attempt at until
	seeking                    // offers are collected
	asking                     // nodes were asked to serve
	opening                    // the ranks connect to them
	serving                    // the table names the group, or is about to
	fencing                    // it was lost; ranks fence it
)

// LeaderActionKind says what a leader wants done.
type LeaderActionKind uint8

// The kinds of action.
const (
	Seek       LeaderActionKind = iota // ask all nodes who aggregates
	Ask                                // ask Node to serve Group
	Open                               // tell all ranks to connect to their nodes for Group
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

// NewLeader makes the leader of all ranks, itself among them. A tree's nodes have at most radix
// children where there are nodes enough; 0: as many as there are.
func NewLeader(ranks []Site, radix int) *Leader {
	return &Leader{ranks: ranks, radix: radix, avoid: map[string]int{}}
}

// Wake is when Tick has something to do; ok is false if it hasn't. Where a rank has left nobody needs
// another tree.
func (l *Leader) Wake() (at time.Time, ok bool) {
	return l.until, l.state != serving && l.state != fencing && (l.state != resting || len(l.left) == 0)
}

// Group is the one that is being made or in use, and its tree; 0 if there is none.
func (l *Leader) Group() (group uint64, layout Layout) {
	if l.state == resting || l.state == seeking {
		return 0, nil
	}
	return l.group, l.layout
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
		l.failed(func(node int) bool { return !l.said[node] })
		return l.rest(now, l.relinquish(out))
	default: // opening
		return l.lose("the ranks did not connect to it in time", out)
	}
}

// Offer says that a node aggregates.
func (l *Leader) Offer(o Offer) {
	known := slices.ContainsFunc(l.offers, func(x Offer) bool { return x.Node == o.Node })
	if l.state == seeking && !known {
		l.offers = append(l.offers, o)
	}
}

// ask lays a tree over the ranks, by those that have offered themselves: first by those by which no
// tree has failed, or the longest ago, and of these by the ones with the fewest groups. It asks all.
func (l *Leader) ask(now time.Time, fresh uint64, out []LeaderAction) []LeaderAction {
	maps.DeleteFunc(l.avoid, func(node string, _ int) bool {
		return !slices.ContainsFunc(l.offers, func(o Offer) bool { return o.Node == node })
	})
	slices.SortFunc(l.offers, func(a, b Offer) int {
		return cmp.Or(l.avoid[a.Node]-l.avoid[b.Node], a.Groups-b.Groups, cmp.Compare(a.Node, b.Node))
	})
	l.group, l.layout = fresh, Arrange(l.ranks, l.offers, l.radix)
	if len(l.layout) == 0 { // which says nothing of a tree that was lost before: others may offer soon
		l.state, l.until = resting, now.Add(min(maxSeek, minRetry<<min(l.unserved, 20)))
		l.unserved++
		return out
	}
	l.state, l.until = asking, now.Add(answerIn)
	l.await(len(l.layout))
	for _, j := range l.layout {
		out = append(out, LeaderAction{Kind: Ask, Node: j.Node, Group: l.group})
	}
	return out
}

// failed has nodes of the layout be the last choice from now on.
func (l *Leader) failed(by func(node int) bool) {
	l.mishaps++
	for i, j := range l.layout {
		if by(i) {
			l.avoid[j.Node] = l.mishaps
		}
	}
}

// relinquish lets go of the tree's nodes.
func (l *Leader) relinquish(out []LeaderAction) []LeaderAction {
	for _, j := range l.layout {
		out = append(out, LeaderAction{Kind: Relinquish, Node: j.Node, Group: l.group})
	}
	return out
}

// rest ends an attempt. The next one begins after a while.
func (l *Leader) rest(now time.Time, out []LeaderAction) []LeaderAction {
	l.state, l.until = resting, now.Add(min(maxRetry, minRetry<<min(l.failures, 20)))
	l.failures++
	return out
}

// Answer is what a node says to Ask. Where one refuses the others are let go, and a tree without it
// is tried.
func (l *Leader) Answer(now time.Time, node string, group uint64, refusal string, fresh uint64,
	out []LeaderAction) []LeaderAction {
	if l.state != asking || group != l.group {
		return out
	}
	i := slices.IndexFunc(l.layout, func(j Junction) bool { return j.Node == node })
	switch {
	case i < 0:
		return out
	case refusal != "":
		l.layout = slices.Delete(l.layout, i, i+1)
		out = l.relinquish(out)
		l.offers = slices.DeleteFunc(l.offers, func(o Offer) bool { return o.Node == node })
		return l.ask(now, fresh, out)
	case !l.heard(i):
		return out
	}
	l.unserved = 0
	l.state, l.until = opening, now.Add(answerIn)
	l.await(len(l.ranks))
	return append(out, LeaderAction{Kind: Open, Group: l.group})
}

// await begins to count so many answers.
func (l *Leader) await(answers int) {
	l.said, l.missing = make([]bool, answers), answers
}

// heard notes an answer of a rank or a node, and reports whether it is the last one.
func (l *Leader) heard(from int) (last bool) {
	if from < 0 || from >= len(l.said) || l.said[from] {
		return false
	}
	l.said[from] = true
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
	l.state, l.settled = fencing, 0
	l.failed(func(int) bool { return true })
	l.await(len(l.ranks))
	for _, rank := range l.left {
		l.heard(rank)
	}
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
	if rank >= 0 && rank < len(l.said) && !l.said[rank] {
		l.settled = max(l.settled, settled)
	}
	if !l.heard(rank) {
		return out
	}
	return l.rest(now, l.relinquish(append(out,
		LeaderAction{Kind: Repair, Group: l.group, From: l.settled})))
}

// Left says that a rank has closed the communicator, and how many fragments the leader's rank knows to
// be settled by that. It answers nothing any more, and holds nothing of a group that is fenced.
func (l *Leader) Left(now time.Time, rank int, settled uint64, out []LeaderAction) []LeaderAction {
	l.left = append(l.left, rank)
	return l.Fenced(now, rank, l.group, settled, out)
}
