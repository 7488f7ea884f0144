package engine

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/polyrail/polyrail/collective/op"
)

// This file counts what operations did, for those who look at a node. A node that nobody looks at
// has no meters, and its operations read no clock for them.

// maxMeters bounds the names of communicators that are counted apart; those after them are counted
// together, under OtherMeter.
const maxMeters = 128

// OtherMeter is the name under which communicators beyond the limit are counted.
const OtherMeter = "(other)"

// Meters are the counters of a node's communicators, by name. A communicator that is formed again
// under its name goes on with the same ones, so that they never decrease.
type Meters struct {
	mu   sync.Mutex
	all  map[string]*Meter
	list []*Meter
}

// Of is the meter of communicators with this name; nil if there are no meters.
func (m *Meters) Of(name string) *Meter {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.all[name]; k != nil {
		return k
	}
	if len(m.all) >= maxMeters {
		name = OtherMeter
		if k := m.all[name]; k != nil {
			return k
		}
	}
	if m.all == nil {
		m.all = make(map[string]*Meter)
	}
	k := &Meter{Name: name}
	m.all[name] = k
	m.list = append(m.list, k)
	return k
}

// All lists the meters in the order of their first communicators.
func (m *Meters) All() []*Meter {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.list[:len(m.list):len(m.list)]
}

// Meter counts what communicators of one name did.
type Meter struct {
	Name                   string
	Formed, Broken, Tables atomic.Uint64 // the node's

	cells    [op.KindCount][len(SizeLimits) + 1]atomic.Pointer[cell]
	messages [2]cell // sent, received
}

// SizeLimits are the upper ends of the size classes by which operations are counted, in bytes.
// Larger operations are in a class of their own.
var SizeLimits = [...]int{0, 256, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20}

// cell counts operations of a kind and a size class.
type cell struct {
	failed, bytes atomic.Uint64
	took          Durations
}

// Called notes when an operation was called, where operations are counted or recorded.
func (g *Group) Called(r *Request) {
	if g.Meter != nil || g.trace.Load() != nil {
		r.called = time.Since(processBegan)
		r.numbered = r.called
	}
}

// Waited notes that a call waited for its number.
func (g *Group) Waited(r *Request) {
	if r.numbered != 0 {
		r.numbered = time.Since(processBegan)
	}
}

// operation counts one that has ended. AllToAllV has no common size: it is counted as empty.
func (m *Meter) operation(r *Request, took time.Duration, err error) {
	if r.Internal {
		return
	}
	class := 0
	for class < len(SizeLimits) && r.bytes > SizeLimits[class] {
		class++
	}
	p := &m.cells[r.Kind][class]
	c := p.Load()
	if c == nil {
		p.CompareAndSwap(nil, new(cell))
		c = p.Load()
	}
	c.add(r.bytes, took, err)
}

// account counts and records the operation, where that is wanted.
func (o *Operation) account(m *Meter, t *Trace, err error) {
	r := o.request
	if r.called == 0 {
		return // it was called before anything was recorded, or has been accounted for
	}
	began := r.called
	took := time.Since(processBegan) - began
	r.called = 0
	if m != nil {
		m.operation(r, took, err)
	}
	if t != nil {
		e := &TraceEvent{At: began, Took: took, Kind: TraceOperation, Operation: r.Kind, Seq: o.Seq, Peer: -1,
			Rail: -1, Bytes: r.bytes}
		if err != nil {
			e.Text = err.Error()
		}
		t.add(e)
	}
}

// message counts one that has ended.
func (m *Meter) message(received bool, bytes int, took time.Duration, err error) {
	i := 0
	if received {
		i = 1
	}
	m.messages[i].add(bytes, took, err)
}

func (c *cell) add(bytes int, took time.Duration, err error) {
	if err != nil {
		c.failed.Add(1)
		return
	}
	c.bytes.Add(uint64(bytes))
	c.took.Add(took)
}

// Count is what a meter counted of one kind and size class.
type Count struct {
	Kind     string // of operation, or "send" and "receive" for messages
	MaxBytes int    // upper end of the size class; -1: none, or messages, which have no classes
	Failed   uint64
	Bytes    uint64 // of those that ended well
	Took     Distribution
}

// Counts are all that are not empty.
func (m *Meter) Counts() (all []Count) {
	add := func(kind string, limit int, c *cell) {
		n := Count{Kind: kind, MaxBytes: limit, Failed: c.failed.Load(), Took: c.took.Read()}
		n.Bytes = c.bytes.Load()
		if n.Failed > 0 || n.Took.Count > 0 {
			all = append(all, n)
		}
	}
	for kind := range m.cells {
		for class := range m.cells[kind] {
			limit := -1
			if class < len(SizeLimits) {
				limit = SizeLimits[class]
			}
			if c := m.cells[kind][class].Load(); c != nil {
				add(op.Kind(kind).String(), limit, c)
			}
		}
	}
	add("send", -1, &m.messages[0])
	add("receive", -1, &m.messages[1])
	return all
}

// DurationBuckets is how many bounded buckets a distribution of durations has: up to 33 s.
const DurationBuckets = 26

// DurationLimit is the upper end of a bucket: powers of two from 1 µs on.
func DurationLimit(bucket int) time.Duration { return time.Microsecond << bucket }

// Durations counts durations in buckets. It is safe for concurrent use.
type Durations struct {
	buckets [DurationBuckets + 1]atomic.Uint64
	sum     atomic.Int64 // ns
}

// Add counts a duration.
func (d *Durations) Add(t time.Duration) {
	t = max(t, 1)
	d.buckets[min(bits.Len64(uint64(t-1)/1000), DurationBuckets)].Add(1)
	d.sum.Add(int64(t))
}

// Distribution is a snapshot of Durations.
type Distribution struct {
	Count   uint64
	Sum     time.Duration
	Buckets []uint64 // not cumulative; trailing zeros are left out
}

// Read takes a snapshot. Its count is that of its buckets.
func (d *Durations) Read() (s Distribution) {
	for i := range d.buckets {
		n := d.buckets[i].Load()
		if s.Count += n; n > 0 {
			for len(s.Buckets) < i {
				s.Buckets = append(s.Buckets, 0)
			}
			s.Buckets = append(s.Buckets, n)
		}
	}
	s.Sum = time.Duration(d.sum.Load())
	return s
}
