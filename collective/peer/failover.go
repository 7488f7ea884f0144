package peer

import (
	"fmt"
	"slices"
)

// closing is a generation that isn't used any more and whose frames aren't settled.
type closing[F any] struct {
	rail       int
	generation uint64
	acked      uint64
	written    uint64
	sent       uint64
	unacked    deque[entry[F]] // the last of them is number sent
	received   uint64
	quiesced   bool   // neither reader nor writer holds memory any more
	told       bool   // the other side has stated
	count      uint64 // what it stated
	silent     bool   // the other side left: nobody listens to a statement
	move       Move
}

// Propose is the generation that a new connection of the rail should have here.
func (c *Core[F]) Propose(rail int, other uint64) uint64 { return max(other, c.links[rail].floor+1) }

// maxJump is how far ahead of those before it a generation may be. Each connection that was tried
// takes one number, so that an honest node is never as far; and all of them together are never used
// up.
const maxJump = 1 << 32

// Follows reports whether a generation of the rail that the other side names can be one.
func (c *Core[F]) Follows(rail int, generation uint64) bool {
	floor := c.links[rail].floor
	return generation <= floor || generation-floor <= maxJump
}

// Connected starts a generation on a rail that isn't up. It refuses a generation that was
// used before, or that the other side has closed already.
func (c *Core[F]) Connected(rail int, generation uint64, fx *Effects[F]) bool {
	l := &c.links[rail]
	if l.up || generation <= l.floor {
		return false
	}
	if len(l.used) == maxUsed {
		l.used = slices.Delete(l.used, 0, 1)
	}
	*l = link[F]{up: true, generation: generation, floor: generation, used: append(l.used, generation),
		cut: l.cut, expected: l.expected, ahead: l.ahead, data: l.data} // empty, but with memory
	for c.orphanAhead.len() > 0 {
		l.ahead.pushBack(c.orphanAhead.popFront())
	}
	for c.orphanData.len() > 0 {
		l.data.pushBack(c.orphanData.popFront())
	}
	// Always: the first header tells the other side of credit that an earlier one took with it.
	fx.Ack.Add(rail)
	fx.Wake.Add(rail)
	return true
}

// Down: the generation's connection failed or is being closed. What waits to be written
// goes to other rails; what was written waits for both sides' statements.
func (c *Core[F]) Down(rail int, generation uint64, fx *Effects[F]) {
	if l := c.current(rail, generation); l != nil {
		c.close(rail, l, fx)
	}
}

func (c *Core[F]) close(rail int, l *link[F], fx *Effects[F]) *closing[F] {
	r := &closing[F]{rail: rail, generation: l.generation, acked: l.acked, written: l.written, sent: l.sent,
		unacked: l.unacked, received: l.received}
	c.closing = append(c.closing, r)
	l.cut = Cut{Generation: l.generation, Unacknowledged: l.unacknowledged()}
	l.up = false
	r.move = Move{Rail: rail, To: make([]int, len(c.links))}
	l.unacked, l.inFlight, l.traffic = deque[entry[F]]{}, 0, traffic{}
	for l.ahead.len() > 0 {
		c.route(l.ahead.popFront(), fx)
	}
	for l.data.len() > 0 {
		it := l.data.popFront()
		l.cut.Waiting += it.Bytes
		r.move.add(c.route(it, fx), it.Bytes)
	}
	r.move.Cut = l.cut
	c.wakeAll(fx)
	// A statement doesn't wait for another one: two that were on their way over each other's
	// rails when those broke would wait for each other.
	for i := range r.unacked.len() {
		if e := r.unacked.at(i); e.Restated && !e.gone {
			c.again(e, fx)
			e.gone = true
		}
	}
	return r
}

// unacknowledged is the bytes of data that were taken and that the other side has not confirmed.
func (l *link[F]) unacknowledged() (bytes int) {
	first := l.first()
	for i := range l.unacked.len() {
		if e := l.unacked.at(i); first+uint64(i) > l.acked && !e.Ahead && !e.gone {
			bytes += e.Bytes
		}
	}
	return bytes
}

func (m *Move) add(rail, bytes int) {
	if rail < 0 {
		m.Held += bytes
	} else {
		m.To[rail] += bytes
	}
}

func (c *Core[F]) record(rail int, generation uint64) *closing[F] {
	for _, r := range c.closing {
		if r.rail == rail && r.generation == generation {
			return r
		}
	}
	return nil
}

// Quiesced: after Down, neither reader nor writer of the generation holds memory any more,
// and its count of received frames is final.
func (c *Core[F]) Quiesced(rail int, generation uint64, fx *Effects[F]) {
	r := c.record(rail, generation)
	if r == nil || r.quiesced {
		return
	}
	r.quiesced, r.written = true, r.sent
	for i := range r.unacked.len() {
		r.unacked.at(i).letGo(fx)
	}
	if !r.silent {
		fx.Statements = append(fx.Statements, Statement{Rail: rail, Generation: generation, Received: r.received})
	}
	if r.told {
		c.settle(r, fx)
	}
}

