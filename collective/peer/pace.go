package peer

import (
	"math"
	"time"
)

// pace is what acknowledgements tell of a rail's rate, and how far that may be off. It is made of
// intervals between two acknowledgements in which the rail had something to carry all the time.
type pace struct {
	bytes, seconds float64 // sums over the intervals; older ones weigh less
	squares        float64 // of the intervals' errors, in square seconds, likewise
	at             time.Duration
	last           interval
}

// interval is a time in which a rail carried so much.
type interval struct{ bytes, seconds float64 }

func (i interval) rate() float64 { return i.bytes / i.seconds }

const (
	// paceMemory is the busy time, in seconds, after which an interval weighs a third (1/e). A rail
	// that becomes quicker is known again after about twice that.
	paceMemory = 0.1
	// slowed is how much less than its pace a rail carries in two intervals in a row when it has become
	// slower. One alone may be a pause.
	slowed = 3
	// deviations is how many standard errors an estimate is trusted within: 95 % of the cases.
	deviations = 2
	// paceStale is how long an estimate counts without a new interval. Then the rail carries what is
	// planned for it again, a frame at a time: one that carries nothing would never be measured.
	paceStale = time.Second
)

func (p *pace) known() bool { return p.bytes > 0 }

// rate is in bytes per second.
func (p *pace) rate() float64 { return p.bytes / p.seconds }

// add takes an interval that ended now, in which the rail carried so many bytes. A long one counts
// as one of paceMemory: a rail that has stood still must not need as long to be quick again.
// After two in a row that show another rail than those before, these two alone count.
func (p *pace) add(bytes int, took, now time.Duration) {
	seconds := min(took.Seconds(), paceMemory)
	carried := float64(bytes) * seconds / took.Seconds()
	last := p.last
	p.last = interval{carried, seconds}
	if little := p.rate() / slowed; p.known() && last.rate() < little && p.last.rate() < little {
		p.bytes, p.seconds, p.squares = last.bytes, last.seconds, 0
	}
	off := seconds // of the first one nothing was expected
	if p.known() {
		off -= carried / p.rate()
	}
	keep := math.Exp(-seconds / paceMemory)
	p.bytes = p.bytes*keep + carried
	p.seconds = p.seconds*keep + seconds
	p.squares = p.squares*keep*keep + off*off
	p.at = now
}

// doubt is the relative error that the rate may have.
func (p *pace) doubt() float64 { return deviations * math.Sqrt(p.squares) / p.seconds }

// traffic is what a generation has on its way, as far as acknowledgements have told.
type traffic struct {
	bytes int           // of data, handed out and not acknowledged
	since time.Duration // the last acknowledgement, or when there began to be something
	mark  uint64        // number of the last frame handed out until then
	part  int           // bytes on their way then of which some may have arrived
	dry   bool          // since then there was nothing to hand out for a moment
	free  float64       // seconds: when the rail will have delivered it, by its pace; infinite while it has none
}

// handOut: a frame of data is handed out.
func (l *link[F]) handOut(bytes int, now time.Duration) {
	t := &l.traffic
	if t.bytes == 0 {
		t.since, t.mark, t.part, t.dry, t.free = now, l.sent, 0, false, 0
	}
	t.bytes += bytes
	t.dry = t.dry || l.data.len() == 0
	if p := l.quick(); p.known() {
		t.free = max(t.free, now.Seconds()) + float64(bytes)/p.rate()
	} else {
		t.free = math.Inf(1)
	}
}

// acknowledge: frames up to number count, of so many bytes of data, have arrived; the other node may
// have waited for delay to say so. The rail was busy all the time if something of an earlier moment
// is still on its way, or is told of at once, or if there was always more to hand out. Otherwise it was
// at least as quick as it looks: it may have waited for frames, and the acknowledgement for its timer.
func (l *link[F]) acknowledge(bytes int, count uint64, now, delay time.Duration) {
	t, p := &l.traffic, &l.pace
	if t.bytes -= bytes; bytes == 0 {
		return
	}
	if took := now - t.since; took > 0 {
		busy := count < t.mark || count == t.mark && l.at(count).AckNow || !t.dry
		switch least := bytes - t.part; {
		case busy:
			p.add(bytes, took, now)
		case p.known() && float64(least) > p.rate()*took.Seconds():
			p.add(least, took, now)
		}
		if !busy {
			l.least.add(bytes, took, now)
		}
	}
	t.since, t.mark, t.part, t.dry = now, l.sent, l.oldest(), l.data.len() == 0
	if p := l.quick(); p.known() {
		latest := now.Seconds() + float64(t.bytes)/p.rate()
		late := delay.Seconds() + float64(t.part)/p.rate() // behind a frame of the other direction
		t.free = min(max(t.free, latest-late), latest)
	}
}

// quick is what the rail may be counted on: its pace, or else what it carried at least. A rail that
// has too little to do is never busy for long enough to have a pace.
func (l *link[F]) quick() *pace {
	if l.pace.known() {
		return &l.pace
	}
	return &l.least
}
