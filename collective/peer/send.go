package peer

import "fmt"

// Send accepts a frame: it is queued on a rail, or waits for credit.
func (c *Core[F]) Send(it Item[F], fx *Effects[F]) {
	if it.Announced && it.Rail < len(c.links) {
		c.links[it.Rail].expected -= it.Bytes
	}
	if it.Credit == 0 {
		c.route(it, fx)
		return
	}
	// First come, first served: a small frame doesn't pass a large one that waits.
	if c.starved.len() == 0 && c.spend(it.Credit) {
		c.route(it, fx)
		return
	}
	c.starved.pushBack(it)
	c.starving[it.Op]++
	if c.starving[it.Op] == 1 {
		fx.Wants = append(fx.Wants, it)
	}
}

// spend takes credit if there is enough.
func (c *Core[F]) spend(bytes int) bool {
	if c.used+uint64(bytes) > c.returned+c.limit {
		return false
	}
	c.used += uint64(bytes)
	return true
}

// route queues a frame on its planned rail, on one that delivers it sooner, on any where the planned
// one isn't up, or keeps it until some rail is: -1.
func (c *Core[F]) route(it Item[F], fx *Effects[F]) (rail int) {
	rail = c.carrier(it.Rail, it.Bytes)
	if rail < 0 {
		if it.Ahead {
			c.orphanAhead.pushBack(it)
		} else {
			c.orphanData.pushBack(it)
		}
		return rail
	}
	if it.Ahead {
		c.links[rail].ahead.pushBack(it)
	} else {
		if c.cfg.Preferred.Has(rail) {
			it.Rails = 0 // no other rail is sooner
		} else if it.Rails != 0 && rail == it.Rail {
			if r := c.ready(&it); r >= 0 {
				rail = r
			}
		}
		c.links[rail].data.pushBack(it)
	}
	fx.Wake.Add(rail)
	return rail
}

// next is the frame that the rail's writer takes; nil: there is nothing that may go.
func (c *Core[F]) next(rail int, l *link[F]) (it *Item[F], data source[F]) {
	if l.ahead.len() > 0 {
		return l.ahead.at(0), data
	}
	if data = c.nextData(rail, l); data.queue != nil {
		it = data.at()
	}
	return it, data
}

// NextBytes is the size of the frame that Take would return; 0 if there is none.
func (c *Core[F]) NextBytes(rail int, generation uint64) int {
	l := c.current(rail, generation)
	if l == nil {
		return 0
	}
	if it, _ := c.next(rail, l); it != nil {
		return it.Bytes
	}
	return 0
}

// Take numbers the next frame of a rail and hands it to a writer, which holds its memory until Written.
func (c *Core[F]) Take(rail int, generation uint64) (it Item[F], number uint64, ok bool) {
	l := c.current(rail, generation)
	if l == nil {
		return it, 0, false
	}
	front, data := c.next(rail, l)
	switch {
	case front == nil:
		return it, 0, false
	case data.queue == nil:
		it = l.ahead.popFront()
	default:
		it = data.pop()
		it.AckNow = l.prompt(&it)
		l.inFlight += it.Bytes
		l.handOut(it.Bytes, c.now)
	}
	l.sent++
	l.unacked.pushBack(entry[F]{Item: it})
	return it, l.sent, true
}

// Written: the writer has handed over every frame that it took, and holds none.
func (c *Core[F]) Written(rail int, generation uint64, fx *Effects[F]) {
	l := c.current(rail, generation)
	if l == nil {
		return // Quiesced says it for all
	}
	for n := l.written + 1; n <= l.sent; n++ {
		l.at(n).letGo(fx)
	}
	l.written = l.sent
	c.forget(rail, l, fx)
}