// PeerClosed: the other side stated. An error is a violation of the protocol.
func (c *Core[F]) PeerClosed(s Statement, fx *Effects[F]) error {
	if s.Rail < 0 || s.Rail >= len(c.links) || s.Answer && s.Received != 0 {
		return fmt.Errorf("impossible statement %+v", s)
	}
	if !c.Follows(s.Rail, s.Generation) {
		return fmt.Errorf("statement %+v: the generation does not follow", s)
	}
	l := &c.links[s.Rail]
	r := c.record(s.Rail, s.Generation)
	if r == nil && l.up && l.generation == s.Generation {
		// It saw the end first.
		r = c.close(s.Rail, l, fx)
		fx.Close.Add(s.Rail)
	}
	if r == nil && slices.Contains(l.used, s.Generation) {
		return nil // it comes again, and everything is settled
	}
	if r == nil {
		// Its connection never came to be here. It must not come to be later, and the
		// other side needs to hear that nothing arrived.
		l.floor = max(l.floor, s.Generation)
		if !s.Answer {
			fx.Statements = append(fx.Statements, Statement{Rail: s.Rail, Generation: s.Generation, Answer: true})
		}
		return nil
	}
	if r.told && s.Received == r.count {
		return nil
	}
	if r.told || s.Received < r.acked || s.Received > r.sent {
		return fmt.Errorf("rail %d, generation %d: states %d frames received after %d of %d (stated before: %v)",
			s.Rail, s.Generation, s.Received, r.acked, r.sent, r.told)
	}
	r.told, r.count = true, s.Received
	if r.quiesced {
		c.settle(r, fx)
	}
	return nil
}

// Farewell: the other side left, and closes the generation. It will state nothing: what it
// has not acknowledged will not arrive.
func (c *Core[F]) Farewell(rail int, generation uint64, fx *Effects[F]) {
	if l := c.current(rail, generation); l != nil {
		r := c.close(rail, l, fx)
		r.told, r.count, r.silent = true, r.acked, true
	}
}

// settle ends a closed generation: what the other side has is delivered, the rest goes again.
func (c *Core[F]) settle(r *closing[F], fx *Effects[F]) {
	for i, o := range c.closing {
		if o == r {
			c.closing = append(c.closing[:i], c.closing[i+1:]...)
			break
		}
	}
	for first := r.sent + 1 - uint64(r.unacked.len()); r.unacked.len() > 0 && first <= r.count; first++ {
		if e := r.unacked.popFront(); !e.gone {
			fx.release(e.Frame, Delivered)
		}
	}
	// From the last to the first, each to the front: they are older than what is queued.
	for i := r.unacked.len() - 1; i >= 0; i-- {
		e := r.unacked.at(i)
		if rail := c.again(e, fx); !e.gone && !e.Ahead {
			r.move.Resent += e.Bytes
			r.move.add(rail, e.Bytes)
		}
	}
	if r.move.Resent+r.move.Waiting > 0 && !r.silent {
		fx.Moves = append(fx.Moves, r.move)
	}
}

// again queues a frame that the other side lacks, before newer ones, on the rail that it returns.
func (c *Core[F]) again(e *entry[F], fx *Effects[F]) (rail int) {
	if e.gone {
		c.used -= uint64(e.Credit) // it never arrived, and never will
		c.feed(fx)
		return -1
	}
	it := e.Item
	it.Resent = true
	ahead, data := &c.orphanAhead, &c.orphanData
	if rail = c.carrier(it.Rail, it.Bytes); rail >= 0 {
		ahead, data = &c.links[rail].ahead, &c.links[rail].data
		fx.Wake.Add(rail)
	}
	if it.Ahead {
		ahead.pushFront(it)
	} else {
		data.pushFront(it)
	}
	return rail
}

// Revoke takes back the frames that match. Those that a writer holds are released when it
// lets go: their rails are returned. A revoked frame isn't sent again.
func (c *Core[F]) Revoke(match func(F) bool, fx *Effects[F]) (held Rails) {
	c.revokeQueued(match, fx)
	ring := func(rail int, q *deque[entry[F]], sent, written uint64) {
		number := sent + 1 - uint64(q.len())
		for i := range q.len() {
			e := q.at(i)
			switch {
			case e.gone || !match(e.Frame):
			case number+uint64(i) > written:
				e.revoked = true
				held.Add(rail)
			default:
				e.gone = true
				fx.release(e.Frame, Revoked)
			}
		}
	}
	for i := range c.links {
		l := &c.links[i]
		ring(i, &l.unacked, l.sent, l.written)
	}
	for _, r := range c.closing {
		ring(r.rail, &r.unacked, r.sent, r.written)
	}
	return held
}

// revokeQueued takes back frames that no writer has seen.
func (c *Core[F]) revokeQueued(match func(F) bool, fx *Effects[F]) {
	matches := func(it *Item[F]) bool { return match(it.Frame) }
	refund := func(it Item[F]) {
		c.used -= uint64(it.Credit)
		fx.release(it.Frame, Revoked)
	}
	defer c.wakeAll(fx)
	for i := range c.links {
		c.links[i].ahead.remove(matches, refund)
		c.links[i].data.remove(matches, refund)
	}
	c.orphanAhead.remove(matches, refund)
	c.orphanData.remove(matches, refund)
	c.starved.remove(matches, func(it Item[F]) {
		c.fed(it.Op)
		fx.release(it.Frame, Revoked)
	})
	c.feed(fx)
}

// Lose releases every frame: the other node is lost, and everything is quiesced.
func (c *Core[F]) Lose(fx *Effects[F]) {
	queue := func(q *deque[Item[F]]) {
		for q.len() > 0 {
			fx.release(q.popFront().Frame, Lost)
		}
	}
	ring := func(q *deque[entry[F]]) {
		for q.len() > 0 {
			if e := q.popFront(); !e.gone {
				fx.release(e.Frame, Lost)
			}
		}
	}
	for _, r := range c.closing {
		ring(&r.unacked)
	}
	for i := range c.links {
		l := &c.links[i]
		l.up = false
		ring(&l.unacked)
		queue(&l.ahead)
		queue(&l.data.deque)
	}
	queue(&c.orphanAhead)
	queue(&c.orphanData.deque)
	queue(&c.starved)
	c.closing = nil
	clear(c.starving)
}
