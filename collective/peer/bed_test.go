package peer

import (
	"testing"
	"time"
)

// The bed: one core, and rails that deliver one frame after the other at rates of their own. A rail
// is looked after when the core wakes it, and at no other time. The other node acknowledges
// as a node does: after so many bytes, or when a delay has passed.
type bed struct {
	t         *testing.T
	core      *Core[int]
	now       time.Duration
	rates     []float64 // bytes per second, by rail; 0: it stands still
	ways      []way
	delivered map[int]int // the rail that carried a frame
	carried   []int       // bytes by rail
	waiting   int         // frames that were not delivered
	sharing   int         // peers that share the rails
	announced bool        // send announces its frames first, as large operations do
	behind    bool        // acknowledgements wait behind a frame of the other direction
}

// way is a rail's connection.
type way struct {
	generation uint64
	frames     []carriedFrame
	arrives    time.Duration // of the first frame
	received   uint64
	owed       int
	ackAt      time.Duration // 0: none is due
	acks       []carriedAck  // on their way, behind a frame
}

type carriedAck struct {
	at       time.Duration
	received uint64
}

type carriedFrame struct {
	item   Item[int]
	number uint64
}

const (
	bedDelay = 10 * time.Millisecond
	bedFrame = 32 << 10
)

func newBed(t *testing.T, rates ...float64) *bed { return newBedWithin(t, 2<<20, rates...) }

// newBedWithin has so many bytes on their way per rail at most.
func newBedWithin(t *testing.T, inFlight int, rates ...float64) *bed {
	b := &bed{t: t, rates: rates, ways: make([]way, len(rates)), delivered: map[int]int{}, carried: make([]int, len(rates))}
	b.core = New[int](Config{Rails: len(rates), InFlightBytes: inFlight, AckBytes: 512 << 10, CreditBytes: 1, AckDelay: bedDelay})
	for r := range rates {
		b.connect(r)
	}
	return b
}

func (b *bed) connect(rail int) {
	var fx Effects[int]
	g := b.core.Propose(rail, 0)
	if !b.core.Connected(rail, g, &fx) {
		b.t.Fatalf("generation %d of rail %d is refused", g, rail)
	}
	b.ways[rail] = way{generation: g}
	b.carryOut(&fx)
}

// cut ends a rail's connection: what is on its way is lost.
func (b *bed) cut(rail int) {
	var fx Effects[int]
	w := &b.ways[rail]
	b.core.Down(rail, w.generation, &fx)
	b.core.Quiesced(rail, w.generation, &fx)
	fx.Statements = nil
	if err := b.core.PeerClosed(Statement{Rail: rail, Generation: w.generation, Received: w.received}, &fx); err != nil {
		b.t.Fatal(err)
	}
	b.ways[rail] = way{}
	b.carryOut(&fx)
}

func (b *bed) carryOut(fx *Effects[int]) {
	for _, r := range fx.Released {
		if r.Outcome != Delivered {
			b.t.Fatalf("frame %d: %v", r.Frame, r.Outcome)
		}
	}
	for r := range fx.Wake.All() {
		b.write(r)
	}
}

func (b *bed) write(rail int) {
	w := &b.ways[rail]
	var fx Effects[int]
	for {
		it, number, ok := b.core.Take(rail, w.generation)
		if !ok {
			break
		}
		if len(w.frames) == 0 {
			w.arrives = b.arrival(rail, it.Bytes)
		}
		w.frames = append(w.frames, carriedFrame{it, number})
	}
	b.core.Written(rail, w.generation, &fx)
	b.carryOut(&fx)
}

func (b *bed) arrival(rail, bytes int) time.Duration {
	if b.rates[rail] == 0 {
		return 1 << 62
	}
	return b.now + time.Duration(float64(bytes)/b.rates[rail]*1e9)
}

