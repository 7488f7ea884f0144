package peer

import (
	"math"
	"time"
)

// This file decides which rail carries a frame of data (docs/decisions/032). The decision is made
// when the frame is handed out; until then it waits in the queue of the rail that it is planned
// for.

// At tells the time of the events that follow, counted from any fixed moment, and to how many peers
// this node sends now.
func (c *Core[F]) At(now time.Duration, peers int) { c.now, c.sharing = max(c.now, now), peers }

// Busy reports whether data is on its way to the peer, waits, or was announced, on rails that it
// shares with other peers.
func (c *Core[F]) Busy() bool {
	if c.preferred() >= 0 {
		return false
	}
	for r := range c.links {
		if l := &c.links[r]; l.traffic.bytes > 0 || l.toCome() > 0 {
			return true
		}
	}
	return false
}

// sharedDoubt is how far a pair's rate may be off, relatively, where many peers share the rail:
// connections that meet there get parts that differ, and change. Frames that follow these load one
// rail for all.
const sharedDoubt = 0.5

// doubt is the relative error that a pace may have.
func (c *Core[F]) doubt(p *pace) float64 {
	return p.doubt() + sharedDoubt*(1-1/float64(max(c.sharing, 1)))
}

// span is a time from now, in seconds, and the bounds within which its estimate is trusted.
type span struct{ early, late float64 }

// arrival is when the rail would deliver the last of so many bytes that it has yet to hand out,
// at this pace; known is false while there is none.
func (c *Core[F]) arrival(l *link[F], p *pace, bytes int) (s span, known bool) {
	if !p.known() {
		return s, false
	}
	t := c.delivery(l, p, bytes)
	doubt := c.doubt(p)
	return span{t * max(0, 1-doubt), t * (1 + doubt)}, true
}

// delivery is how long the rail takes at this pace for what is on its way and so many bytes after
// it, in seconds.
func (c *Core[F]) delivery(l *link[F], p *pace, bytes int) float64 {
	return c.backlog(l, p.rate()) + float64(bytes)/p.rate()
}

// toCome is how many bytes the rail has yet to hand out, announced ones included.
func (l *link[F]) toCome() int { return l.data.bytes + l.expected }

// backlog is how long the rail will take for what is on its way, in seconds.
func (c *Core[F]) backlog(l *link[F], rate float64) float64 {
	if l.traffic.bytes == 0 {
		return 0
	}
	elapsed := (c.now - l.traffic.since).Seconds()
	// What was handed out passes at the rail's pace, and in the order of the frames. When the oldest
	// one's acknowledgement is overdue, what follows is late by as much.
	oldest := float64(l.oldest()) / rate
	overdue := elapsed - oldest - c.cfg.AckDelay.Seconds()
	left := min(l.traffic.free-c.now.Seconds(), float64(l.traffic.bytes)/rate-min(elapsed, oldest))
	return max(left, 0) + max(overdue, 0)
}

// oldest is the size of the first frame of data on its way.
func (l *link[F]) oldest() int {
	for n := l.acked + 1; n <= l.sent; n++ {
		if e := l.at(n); !e.Ahead {
			return e.Bytes
		}
	}
	return 0
}

// promptTime is what a rail takes for a frame of a large operation that asks to be acknowledged at
// once: an acknowledgement of its own costs little beside that. It is then late by no more, but for
// frames of the other direction that it waits behind (traffic.free).
const promptTime = time.Millisecond

// prompt reports whether the rail has the frame acknowledged at once.
func (l *link[F]) prompt(it *Item[F]) bool {
	p := l.quick()
	return it.Announced && p.known() && float64(it.Bytes) > p.rate()*promptTime.Seconds()
}

