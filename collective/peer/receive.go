package peer

// Received: one more frame of the generation was received whole, and its arrival stands where
// it is looked for. Bytes is its length with its header; ackNow its sender's wish.
func (c *Core[F]) Received(rail int, generation uint64, bytes int, ackNow bool, fx *Effects[F]) {
	l := c.current(rail, generation)
	if l == nil {
		// Closed while the reader was still at it: the count goes into the statement, which
		// waits for the reader.
		if r := c.record(rail, generation); r != nil && !r.quiesced {
			r.received++
		}
		return
	}
	l.received++
	l.owedFrames++
	l.owedBytes += bytes
	c.owe(rail, l, ackNow || l.owedBytes >= c.cfg.AckBytes, fx)
}

// owe makes an acknowledgement due now or soon.
func (c *Core[F]) owe(rail int, l *link[F], now bool, fx *Effects[F]) {
	switch {
	case now || c.cfg.AckDelay == 0:
		fx.Ack.Add(rail)
	case !l.armed:
		l.armed = true
		fx.Arm.Add(rail)
	}
}

// Took: a frame came that was sent on credit for so many bytes.
func (c *Core[F]) Took(bytes int) { c.taken += uint64(bytes) }

// Overdraws reports whether a frame of so many bytes is more than the other node has credit for.
func (c *Core[F]) Overdraws(bytes int) bool {
	// Signed: what came is given back before it is counted where nobody wants it.
	return c.cfg.GivenBytes > 0 && int64(c.taken-c.givenBack)+int64(bytes) > int64(c.cfg.GivenBytes)
}

// ReturnCredit gives eager bytes back to the other node, over whichever rail is up.
func (c *Core[F]) ReturnCredit(bytes int, fx *Effects[F]) {
	c.givenBack += uint64(bytes)
	c.creditOwed += bytes
	// If no rail is up, the next statement's header tells it.
	if rail := c.carrier(0, 0); rail >= 0 {
		c.owe(rail, &c.links[rail], c.creditOwed >= c.cfg.CreditBytes, fx)
	}
}

// AckTimer: AckDelay has passed since Arm.
func (c *Core[F]) AckTimer(rail int, generation uint64, fx *Effects[F]) {
	l := c.current(rail, generation)
	if l == nil {
		return
	}
	l.armed = false
	if l.owedFrames > 0 || c.creditOwed > 0 {
		fx.Ack.Add(rail)
	}
}

// Stamp is what the next header on a rail says: frames received whole, and eager bytes
// given back. Nothing is owed on the rail after it.
func (c *Core[F]) Stamp(rail int) (ack, credit uint64) {
	l := &c.links[rail]
	l.owedFrames, l.owedBytes = 0, 0
	c.creditOwed = 0
	return l.received, c.givenBack
}
