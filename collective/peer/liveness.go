package peer

import (
	"fmt"
	"time"
)

// TicksPerTimeout is how often Tick should be called within the rank timeout.
const TicksPerTimeout = 16

// Liveness decides from what was heard on which rail whether the other node is there
// (docs/decisions/014). Times are counted from any fixed moment.
type Liveness struct {
	timeout  time.Duration
	lastTick time.Duration
	resumed  time.Duration // this node itself stood still until then
	met      bool          // the other node should be heard
	contact  bool          // a rail was up
	up       Rails
	refused  Rails                          // since they were up
	proven   Rails                          // were up once; before the first contact: all
	deaf     []time.Duration                // by rail: its reader was last seen at work on a frame
	pinged   []time.Duration                // by rail: when this connection was last to carry a ping
	expected time.Duration                  // since when it should answer
	late     [TicksPerTimeout]time.Duration // of the last ticks: by how much each came too late
	ticks    int
}

// Signal is what is known of a rail at a tick.
type Signal struct {
	Heard time.Duration // when the last header came in; of an earlier connection too
	Sent  time.Duration // when the last one went out
	Busy  bool          // the reader works on a frame, and so can't hear
}

// Verdict is what a tick asks for.
type Verdict struct {
	Ping Rails  // show on these rails that this node lives, and ask whether the other one does
	Fail Rails  // dead rails, while the other node lives on another one
	Lost string // if not empty, the reason why the other node is lost
}

// NewLiveness returns the watch over a node of so many rails.
func NewLiveness(timeout time.Duration, rails int, now time.Duration) *Liveness {
	return &Liveness{timeout: timeout, lastTick: now, resumed: now, proven: Rails(1)<<rails - 1,
		deaf: make([]time.Duration, rails), pinged: make([]time.Duration, rails)}
}

// Reach says which rails can connect the two nodes; otherwise all can. Before the first contact.
func (l *Liveness) Reach(rails Rails) { l.proven = rails }

// Expect: the other node should answer from now on. (Where it is the one to make the
// first contact, it is missed only after that.)
func (l *Liveness) Expect() {
	if !l.met {
		l.met, l.expected = true, l.lastTick
	}
}

// Resume begins to watch now: nobody has listened before.
func (l *Liveness) Resume(now time.Duration) { l.lastTick, l.resumed = now, now }

// firstContact bounds, in timeouts, how long the first contact is waited for while this node meets
// others: where many nodes meet at once each of them is slow.
const firstContact = 16

// Others tells before the first contact when another node was last met.
func (l *Liveness) Others(met time.Duration) {
	l.resumed = max(l.resumed, min(met, l.expected+firstContact*l.timeout))
}

// Connected: a connection was made on the rail.
func (l *Liveness) Connected(rail int) {
	if !l.contact {
		l.contact, l.proven = true, 0
	}
	l.met = true
	l.proven.Add(rail)
	l.up.Add(rail)
	l.refused &^= 1 << rail
	l.pinged[rail] = -l.timeout
}

// Disconnected: the rail's connection was lost.
func (l *Liveness) Disconnected(rail int) { l.up &^= 1 << rail }

// Refused: the other host says that nobody listens on the rail. It reports whether that is now so
// on all rails that were ever connected: then the process is gone. What a rail that never was says
// about the process counts only before the first contact.
func (l *Liveness) Refused(rail int) bool {
	if !l.up.Has(rail) {
		l.refused.Add(rail)
	}
	return l.proven&^l.refused == 0
}

// Tick judges. Rails has one Signal per rail.
func (l *Liveness) Tick(now time.Duration, rails []Signal) Verdict {
	// A node that was stopped, or starved of its processors, has heard nothing
	// because it did not listen.
	if now-l.lastTick > l.timeout/4 {
		l.resumed = now
	}
	excused := l.lateness(now)
	l.lastTick = now
	var v Verdict
	if !l.met {
		return v
	}
	quiet := now // for how long the node was silent on all rails
	for r, s := range rails {
		if s.Busy && l.up.Has(r) {
			l.deaf[r] = now
		}
		// A reader that was long at work has listened only since it was done.
		silent := max(0, now-max(s.Heard, l.resumed, l.deaf[r])-excused)
		quiet = min(quiet, silent)
		// A ping that is not answered yet is not repeated early: a connection loses none, and a node
		// that is slow to answer would be slower for each.
		still := silent >= l.timeout/4 || now-s.Sent >= l.timeout/4
		if l.up.Has(r) && still && now-l.pinged[r] >= l.timeout/4 {
			v.Ping.Add(r)
			l.pinged[r] = now
		}
		if l.up.Has(r) && silent >= l.timeout/2 {
			v.Fail.Add(r)
		}
	}
	// A tick of the timeout is for the way of the news.
	if quiet >= l.timeout-l.timeout/(TicksPerTimeout/2) {
		v.Lost = fmt.Sprintf("unheard on all rails for %v", quiet.Round(time.Millisecond))
	}
	if quiet >= l.timeout/4 {
		v.Fail = 0 // nothing shows that it is the rail
	}
	return v
}

// lateness is by how much this node's own ticks were late within the last timeout. Where it gets its
// processor late, what it waits for is late, too: by as much in each of a few places.
func (l *Liveness) lateness(now time.Duration) (sum time.Duration) {
	late := now - l.lastTick - l.timeout/TicksPerTimeout
	if late < l.timeout/TicksPerTimeout/2 {
		late = 0
	}
	l.late[l.ticks%len(l.late)] = late
	l.ticks++
	for _, d := range l.late {
		sum += d
	}
	return min(sum, l.timeout)
}

// Backoff is the pause before the k-th attempt to connect in a row (k from 0), between
// none and most, growing twofold.
func Backoff(k int, least, most time.Duration) time.Duration {
	if k == 0 {
		return 0
	}
	d := least
	for ; k > 1 && d < most; k-- {
		d *= 2
	}
	return min(d, most)
}
