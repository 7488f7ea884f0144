package table

import "fmt"

// maxTables bounds the tables that are to take over at a rank which begins no operations, while
// others run ahead of it.
const maxTables = 1024

// Member is one rank's side of the agreement: it numbers the operations, gives each
// its table, and holds new ones back while a table is being agreed on. It is not safe
// for concurrent use.
type Member struct {
	rails int
	next  uint64 // seq of the next operation

	// tables[0] is in force for seq next; the others take over later, in this order. They are few:
	// the Leader looks at most maxLead operations ahead, of ranks that run ahead of this one.
	tables    []activation
	committed uint32 // version of the last of tables
	seen      uint32 // highest version of any Prepare: lower ones are stale

	hold *Prepare // prepared and not yet committed
}

// activation puts a table in force after a seq.
type activation struct {
	after uint64
	table *Table
}

// NewMember starts at seq 1 under a valid table, which must be the same on all ranks.
func NewMember(t *Table) *Member {
	return &Member{
		rails:     len(t.Entries[0].Weights),
		next:      1,
		tables:    []activation{{after: 0, table: t}},
		committed: t.Version,
		seen:      t.Version,
	}
}

// Begin consumes a seq and returns it with its table. ok is false while a hold covers the
// next seq: nothing was consumed, and the caller waits until Prepare or Commit report a release.
func (m *Member) Begin() (seq uint64, t *Table, ok bool) {
	if m.hold != nil && m.next > m.hold.Effective {
		return 0, nil, false
	}
	for len(m.tables) > 1 && m.tables[1].after < m.next {
		m.tables = append(m.tables[:0], m.tables[1:]...)
	}
	seq = m.next
	m.next++
	return seq, m.tables[0].table, true
}

// Next is the seq that Begin hands out next.
func (m *Member) Next() uint64 { return m.next }

// Table is the last committed table; it may be in force only after some more operations.
func (m *Member) Table() *Table { return m.tables[len(m.tables)-1].table }

// Trees are the groups that tables name which operations to come may get.
func (m *Member) Trees() (groups []uint64) {
	for _, a := range m.tables {
		groups = append(groups, a.table.Trees...)
	}
	return groups
}

// Prepare considers a proposal. An error is a violation of the protocol by the Leader, and changes
// nothing.
func (m *Member) Prepare(p *Prepare) (Answer, error) {
	if err := m.check(p); err != nil {
		return Answer{}, err
	}
	answer := Answer{Version: p.Version(), Next: m.next}
	if p.Version() < m.seen || p.Version() <= m.committed {
		return answer, nil
	}
	m.seen = p.Version()
	if m.lacks(p) {
		m.apply(p.Committed, p.CommittedEffective)
	}
	held := m.held()
	m.hold = nil
	answer.Verdict = VerdictTooLate
	if m.next-1 <= p.Effective {
		m.hold = p
		answer.Verdict = VerdictReady
	}
	answer.Released = held && !m.held()
	return answer, nil
}

// Commit puts the prepared table in force after its seq. released: callers that Begin turned
// away may ask again. An error is a violation of the protocol by the Leader, and changes nothing.
func (m *Member) Commit(c Commit) (released bool, err error) {
	switch {
	case c.Version <= m.committed:
		return false, nil // it came along with a later Prepare
	case m.hold == nil || m.hold.Version() != c.Version:
		return false, fmt.Errorf("commit of table version %d, which this rank has not said it is ready for", c.Version)
	case m.hold.Effective != c.Effective:
		return false, fmt.Errorf("commit of table version %d after seq %d, prepared for seq %d",
			c.Version, c.Effective, m.hold.Effective)
	}
	held := m.held()
	m.apply(m.hold.Table, m.hold.Effective)
	m.hold = nil
	return held, nil
}

// check reports what no correct Leader sends.
func (m *Member) check(p *Prepare) error {
	if err := p.Table.Validate(m.rails); err != nil {
		return fmt.Errorf("prepare of table version %d: %w", p.Version(), err)
	}
	if p.Version() <= m.seen {
		return nil
	}
	if len(m.tables) > maxTables {
		return fmt.Errorf("prepare of table version %d, while %d tables are not in force yet",
			p.Version(), len(m.tables)-1)
	}
	if !m.lacks(p) {
		return nil
	}
	if err := p.Committed.Validate(m.rails); err != nil {
		return fmt.Errorf("committed table version %d: %w", p.Committed.Version, err)
	}
	switch {
	case p.Committed.Version >= p.Version():
		return fmt.Errorf("prepare of table version %d after version %d was committed", p.Version(), p.Committed.Version)
	case m.hold == nil || m.hold.Version() != p.Committed.Version || m.hold.Effective != p.CommittedEffective:
		return fmt.Errorf("table version %d was committed after seq %d, which this rank has not said it is ready for",
			p.Committed.Version, p.CommittedEffective)
	case p.Effective < p.CommittedEffective:
		return fmt.Errorf("prepare of table version %d after seq %d, before the committed one (seq %d)",
			p.Version(), p.Effective, p.CommittedEffective)
	}
	return nil
}

func (m *Member) lacks(p *Prepare) bool {
	return p.Committed != nil && p.Committed.Version > m.committed
}

func (m *Member) held() bool { return m.hold != nil && m.next > m.hold.Effective }

func (m *Member) apply(t *Table, after uint64) {
	// A table committed for the same seq as an earlier one was never in force: replaced.
	for last := len(m.tables) - 1; last > 0 && m.tables[last].after >= after; last-- {
		m.tables = m.tables[:last]
	}
	m.tables = append(m.tables, activation{after: after, table: t})
	m.committed = t.Version
}
