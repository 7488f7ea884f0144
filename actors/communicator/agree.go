package communicator

import (
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/polyrail/polyrail/actors/balancing"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/messages"
)

// agree feeds the table's agreement with another rank's message.
func (c *coordinator) agree(ctx actor.Context, m *Control) {
	var actions []table.Action
	var err error
	if m.From != 0 && ofRankZero(m.Body) {
		c.group.node.Log.Warn("table refused: rank 0 decides it", "communicator", c.group.Name, "rank", m.From,
			"from", c.group.Nodes[m.From])
		return
	}
	switch b := m.Body.GetBody().(type) {
	case *messages.Control_Prepare:
		err = c.prepare(ctx, m.From, preparedOf(b.Prepare))
	case *messages.Control_Commit:
		err = c.commit(ctx, table.Commit{Version: b.Commit.GetVersion(), Effective: b.Commit.GetEffective()})
	case *messages.Control_Ready:
		if c.leader != nil {
			actions, err = c.leader.Ready(int(m.From), b.Ready.GetVersion())
		}
	case *messages.Control_TooLate:
		if c.leader != nil {
			actions, err = c.leader.TooLate(int(m.From), b.TooLate.GetVersion(), b.TooLate.GetNext())
		}
	case *messages.Control_Leave:
		if c.leader != nil {
			actions, err = c.leader.Departed(int(m.From), b.Leave.GetLast())
		}
		c.checkHeld()
	}
	if err != nil {
		c.group.Fail(fmt.Errorf("table agreement with rank %d (node %q): %w", m.From,
			c.group.Nodes[m.From], err), c.member.Next())
		return
	}
	c.publish(ctx, actions)
}

// ofRankZero reports whether rank 0 alone may say this.
func ofRankZero(m *messages.Control) bool {
	switch m.GetBody().(type) {
	case *messages.Control_Prepare, *messages.Control_Commit:
		return true
	}
	return false
}

// propose starts the agreement on a table of rank 0's.
func (c *coordinator) propose(ctx actor.Context, m *balancing.Propose) {
	if m.Balanced && c.pinned {
		m.Done <- nil
		return
	}
	if c.leader == nil {
		m.Done <- fmt.Errorf("communicator %q: rank 0 (node %q) decides the table, this is rank %d",
			c.group.Name, c.group.Nodes[0], c.group.Rank)
		return
	}
	if err := c.group.Usable(); err != nil {
		m.Done <- err
		return
	}
	ticket, actions, err := c.leader.Propose(&table.Table{Entries: m.Entries, Trees: c.trees})
	if err != nil {
		m.Done <- err
		return
	}
	c.entries = m.Entries
	if !m.Balanced && !c.pinned {
		c.pinned = true
		c.group.node.tell(c.balancer, balancing.TablePinned{})
	}
	c.waiting, c.tickets = append(c.waiting, m), append(c.tickets, ticket)
	c.publish(ctx, actions)
}

// proposeTree has the table name a rail's tree, or none, beside the shares that were proposed last.
func (c *coordinator) proposeTree(ctx actor.Context, m proposeTree) {
	if c.leader == nil || c.group.Usable() != nil {
		return
	}
	trees := make([]uint64, c.group.node.Engine.Rails)
	copy(trees, c.trees)
	trees[m.rail] = m.group
	c.trees = trees
	if c.entries == nil {
		c.entries = c.member.Table().Entries
	}
	_, actions, err := c.leader.Propose(&table.Table{Entries: c.entries, Trees: c.trees})
	if err != nil {
		c.group.Fail(fmt.Errorf("%w: table with a tree: %w", fault.ErrInternal, err), c.member.Next())
		return
	}
	c.publish(ctx, actions)
}

// publish sends what the leader decided to every rank, our own included.
func (c *coordinator) publish(ctx actor.Context, actions []table.Action) {
	for _, a := range actions {
		message := &messages.Control{}
		if a.Prepare != nil {
			message.Body = &messages.Control_Prepare{Prepare: prepareMessage(a.Prepare)}
			for rank := range c.group.Size { // each is waited for
				c.group.Heed(op.Rank(rank))
			}
		} else {
			message.Body = &messages.Control_Commit{Commit: &messages.Commit{Version: a.Commit.Version, Effective: a.Commit.Effective}}
		}
		c.group.controlAll(message)
		var err error
		if a.Prepare != nil {
			err = c.prepare(ctx, c.group.Rank, a.Prepare)
		} else if err = c.commit(ctx, *a.Commit); err == nil {
			c.done(a.Ticket)
		}
		if err != nil {
			c.group.Fail(fmt.Errorf("table agreement: %w", err), c.member.Next())
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
	if from == c.group.Rank {
		c.group.node.tell(ctx.Self(), &Control{c.group.Rank, reply})
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
	c.group.Table.Store(c.member.Table())
	c.group.node.tell(c.balancer, balancing.TableSwitched{})
	c.group.node.tell(ctx.Parent(), tableCommitted{c.member.Table().Trees, c.member.Trees()})
	c.group.node.Registry.TableChanged(c.group, m.Version)
	c.group.node.Log.Info("table committed", "communicator", c.group.Name, "version", m.Version,
		"after", m.Effective)
	if released {
		c.resume(ctx)
	}
	return nil
}

// done answers the proposals up to a ticket.
func (c *coordinator) done(ticket uint64) {
	for len(c.tickets) > 0 && c.tickets[0] <= ticket {
		c.waiting[0].Done <- nil
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
	m := &messages.Table{Version: t.Version, Trees: t.Trees}
	for i := range t.Entries {
		e := &t.Entries[i]
		m.Entries = append(m.Entries, &messages.TableEntry{Family: uint32(e.Family),
			MaxBytes: e.MaxBytes, Algorithm: uint32(e.Algorithm), Weights: e.Weights,
			Route: uint32(e.Route)})
	}
	return m
}

func tableOf(m *messages.Table) *table.Table {
	t := &table.Table{Version: m.GetVersion(), Trees: m.GetTrees()}
	for _, e := range m.GetEntries() {
		t.Entries = append(t.Entries, table.Entry{Family: table.Family(min(e.GetFamily(),
			uint32(table.Families))), MaxBytes: e.GetMaxBytes(),
			Algorithm: op.Algorithm(min(e.GetAlgorithm(), 255)), Weights: e.GetWeights(),
			Route: table.Route(min(e.GetRoute(), 255))})
	}
	return t
}
