package table

import (
	"testing"

	"pgregory.net/rapid"
)

// group is n ranks whose messages arrive in any order: the world of the property test.
type group struct {
	t        *rapid.T
	members  []*Member
	leader   *Leader
	closed   []bool // by rank
	inFlight uint64 // operations that a rank may be ahead of the slowest one
	versions []uint32
	mail     []func() // each delivers one message
	done     uint64   // highest ticket committed
}

func newGroup(t *rapid.T) *group {
	g := &group{t: t, inFlight: rapid.SampledFrom([]uint64{1, 3, 8, 8}).Draw(t, "inFlight")}
	start := weights(1)
	for range rapid.SampledFrom([]int{1, 2, 3, 6}).Draw(t, "ranks") {
		g.members = append(g.members, NewMember(start))
	}
	g.leader = NewLeader(len(g.members), g.members[0])
	g.closed = make([]bool, len(g.members))
	return g
}

func (g *group) send(actions []Action, err error) {
	if err != nil {
		g.t.Fatalf("leader: %v", err)
	}
	for _, a := range actions {
		g.done = max(g.done, a.Ticket)
		for rank := range g.members {
			g.mail = append(g.mail, func() { g.receive(rank, a) })
		}
	}
}

// depart closes a rank: it takes no more messages, and rank 0 is told its last seq.
func (g *group) depart(rank int) {
	if g.closed[rank] {
		return
	}
	g.closed[rank] = true
	last := g.members[rank].Next() - 1
	g.mail = append(g.mail, func() { g.send(g.leader.Departed(rank, last)) })
}

func (g *group) receive(rank int, a Action) {
	if g.closed[rank] {
		return
	}
	if a.Commit != nil {
		if _, err := g.members[rank].Commit(*a.Commit); err != nil {
			g.t.Fatalf("rank %d: %v", rank, err)
		}
		return
	}
	answer, err := g.members[rank].Prepare(a.Prepare)
	if err != nil {
		g.t.Fatalf("rank %d: %v", rank, err)
	}
	switch answer.Verdict {
	case VerdictReady:
		g.mail = append(g.mail, func() { g.send(g.leader.Ready(rank, answer.Version)) })
	case VerdictTooLate:
		g.mail = append(g.mail, func() { g.send(g.leader.TooLate(rank, answer.Version, answer.Next)) })
	}
}

func (g *group) deliver(i int) {
	m := g.mail[i]
	g.mail = append(g.mail[:i], g.mail[i+1:]...)
	m()
}

// begin lets a rank call its next operation, if no other rank is too far behind, and
// checks that the operation runs under the same table everywhere.
func (g *group) begin(rank int) bool {
	slowest := g.members[rank].Next()
	for i, m := range g.members {
		if !g.closed[i] {
			slowest = min(slowest, m.Next())
		}
	}
	if g.closed[rank] || g.members[rank].Next() >= slowest+g.inFlight {
		return false
	}
	seq, t, ok := g.members[rank].Begin()
	if !ok {
		return false
	}
	if seq > uint64(len(g.versions)) {
		g.versions = append(g.versions, t.Version)
	}
	if want := g.versions[seq-1]; t.Version != want {
		g.t.Fatalf("rank %d runs seq %d under table %d, another rank under %d", rank, seq, t.Version, want)
	}
	return true
}

func TestNoRankRunsASeqUnderAnotherTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGroup(t)
		var proposed uint64
		for range rapid.SampledFrom([]int{10, 50, 500}).Draw(t, "steps") {
			rank := g.any("rank")
			event := rapid.SampledFrom([]string{"begin", "begin", "begin", "begin", "deliver", "deliver",
				"deliver", "deliver", "propose", "propose", "propose", "depart"}).Draw(t, "event")
			switch {
			case event == "propose":
				ticket, actions, err := g.leader.Propose(weights(uint32(proposed + 2)))
				if ticket != proposed+1 {
					t.Fatalf("ticket %d follows %d", ticket, proposed)
				}
				proposed = ticket
				g.send(actions, err)
			case event == "depart" && rank > 0:
				g.depart(rank)
			case event == "deliver" && len(g.mail) > 0:
				g.deliver(rapid.IntRange(0, len(g.mail)-1).Draw(t, "message"))
			default: // often as many as the others allow: what is too late comes of it
				for range rapid.SampledFrom([]int{1, 1, 8}).Draw(t, "operations") {
					g.begin(rank)
				}
			}
		}
		g.settle(proposed)
	})
}

// any is a rank, each as often. Numbers that rapid draws from a range are mostly small: with them
// rank 0 would be ahead of the others.
func (g *group) any(label string) int {
	return rapid.SampledFrom([]int{0, 1, 2, 3, 4, 5}[:len(g.members)]).Draw(g.t, label)
}

// settle delivers what is under way and then lets every rank reach one seq: whatever
// happened before, nothing may be stuck.
func (g *group) settle(proposed uint64) {
	for len(g.mail) > 0 {
		g.deliver(0)
	}
	if g.done != proposed || g.leader.Pending() {
		g.t.Fatalf("proposal %d is the last one committed, %d were made", g.done, proposed)
	}
	goal := max(g.leader.committedEffective, uint64(len(g.versions))) + 2
	for began := true; began; {
		began = false
		for rank, m := range g.members {
			if m.Next() <= goal {
				began = g.begin(rank) || began
			}
		}
	}
	for rank, m := range g.members {
		if g.closed[rank] {
			continue
		}
		if m.Table() != g.members[0].Table() {
			g.t.Fatalf("rank %d ends with table %d, rank 0 with %d", rank, m.Table().Version, g.members[0].Table().Version)
		}
		if m.hold != nil {
			g.t.Fatalf("rank %d still holds for version %d", rank, m.hold.Version())
		}
		if m.Next() != goal+1 {
			g.t.Fatalf("rank %d is stuck at seq %d", rank, m.Next())
		}
		if len(m.tables) != 1 {
			g.t.Fatalf("rank %d keeps %d tables", rank, len(m.tables))
		}
	}
}
