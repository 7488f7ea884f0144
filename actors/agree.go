package actors

import (
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/messages"
	"time"
)

// tableSwitched tells rank 0's balancer which table's windows count from now on.
type tableSwitched uint32

// agree feeds the table's agreement with another rank's message (DESIGN §4.1).
func (c *coordinator) agree(ctx actor.Context, m *controlMessage) {
	var actions []table.Action
	var err error
	switch b := m.body.GetBody().(type) {
	case *messages.Control_Prepare:
		err = c.prepare(ctx, m.from, preparedOf(b.Prepare))
	case *messages.Control_Commit:
		err = c.commit(ctx, table.Commit{Version: b.Commit.GetVersion(), Effective: b.Commit.GetEffective()})
	case *messages.Control_Ready:
		if c.leader != nil {
			actions, err = c.leader.Ready(int(m.from), b.Ready.GetVersion())
		}
	case *messages.Control_TooLate:
		if c.leader != nil {
			actions, err = c.leader.TooLate(int(m.from), b.TooLate.GetVersion(), b.TooLate.GetNext())
		}
	}
	if err != nil {
		c.group.node.breakGroup(c.group, fmt.Errorf("table agreement with rank %d (node %q): %w", m.from, c.group.nodes[m.from], err), c.member.Next(), true)
		return
	}
	c.publish(ctx, actions)
}

// propose starts the agreement on a table of rank 0's.
func (c *coordinator) propose(ctx actor.Context, m *proposeTable) {
	if m.balanced && c.pinned {
		m.done <- nil
		return
	}
	if c.leader == nil {
		m.done <- fmt.Errorf("communicator %q: rank 0 (node %q) decides the table, this is rank %d", c.group.name, c.group.nodes[0], c.group.rank)
		return
	}
	if err := c.group.usable(); err != nil {
		m.done <- err
		return
	}
	ticket, actions, err := c.leader.Propose(&table.Table{Entries: m.entries})
	if err != nil {
		m.done <- err
		return
	}
	if !m.balanced && !c.pinned {
		c.pinned = true
		c.group.node.tell(c.balancer, tablePinned{})
	}
	c.waiting, c.tickets = append(c.waiting, m), append(c.tickets, ticket)
	c.publish(ctx, actions)
}

// publish sends what the leader decided to every rank, our own included.
func (c *coordinator) publish(ctx actor.Context, actions []table.Action) {
	for _, a := range actions {
		message := &messages.Control{}
		if a.Prepare != nil {
			message.Body = &messages.Control_Prepare{Prepare: prepareMessage(a.Prepare)}
		} else {
			message.Body = &messages.Control_Commit{Commit: &messages.Commit{Version: a.Commit.Version, Effective: a.Commit.Effective}}
		}
		c.group.controlAll(message)
		var err error
		if a.Prepare != nil {
			err = c.prepare(ctx, c.group.rank, a.Prepare)
		} else if err = c.commit(ctx, *a.Commit); err == nil {
			c.done(a.Ticket)
		}
		if err != nil {
			c.group.node.breakGroup(c.group, fmt.Errorf("table agreement: %w", err), c.member.Next(), true)
		}
	}
}

// prepare answers rank 0.
func (c *coordinator) prepare(ctx actor.Context, from op.Rank, p *table.Prepare) error {
	answer, err := c.member.Prepare(p)
	if err != nil {
		return err
	}
	if answer.Released {
		c.resume(ctx)
	}
	reply := &messages.Control{}
	switch answer.Verdict {
	case table.VerdictReady:
		reply.Body = &messages.Control_Ready{Ready: &messages.Ready{Version: answer.Version}}
	case table.VerdictTooLate:
		reply.Body = &messages.Control_TooLate{TooLate: &messages.TooLate{Version: answer.Version, Next: answer.Next}}
	default:
		return nil
	}
	if from == c.group.rank {
		c.group.node.tell(ctx.Self(), &controlMessage{c.group.rank, reply})
		return nil
	}
	c.group.control(from, reply)
	return nil
}

func (c *coordinator) commit(ctx actor.Context, m table.Commit) error {
	released, err := c.member.Commit(m)
	if err != nil {
		return err
	}
	c.group.table.Store(c.member.Table())
	c.group.node.tell(c.balancer, tableSwitched(m.Version))
	c.group.node.events.emit(Event{Kind: TableChanged, Communicator: c.group.name, Rank: int(c.group.rank), Version: m.Version})
	c.group.node.log.Info("table committed", "communicator", c.group.name, "version", m.Version, "after", m.Effective)
	if released {
		c.resume(ctx)
	}
	return nil
}

// done answers the proposals up to a ticket.
func (c *coordinator) done(ticket uint64) {
	for len(c.tickets) > 0 && c.tickets[0] <= ticket {
		c.waiting[0].done <- nil
		c.waiting, c.tickets = c.waiting[1:], c.tickets[1:]
	}
}

func prepareMessage(p *table.Prepare) *messages.Prepare {
	m := &messages.Prepare{Table: tableMessage(p.Table), Effective: p.Effective}
	if p.Committed != nil {
		m.Committed, m.CommittedEffective = tableMessage(p.Committed), p.CommittedEffective
	}
	return m
}

// preparedOf translates what came from the network; the core validates it.
func preparedOf(m *messages.Prepare) *table.Prepare {
	p := &table.Prepare{Table: tableOf(m.GetTable()), Effective: m.GetEffective()}
	if m.GetCommitted() != nil {
		p.Committed, p.CommittedEffective = tableOf(m.GetCommitted()), m.GetCommittedEffective()
	}
	return p
}

func tableMessage(t *table.Table) *messages.Table {
	m := &messages.Table{Version: t.Version}
	for i := range t.Entries {
		e := &t.Entries[i]
		m.Entries = append(m.Entries, &messages.TableEntry{Family: uint32(e.Family), MaxBytes: e.MaxBytes, Algorithm: uint32(e.Algorithm), Weights: e.Weights})
	}
	return m
}

func tableOf(m *messages.Table) *table.Table {
	t := &table.Table{Version: m.GetVersion()}
	for _, e := range m.GetEntries() {
		t.Entries = append(t.Entries, table.Entry{Family: table.Family(min(e.GetFamily(), uint32(table.Families))), MaxBytes: e.GetMaxBytes(), Algorithm: op.Algorithm(min(e.GetAlgorithm(), 255)), Weights: e.GetWeights()})
	}
	return t
}

func windowsMessage(set []balance.Window) *messages.Control {
	m := &messages.Windows{}
	for _, w := range set {
		m.Windows = append(m.Windows, &messages.Window{Family: uint32(w.Family), Rail: uint32(w.Rail), SizeClass: uint32(w.Class), Table: w.Table,
			Operations: uint32(w.Operations), Bytes: w.Bytes, ElapsedNs: int64(w.Elapsed), WholeNs: int64(w.Whole)})
	}
	return &messages.Control{Body: &messages.Control_Windows{Windows: m}}
}

// windowsOf translates what came from the network; the core validates it.
func windowsOf(m *messages.Windows) (set []balance.Window) {
	for _, w := range m.GetWindows() {
		set = append(set, balance.Window{Family: table.Family(min(w.GetFamily(), uint32(table.Families))), Rail: int(w.GetRail()), Class: balance.Class(min(w.GetSizeClass(), balance.Classes)), Table: w.GetTable(),
			Operations: int(w.GetOperations()), Bytes: w.GetBytes(), Elapsed: time.Duration(w.GetElapsedNs()), Whole: time.Duration(w.GetWholeNs())})
	}
	return set
}
