package p2p

import "github.com/polyrail/polyrail/collective/op"

// Departed: a rank has closed the communicator after its message number last. What it has not
// matched it never will; what it sent can still be received.
func (c *Core[W]) Departed(rank op.Rank, last uint64, cause error, fx *Effects[W]) {
	if c.broken != nil {
		return
	}
	o, in := c.outbound(rank), c.inbound(rank)
	o.closed = cause
	for _, s := range o.open {
		if !s.granted {
			c.endSend(s, cause, fx)
		}
	}
	in.departed, in.last = cause, last
	c.checkGone(in, rank, fx)
}

// checkGone ends the receives that wait for a rank of which nothing is to come.
func (c *Core[W]) checkGone(in *inbound[W], rank op.Rank, fx *Effects[W]) {
	if in.departed == nil || in.gone || in.next <= in.last {
		return
	}
	in.gone = true
	c.gone++
	for k, l := range c.posted {
		for k.rank == rank && l.Len() > 0 || k.rank == AnySource && c.gone == c.cfg.Size-1 && l.Len() > 0 {
			c.failRecv(l.Front().Value.(*Recv[W]), in.departed, fx)
		}
	}
}

// unreachable is why no message can come from a rank, or nil.
func (c *Core[W]) unreachable(from op.Rank) error {
	if in := c.from[from]; in != nil && in.gone {
		return in.departed
	}
	if from != AnySource || c.cfg.Size == 1 || c.gone < c.cfg.Size-1 {
		return nil
	}
	for _, in := range c.from {
		if in.gone {
			return in.departed
		}
	}
	return nil
}

// Break ends every send and every receive with a cause. Later calls return it.
func (c *Core[W]) Break(cause error, fx *Effects[W]) {
	if c.broken != nil {
		return
	}
	c.broken = cause
	for _, o := range c.to {
		for _, s := range o.open {
			c.CancelSend(s, cause, fx)
		}
		o.ready = nil
	}
	for _, l := range c.posted {
		for l.Len() > 0 {
			c.failRecv(l.Front().Value.(*Recv[W]), cause, fx)
		}
	}
	for _, in := range c.from {
		for _, m := range in.messages {
			if m.recv != nil {
				c.CancelRecv(m.recv, cause, fx)
			}
			m.drop = true
			if copying := m.recv != nil && m.recv.landings > 0; m.eager && !m.landing && !copying {
				c.settle(m, fx)
			}
		}
		in.messages, in.pending = nil, nil
	}
	c.stray = queues[*Message[W]]{}
}
