package railactors

import "time"

// This file is about callers that look for their operations' frames themselves while they wait
// (docs/decisions/017).

// longestTake is how long a caller handles frames in one Poll, and how long it waits for the rest
// of one. They may be another operation's, come as fast as they are handled, or not at all. It is
// as long as a caller polls in all, as configured by default.
const longestTake = 2 * time.Millisecond

// Poll looks for frames of the peer on a rail, and handles them on the calling goroutine. A caller
// that polls while it waits spares its operation the wake-up of a reader and its own. Poll reports
// whether there was anything. What it would take too long over goes on on a goroutine.
func (p *Peer) Poll(rail int) bool {
	c := p.pollable[rail].Load()
	if c == nil || !c.reader.turn.TryLock() {
		return false
	}
	r, handed := c.reader, false
	defer func() {
		if !handed {
			r.yield()
		}
	}()
	if n, _ := r.poller.Poll(); n == 0 && !r.body.open { // an error is for the reader's own goroutine to find
		return false
	}
	if !c.hold() {
		return false
	}
	defer func() {
		if !handed {
			c.leave()
		}
	}()
	rest := false
	err := r.guard(func() (err error) {
		rest, err = r.take(longestTake)
		return err
	})
	if err != nil {
		c.fail(err)
	} else if rest {
		handed = true
		goOn := func() { // until nothing is left: the reader's own goroutine would not see that
			defer c.leave()
			defer r.yield()
			if err := r.guard(r.takeAll); err != nil {
				c.fail(err)
			}
		}
		if !p.fabric.spawn(goOn) { // the fabric closes the connection
			goOn()
		}
	}
	return true
}

// Carrier is the rail that carries frames which are planned for a lane's rail, as far as it is known
// beforehand: MemoryRail, where that connects the two nodes.
func (p *Peer) Carrier(rail int) int {
	if m := p.fabric.memory; m >= 0 && p.pollable[m].Load() != nil {
		return m
	}
	return rail
}

// Pollable reports whether Poll can find anything on the rail as it is connected now.
func (p *Peer) Pollable(rail int) bool { return p.pollable[rail].Load() != nil }

// Attend says that the caller is about to Poll a rail, over and over, until Leave: what arrives
// meanwhile wakes nobody else.
func (p *Peer) Attend(rail int) {
	p.attended[rail].Add(1)
	p.hush(rail)
}

// Leave ends Attend. What arrives wakes the rail's reader again: at once where somebody listens, and
// otherwise when nobody has come back to the rail for a moment.
func (p *Peer) Leave(rail int) {
	p.fabric.quiet.leave(p, rail)
	p.attended[rail].Add(-1)
	p.hush(rail)
}

// Listening adds to how many waits are in flight for whose frames nobody polls. While there is one,
// what arrives on any rail wakes its reader, unless somebody attends to that rail.
func (f *Fabric) Listening(n int32) {
	if f.quiet.listeners.Add(n) == n && n > 0 {
		f.quiet.wake(func(*lingering) bool { return true })
	}
}

func (p *Peer) hush(rail int) {
	if c := p.pollable[rail].Load(); c != nil {
		c.reader.hush()
	}
}

// yield gives the turn back.
func (r *reader) yield() {
	r.turn.Unlock()
	r.hush()
}

// hush has the reader's goroutine sleep through input while somebody attends to the rail or it is
// quiet, and only then. Where the turn is taken, who has it calls this afterwards.
func (r *reader) hush() {
	for {
		on := r.peer.attended[r.rail].Load() > 0 || r.peer.quiets[r.rail].Load()
		if r.hushed.Load() == on || !r.turn.TryLock() {
			return
		}
		r.poller.Hush(on)
		r.hushed.Store(on)
		r.turn.Unlock()
	}
}

// hold is for a goroutine that comes to an open connection; it ends with leave.
func (c *connection) hold() bool {
	c.peer.mu.Lock()
	defer c.peer.mu.Unlock()
	if c.open {
		c.holders++
	}
	return c.open
}
