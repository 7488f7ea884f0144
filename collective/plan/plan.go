package plan

import (
	"fmt"
	"math/bits"
	"sort"
)

// Bounds of a span, in bytes of one owner.
const (
	MaxSpanBytes = 256 << 10 // the payload of a frame (wire.MaxPayload)
	minSpanBytes = 24 << 10  // what a span holds at least, where there is that much: smaller frames cost more than they overlap

	spansPerRail = 2 // aimed at: the steps of one overlap with those of the other; more cost a processor more than they gain
)

// Span is a run of consecutive rounds that one planned rail carries. The owner's part
// of it is what one frame moves.
type Span struct {
	Rail  int
	Index int // running number on its rail
	First int // first round
	Count int // rounds, at least 1
}

// RailSpans is the part of a plan that belongs to one rail.
type RailSpans struct {
	From, To int // its spans are Plan.Spans[From:To]
	First    int // first round
	Rounds   int // rounds
}

// Len is the number of spans on the rail.
func (r RailSpans) Len() int { return r.To - r.From }

// Plan is the cut of one operation. It is immutable and may be shared by operations.
type Plan struct {
	Layout
	Spans     []Span // by rail, then by index
	PerRail   []RailSpans
	SpanBytes int // the largest owner range of any span
}

// Rounds divides total rounds over rails by weight, in whole rounds: the largest
// remainders get what rounding down left over, the lower rail first among equals. The
// result sums to total; a rail of weight 0 gets nothing. It panics when no rail has a weight.
func Rounds(total int, weights []uint32) []int {
	var sum uint64
	for _, w := range weights {
		sum += uint64(w)
	}
	if sum == 0 || total < 0 {
		panic(fmt.Sprintf("plan: cannot divide %d rounds by weights %v", total, weights))
	}
	rounds := make([]int, len(weights))
	remainders := make([]uint64, len(weights))
	left := total
	for i, w := range weights {
		hi, lo := bits.Mul64(uint64(total), uint64(w))
		q, r := bits.Div64(hi, lo, sum) // hi < sum, since total·w/sum ≤ total
		rounds[i], remainders[i] = int(q), r
		left -= rounds[i]
	}
	order := make([]int, len(weights))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return remainders[order[a]] > remainders[order[b]] })
	for _, i := range order[:left] { // left < the number of remainders above 0
		rounds[i]++
	}
	return rounds
}

// New makes the plan in which rail i carries rounds[i] rounds, following those of rail
// i-1. It panics when they don't sum to the layout's rounds.
func New(l Layout, rounds []int) *Plan {
	p := &Plan{Layout: l, PerRail: make([]RailSpans, len(rounds))}
	total, spans := 0, 0
	for _, r := range rounds {
		if r < 0 {
			panic(fmt.Sprintf("plan: negative rounds in %v", rounds))
		}
		total += r
		spans += spanCount(l, r)
	}
	if total != l.Rounds {
		panic(fmt.Sprintf("plan: rails carry %v rounds of %d", rounds, l.Rounds))
	}
	p.Spans = make([]Span, 0, spans)
	first := 0
	for rail, r := range rounds {
		from, count := len(p.Spans), spanCount(l, r)
		for i := range count {
			start, end := spanStart(r, count, i), spanStart(r, count, i+1)
			s := Span{Rail: rail, Index: i, First: first + start, Count: end - start}
			_, length := l.Range(s.First, s.Count, 0) // the first block is the longest
			p.SpanBytes = max(p.SpanBytes, length)
			p.Spans = append(p.Spans, s)
		}
		p.PerRail[rail] = RailSpans{From: from, To: from + count, First: first, Rounds: r}
		first += r
	}
	return p
}

// spanCount is the number of spans that a rail's rounds are cut into: at least
// spansPerRail, unless that made them smaller than minSpanBytes per owner; and as many as
// keep them within MaxSpanBytes.
func spanCount(l Layout, rounds int) int {
	if rounds == 0 {
		return 0
	}
	perSpan := max(ceil(rounds, spansPerRail), ceil(minSpanBytes, l.Segment))
	perSpan = min(perSpan, MaxSpanBytes/l.Segment)
	return ceil(rounds, perSpan)
}

// spanStart is the round at which the i-th of count even spans begins, counted from the
// rail's first one: spans differ by one round at most, the longer ones come first.
func spanStart(rounds, count, i int) int {
	return i*(rounds/count) + min(i, rounds%count)
}

// Find is the number in Spans of the span of these rounds, which come from a header and
// may be anything; ok is false when the plan has no such span.
func (p *Plan) Find(rail, first, count int) (span int, ok bool) {
	if rail < 0 || rail >= len(p.PerRail) {
		return 0, false
	}
	r := p.PerRail[rail]
	at := first - r.First
	if at < 0 || at >= r.Rounds {
		return 0, false
	}
	short, long := r.Rounds/r.Len(), r.Rounds%r.Len()
	i := at / (short + 1)
	if i >= long {
		i = long + (at-long*(short+1))/short
	}
	s := &p.Spans[r.From+i]
	return r.From + i, s.First == first && s.Count == count
}

// RangeOf is the range of bytes of the owner's part of a span.
func (p *Plan) RangeOf(span, owner int) (off, length int) {
	s := &p.Spans[span]
	return p.Range(s.First, s.Count, owner)
}

// RailBytes is how much of the buffer a rail carries, over all owners.
func (p *Plan) RailBytes(rail int) (bytes int) {
	r := &p.PerRail[rail]
	if r.Rounds == p.Rounds {
		return p.Bytes
	}
	for owner := range p.Owners {
		_, length := p.Range(r.First, r.Rounds, owner)
		bytes += length
	}
	return bytes
}

// OwnersIn is the number of owners that have bytes in a span: owners 0 … OwnersIn-1. The
// others take no part in it. In the empty buffer all take part.
func (p *Plan) OwnersIn(span int) int {
	if p.Bytes == 0 {
		return p.Owners
	}
	return max(min(ceil(p.Bytes-p.start(p.Spans[span].First), p.Block), p.Owners), 0)
}