// sooner reports whether rail a delivers the frame, after aBytes in all, clearly sooner than rail b
// after bBytes: by more than both estimates may be off, and by more than the acknowledgements of both
// may be late. While shares have shown to be wrong, by such a gain within the last second, one of
// these delays is enough.
func (c *Core[F]) sooner(it *Item[F], a *link[F], aBytes int, b *link[F], bBytes int) bool {
	delay := c.cfg.AckDelay
	if a.prompt(it) && b.prompt(it) {
		delay = min(delay, promptTime)
	}
	late := delay.Seconds()
	than, known := c.arrival(b, &b.pace, bBytes)
	if !known || than.early <= late {
		return false // soon enough, as frames of small operations are
	}
	at, known := c.arrival(a, a.quick(), aBytes)
	gain := than.early - at.late
	if !known || gain <= late {
		return false
	}
	if gain > 2*late {
		c.misjudged = c.now
	}
	return c.misjudged > 0 && c.now-c.misjudged <= paceStale
}

// inTime reports whether the rail would end a frame of a large operation before all rails that may
// carry it together end what is to come, and so many bytes more. Then it carries the frame, though
// another rail is sooner: that one has others to carry.
func (c *Core[F]) inTime(it *Item[F], l *link[F], more int) bool {
	if !it.Announced || !l.pace.known() {
		return false
	}
	bytes, rates := float64(more), 0.0
	for r := range it.Rails.All() {
		if r >= len(c.links) {
			break
		}
		if o, p := &c.links[r], c.links[r].quick(); o.up && p.known() {
			bytes += c.delivery(o, p, o.toCome()) * p.rate()
			rates += p.rate()
		}
	}
	return c.delivery(l, &l.pace, it.Bytes)*rates <= bytes
}

// outdone reports whether the rail leaves the first frame of its queue to another one. It does if it
// would end the frame too late, and that one delivers it clearly sooner even after all that is to come
// there. That one must have a frame on its way or in its queue, or nothing wakes it: announced ones
// may depend on this frame.
func (c *Core[F]) outdone(rail int, l *link[F]) bool {
	it := l.data.at(0)
	if it.Rails == 0 || c.untested(l) || c.inTime(it, l, 0) {
		return false
	}
	for r := range it.Rails.All() {
		if r == rail || r >= len(c.links) {
			continue
		}
		o := &c.links[r]
		if o.up && o.traffic.bytes+o.data.bytes > 0 && c.sooner(it, o, o.toCome()+it.Bytes, l, it.Bytes) {
			return true
		}
	}
	return false
}

// untested reports whether the rail carries nothing and was not measured for long.
func (c *Core[F]) untested(l *link[F]) bool {
	return l.traffic.bytes == 0 && c.now-l.pace.at > paceStale
}

// ready is a rail without frames of its own that delivers a new frame clearly sooner than the
// planned one; -1: none. A planned rail that has nothing to do keeps what it ends in time.
func (c *Core[F]) ready(it *Item[F]) (rail int) {
	rail = -1
	planned := &c.links[it.Rail]
	idle := planned.traffic.bytes == 0 && planned.data.len() == 0
	if idle && (c.untested(planned) || c.inTime(it, planned, it.Bytes)) {
		return rail
	}
	soonest := math.Inf(1)
	for r := range it.Rails.All() {
		if r == it.Rail || r >= len(c.links) {
			continue
		}
		o := &c.links[r]
		if !o.up || o.data.len() > 0 || !c.room(o, it.Bytes) ||
			!c.sooner(it, o, o.toCome()+it.Bytes, planned, planned.toCome()+it.Bytes) {
			continue
		}
		if at, _ := c.arrival(o, o.quick(), o.toCome()+it.Bytes); at.late < soonest {
			rail, soonest = r, at.late
		}
	}
	return rail
}

// source is where a frame of data is taken from.
type source[F any] struct {
	queue *queue[F] // nil: there is none
	back  bool
}

func (s source[F]) at() *Item[F] {
	if s.back {
		return s.queue.at(s.queue.len() - 1)
	}
	return s.queue.at(0)
}

func (s source[F]) pop() Item[F] {
	if s.back {
		return s.queue.popBack()
	}
	return s.queue.popFront()
}

