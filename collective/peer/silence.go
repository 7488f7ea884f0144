package peer

import "time"

// ChecksPerTimeout is how often Silence.Observe should be called within the rail timeout.
const ChecksPerTimeout = 8

// Silence finds rails on which packets vanish while no link is seen to go down (Nezha's Exception
// Handler, docs/decisions/016): bytes wait for the other host's confirmation and none comes. It
// asks for the host's, not the process's, so a rank that computes, or is stopped, is no dead
// rail. Times are counted from any fixed moment.
type Silence struct {
	timeout time.Duration
	rails   []quietRail
}

// Progress is what this host knows of the bytes that it sent on a connection.
type Progress struct {
	Awaiting bool          // the other host owes a confirmation
	Acked    uint64        // bytes that it has confirmed
	LastAck  time.Duration // since its last confirmation of anything
	RTT      time.Duration // of the rail; 0 if unknown
}

// quietRail is what is known of one rail.
type quietRail struct {
	awaiting bool
	acked    uint64
	moved    time.Duration // when it last showed life while something was awaited
	quiet    time.Duration // for how long it has not; 0 if nothing is awaited
	patience time.Duration // what it may take
	doubted  time.Duration // since when: another pair of the rail is silent; 0: none is known to be
}

// NewSilence returns the watch over a peer with so many rails. A dead rail is found within the timeout.
func NewSilence(timeout time.Duration, rails int) *Silence {
	return &Silence{timeout: timeout, rails: make([]quietRail, rails)}
}

// doubtsPerTimeout divides the rail timeout for a rail that is in doubt. What is left is more than
// the 40 ms for which a host may put off a confirmation.
const doubtsPerTimeout = 4

// Doubt shortens the patience with a rail until it shows life, since another node can't be reached
// over it. That alone proves nothing: the dead end may be the other node's. It reports whether the
// rail was not in doubt before.
func (s *Silence) Doubt(rail int, now time.Duration) (first bool) {
	first = s.rails[rail].doubted == 0
	if first {
		s.rails[rail].doubted = now
	}
	return first
}

// Awaiting reports whether the rail owed a confirmation when it was looked at.
func (s *Silence) Awaiting(rail int) bool { return s.rails[rail].awaiting }

// Reset forgets a rail whose connection began or ended.
func (s *Silence) Reset(rail int) { s.rails[rail] = quietRail{} }

// Observe takes a connection's progress. It reports whether something is awaited, and so whether to
// look again.
func (s *Silence) Observe(rail int, now time.Duration, p Progress) bool {
	r := &s.rails[rail]
	if !p.Awaiting {
		*r = quietRail{acked: p.Acked}
		return false
	}
	if r.awaiting && p.Acked != r.acked || now-p.LastAck > r.doubted {
		r.doubted = 0
	}
	if !r.awaiting || p.Acked != r.acked {
		r.moved = now
	}
	r.awaiting, r.acked = true, p.Acked
	r.moved = max(r.moved, now-p.LastAck)
	r.quiet = now - r.moved
	// One check passes before the waiting is seen, and one may pass before its end is. On a rail
	// with long queues even a confirmation that is on its way takes longer.
	r.patience = s.timeout - 2*s.timeout/ChecksPerTimeout
	if r.doubted != 0 {
		r.patience = s.timeout / doubtsPerTimeout
	}
	r.patience = max(r.patience, 2*p.RTT)
	return true
}

// Quiet are the rails of those in use that have used up two thirds of the patience with them. It is
// time to find out about the same rails to other nodes, or an operation meets one timeout after the
// other.
func (s *Silence) Quiet(up Rails) (quiet Rails) {
	for r := range up.All() {
		if q := &s.rails[r]; q.awaiting && q.quiet >= q.patience*2/3 && s.another(r, up) {
			quiet.Add(r)
		}
	}
	return quiet
}

// Dead are the rails of those in use that are to be closed. While no other rail shows that the
// other host is there, none is: a host that stood still, or that is gone, is the rank timeout's
// business.
func (s *Silence) Dead(up Rails) (dead Rails) {
	for r := range up.All() {
		if q := &s.rails[r]; q.awaiting && q.quiet >= q.patience && s.another(r, up) {
			dead.Add(r)
		}
	}
	return dead
}

// another reports whether some other rail in use isn't quiet itself.
func (s *Silence) another(than int, up Rails) bool {
	for r := range up.All() {
		if r != than && s.rails[r].quiet < s.timeout/2 {
			return true
		}
	}
	return false
}