// send queues so many frames of each rail's share, numbered on.
func (b *bed) send(shares ...int) {
	var all Rails
	for r := range shares {
		all.Add(r)
	}
	for r, s := range shares {
		if b.announced {
			b.core.Expect(r, s*bedFrame)
		}
	}
	sent := make([]int, len(shares))
	for range total(shares) {
		next := -1 // the rail that lacks most of its share
		for r, s := range shares {
			if sent[r] < s && (next < 0 || sent[r]*shares[next] < sent[next]*s) {
				next = r
			}
		}
		sent[next]++
		b.frame(next, all)
	}
}

// frame queues one that is planned for a rail.
func (b *bed) frame(rail int, rails Rails) {
	b.waiting++
	var fx Effects[int]
	b.core.At(b.now, b.sharing)
	b.core.Send(Item[int]{Frame: len(b.delivered) + b.waiting, Rail: rail, Rails: rails, Bytes: bedFrame, Announced: b.announced}, &fx)
	b.carryOut(&fx)
}

func total(shares []int) (sum int) {
	for _, s := range shares {
		sum += s
	}
	return sum
}

// run delivers everything, and returns how long that took.
func (b *bed) run() time.Duration {
	began := b.now
	for b.waiting > 0 {
		rail, at, ack := -1, time.Duration(1<<62), false
		for r := range b.ways {
			w := &b.ways[r]
			if len(w.frames) > 0 && w.arrives < at {
				rail, at, ack = r, w.arrives, false
			}
			if due := w.due(); due > 0 && due < at {
				rail, at, ack = r, due, true
			}
		}
		if rail < 0 {
			b.t.Fatalf("%d frames wait, and nothing is on its way", b.waiting)
		}
		b.now = at
		if ack {
			b.acknowledge(rail)
		} else {
			b.arrive(rail)
		}
	}
	for r := range b.ways {
		for b.ways[r].due() > 0 {
			b.now = max(b.now, b.ways[r].due())
			b.acknowledge(r)
		}
	}
	if !b.core.Idle() {
		b.t.Fatal("everything was delivered, and the core isn't idle")
	}
	return b.now - began
}

func (b *bed) arrive(rail int) {
	w := &b.ways[rail]
	f := w.frames[0]
	w.frames = w.frames[1:]
	if len(w.frames) > 0 {
		w.arrives = b.arrival(rail, w.frames[0].item.Bytes)
	}
	if on, again := b.delivered[f.item.Frame]; again {
		b.t.Fatalf("frame %d arrives on rail %d after it has on rail %d", f.item.Frame, rail, on)
	}
	b.delivered[f.item.Frame] = rail
	b.carried[rail] += f.item.Bytes
	b.waiting--
	w.received = f.number
	w.owed += f.item.Bytes
	switch now := w.owed >= 512<<10 || f.item.AckNow; {
	case now && b.behind:
		w.acks = append(w.acks, carriedAck{b.arrival(rail, bedFrame), w.received})
		w.owed, w.ackAt = 0, 0
	case now:
		b.acknowledge(rail)
	case w.ackAt == 0:
		w.ackAt = b.now + bedDelay
	}
}

// due is when the next acknowledgement comes; 0: none does.
func (w *way) due() time.Duration {
	if len(w.acks) > 0 && (w.ackAt == 0 || w.acks[0].at < w.ackAt) {
		return w.acks[0].at
	}
	return w.ackAt
}

// acknowledge tells of the oldest acknowledgement on its way, or else of all that was received.
func (b *bed) acknowledge(rail int) {
	w := &b.ways[rail]
	received := w.received
	if len(w.acks) > 0 {
		received, w.acks = w.acks[0].received, w.acks[1:]
	} else {
		w.owed, w.ackAt = 0, 0
	}
	var fx Effects[int]
	b.core.At(b.now, b.sharing)
	if err := b.core.Acked(rail, w.generation, received, &fx); err != nil {
		b.t.Fatal(err)
	}
	b.carryOut(&fx)
}

// bound is what so many frames take at least.
func (b *bed) bound(frames int) time.Duration {
	sum := 0.0
	for _, r := range b.rates {
		sum += r
	}
	return time.Duration(float64(frames*bedFrame) / sum * 1e9)
}

const mbit = 1e6 / 8
