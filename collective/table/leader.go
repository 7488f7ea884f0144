package table

import (
	"fmt"
	"slices"
)

// How far ahead of rank 0's next operation a table takes over, in operations: far enough
// that Prepare overtakes the fastest rank, near enough that the new table is used soon.
const (
	minLead = 2
	maxLead = 1024
)

// maxSeq is far beyond what a communicator's operations reach. Above it a seq that a rank names is
// refused: what is added to it must not overflow.
const maxSeq = 1 << 62

// Leader is rank 0's side of the agreement: one proposal at a time, at most one waiting
// behind it. It is not safe for concurrent use, and shares its caller's lock with the Member.
//
// The actions that a method returns are to be sent to every rank, rank 0's own Member
// included, in their order.
type Leader struct {
	member *Member // of rank 0
	ranks  int
	lead   uint64

	version uint32 // highest ever given
	tickets uint64 // proposals so far

	open    *proposal // being agreed on
	waiting *proposal // follows it

	committed          *Table // nil: still the one that the communicator began with
	committedEffective uint64
	fastest            uint64 // highest next seq that a rank was too late with, or has closed before
	departed           []bool // by rank: it has closed, and answers no more
}

type proposal struct {
	ticket  uint64
	table   *Table
	prepare *Prepare // what was sent last
	ready   []bool   // by rank
	missing int      // ranks that have not said that they are ready
}

// NewLeader is the leader of that many ranks, beside rank 0's own Member.
func NewLeader(ranks int, member *Member) *Leader {
	return &Leader{member: member, ranks: ranks, lead: minLead, version: member.Table().Version,
		departed: make([]bool, ranks)}
}

// Propose starts the agreement on a table; its Version is ignored. While another proposal is open
// it waits, and replaces one that waits already: the later table is the one that counts. The
// Commit action whose Ticket is at least the returned one says that it is done.
func (l *Leader) Propose(t *Table) (ticket uint64, actions []Action, err error) {
	if err := t.Validate(l.member.rails); err != nil {
		return 0, nil, fmt.Errorf("proposed table: %w", err)
	}
	l.tickets++
	l.waiting = &proposal{ticket: l.tickets, table: t.Clone()}
	return l.tickets, l.advance(), nil
}

// Pending reports whether a proposal is open.
func (l *Leader) Pending() bool { return l.open != nil }

// Ready takes a rank's answer. An answer to a version that was replaced is ignored.
func (l *Leader) Ready(rank int, version uint32) ([]Action, error) {
	p, err := l.answered(rank, version)
	if p == nil || p.ready[rank] {
		return nil, err
	}
	p.ready[rank] = true
	p.missing--
	if p.missing > 0 {
		return nil, nil
	}
	l.open = nil
	l.committed, l.committedEffective = p.prepare.Table, p.prepare.Effective
	l.lead = max(l.lead/2, minLead)
	commit := &Commit{Version: version, Effective: p.prepare.Effective}
	return append([]Action{{Commit: commit, Ticket: p.ticket}}, l.advance()...), nil
}

// TooLate takes a rank's answer: it had gone past the proposal, and next is its next seq.
// The proposal is made again, further ahead, under a higher version.
func (l *Leader) TooLate(rank int, version uint32, next uint64) ([]Action, error) {
	p, err := l.answered(rank, version)
	if p == nil {
		return nil, err
	}
	if next > maxSeq {
		return nil, fmt.Errorf("rank %d says that seq %d is its next", rank, next)
	}
	l.fastest = max(l.fastest, next)
	l.lead = min(2*l.lead, maxLead)
	if l.waiting == nil {
		l.waiting = p
	}
	l.open = nil
	return l.advance(), nil
}

// Departed notes that a rank begins nothing after seq last. Nobody waits for its answers any more: it
// is too late for an open proposal that it has gone past, and ready for every other one.
func (l *Leader) Departed(rank int, last uint64) ([]Action, error) {
	if last >= maxSeq {
		return nil, fmt.Errorf("rank %d says that seq %d was its last", rank, last)
	}
	l.departed[rank] = true
	l.fastest = max(l.fastest, last+1)
	if l.open == nil {
		return nil, nil
	}
	p := l.open.prepare
	if last > p.Effective {
		return l.TooLate(rank, p.Version(), last+1)
	}
	return l.Ready(rank, p.Version())
}

// answered is the open proposal, if that is what the rank answered.
func (l *Leader) answered(rank int, version uint32) (*proposal, error) {
	if rank < 0 || rank >= l.ranks {
		return nil, fmt.Errorf("answer to table version %d from rank %d of %d", version, rank, l.ranks)
	}
	if version > l.version {
		return nil, fmt.Errorf("rank %d answered table version %d, the highest proposed is %d", rank, version, l.version)
	}
	if l.open == nil || l.open.prepare.Version() != version {
		return nil, nil
	}
	return l.open, nil
}

// advance opens the waiting proposal, if there is one and nothing else is open.
func (l *Leader) advance() []Action {
	if l.open != nil || l.waiting == nil {
		return nil
	}
	p := l.waiting
	l.open, l.waiting = p, nil
	l.version++
	// The version goes into a copy: an earlier Prepare of the same proposal is still on its way.
	t := *p.table
	t.Version = l.version
	last := max(l.member.Next(), l.fastest) - 1
	p.prepare = &Prepare{
		Table: &t,
		// Tables take over in the order of their versions, never before the committed one.
		Effective:          max(last+l.lead, l.committedEffective),
		Committed:          l.committed,
		CommittedEffective: l.committedEffective,
	}
	p.ready, p.missing = slices.Clone(l.departed), l.ranks
	for _, gone := range l.departed {
		if gone {
			p.missing--
		}
	}
	return []Action{{Prepare: p.prepare}}
}