// nextData is the frame of data that the rail would hand out now.
func (c *Core[F]) nextData(rail int, l *link[F]) (s source[F]) {
	if l.data.len() == 0 {
		s = c.steal(rail, l)
	} else if !c.outdone(rail, l) {
		s.queue = &l.data
	}
	if s.queue != nil && !c.room(l, s.at().Bytes) {
		s.queue = nil
	}
	return s
}

// steal is what a rail that has run dry takes from another one: from the one that would be busy
// for longest, the first frame if that rail leaves it to others, otherwise the last one.
func (c *Core[F]) steal(rail int, l *link[F]) (s source[F]) {
	if c.waiting == 0 {
		return s
	}
	most := 0.0
	for r := range c.links {
		v := &c.links[r]
		if r == rail || !v.up || v.data.len() == 0 || !v.pace.known() {
			continue
		}
		first, last := source[F]{&v.data, false}, source[F]{&v.data, true}
		longest, _ := c.arrival(v, &v.pace, v.toCome())
		switch {
		case longest.early <= most:
		case c.mayTake(rail, l, first, v, first.at().Bytes) && c.outdone(r, v):
			s, most = first, longest.early
		case c.mayTake(rail, l, last, v, v.toCome()):
			s, most = last, longest.early
		}
	}
	return s
}

// mayTake reports whether the rail may carry the frame and delivers it clearly sooner than
// rail v, which has so many bytes to hand out until then.
func (c *Core[F]) mayTake(rail int, l *link[F], s source[F], v *link[F], bytes int) bool {
	it := s.at()
	return it.Rails.Has(rail) && c.room(l, it.Bytes) && c.sooner(it, l, l.toCome()+it.Bytes, v, bytes)
}

// room reports whether the limit in flight lets the rail hand out so many bytes.
func (c *Core[F]) room(l *link[F], bytes int) bool {
	return l.inFlight == 0 || l.inFlight+bytes <= c.cfg.InFlightBytes
}

// preferred is the rail that carries everything now, or -1.
func (c *Core[F]) preferred() int {
	for r := range c.cfg.Preferred.All() {
		if c.links[r].up {
			return r
		}
	}
	return -1
}

// carrier is the rail that takes a frame planned for this one, or -1. Of a rail that isn't up the
// frames go where they arrive first.
func (c *Core[F]) carrier(planned, bytes int) int {
	if r := c.preferred(); r >= 0 {
		return r
	}
	if planned < len(c.links) && c.links[planned].up {
		return planned
	}
	best, soonest := -1, 0.0
	common := c.commonRate()
	for r := range c.links {
		l := &c.links[r]
		if !l.up {
			continue
		}
		t := float64(l.traffic.bytes+l.toCome()+bytes) / common
		if p := l.quick(); p.known() {
			t = c.delivery(l, p, l.toCome()+bytes)
		}
		if best < 0 || t < soonest {
			best, soonest = r, t
		}
	}
	return best
}

// commonRate is what a rail of which nothing is known is taken for: the mean of the others.
func (c *Core[F]) commonRate() float64 {
	sum, n := 0.0, 0
	for r := range c.links {
		if l := &c.links[r]; l.up && l.quick().known() {
			sum += l.quick().rate()
			n++
		}
	}
	if n == 0 {
		return 1
	}
	return sum / float64(n)
}

// Overdue is called now and then while something is on its way. A rail that keeps others waiting
// without an acknowledgement looks later and later: they take what it was to carry.
func (c *Core[F]) Overdue(fx *Effects[F]) { c.wakeAll(fx) }

// wakeAll wakes the rails that have something to hand out: what others carry has changed.
func (c *Core[F]) wakeAll(fx *Effects[F]) {
	if c.waiting == 0 {
		return
	}
	for r := range c.links {
		if l := &c.links[r]; l.up && c.nextData(r, l).queue != nil {
			fx.Wake.Add(r)
		}
	}
}