// Acked: the other node has received this many frames of the generation whole. An error is
// a violation of the protocol.
func (c *Core[F]) Acked(rail int, generation, count uint64, fx *Effects[F]) error {
	l := c.current(rail, generation)
	if l == nil {
		return nil // closed meanwhile: the other side's statement will tell
	}
	if count == l.acked {
		return nil
	}
	if count < l.acked || count > l.sent {
		return fmt.Errorf("acknowledges %d frames after %d of %d", count, l.acked, l.sent)
	}
	bytes := 0
	for n := l.acked + 1; n <= count; n++ {
		if e := l.at(n); !e.Ahead {
			bytes += e.Bytes
		}
	}
	l.acked = count
	l.acknowledge(bytes, count, c.now, c.cfg.AckDelay)
	c.forget(rail, l, fx)
	c.wakeAll(fx)
	return nil
}

// forget drops the frames that are acknowledged and that no writer holds.
func (c *Core[F]) forget(rail int, l *link[F], fx *Effects[F]) {
	first := l.first()
	end := min(l.acked, l.written)
	if end < first {
		return
	}
	for range end - first + 1 {
		e := l.unacked.popFront()
		if !e.Ahead {
			l.inFlight -= e.Bytes
		}
		if !e.gone {
			fx.release(e.Frame, Delivered)
		}
	}
	if it, _ := c.next(rail, l); it != nil {
		fx.Wake.Add(rail)
	}
}

// first is the number of the oldest frame in unacked.
func (l *link[F]) first() uint64 { return l.sent + 1 - uint64(l.unacked.len()) }

func (l *link[F]) at(number uint64) *entry[F] { return l.unacked.at(int(number - l.first())) }

// letGo releases a frame that was revoked while a writer held it.
func (e *entry[F]) letGo(fx *Effects[F]) {
	if e.revoked && !e.gone {
		fx.release(e.Frame, Revoked)
		e.gone = true
	}
}

func (e *Effects[F]) release(f F, o Outcome) {
	e.Released = append(e.Released, Release[F]{Frame: f, Outcome: o})
}

// Limit sets the credit that the other node gives, as its Hello says.
func (c *Core[F]) Limit(bytes uint64, fx *Effects[F]) {
	c.limit = bytes
	c.feed(fx)
}

// Credited: the other node has given back this many eager bytes in all. An error is a
// violation of the protocol.
func (c *Core[F]) Credited(total uint64, fx *Effects[F]) error {
	if total <= c.returned {
		return nil // rails overtake each other
	}
	if total > c.used {
		return fmt.Errorf("gives back %d eager bytes of %d", total, c.used)
	}
	c.returned = total
	c.feed(fx)
	return nil
}

// feed queues the frames that waited for credit, as far as it goes.
func (c *Core[F]) feed(fx *Effects[F]) {
	for c.starved.len() > 0 && c.spend(c.starved.at(0).Credit) {
		it := c.starved.popFront()
		c.fed(it.Op)
		c.route(it, fx)
	}
}

func (c *Core[F]) fed(op Operation) {
	if c.starving[op]--; c.starving[op] == 0 {
		delete(c.starving, op)
	}
}

// EagerGranted: the other node takes the operation's waiting frames without credit.
func (c *Core[F]) EagerGranted(op Operation, fx *Effects[F]) {
	if c.starving[op] == 0 {
		return // credit came first
	}
	c.starved.remove(func(it *Item[F]) bool { return it.Op == op }, func(it Item[F]) {
		c.fed(op)
		it.Credit, it.Uncredited = 0, true
		c.route(it, fx)
	})
	c.feed(fx) // one of them may have been in the way
}

// Expect: operations are going to send so many bytes more of data, with headers, planned for a rail.
// Frames that are Announced count as sent. Fewer than none: what was to come won't.
func (c *Core[F]) Expect(rail, bytes int) {
	if rail < len(c.links) {
		c.links[rail].expected += bytes
	}
}

// Expected is what is still to come for a rail.
func (c *Core[F]) Expected(rail int) int { return c.links[rail].expected }
