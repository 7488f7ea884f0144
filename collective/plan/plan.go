package plan

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"sort"

	"github.com/polyrail/polyrail/collective/schedule"
)

// Bounds of a span, in bytes of one block.
const (
	MaxSpanBytes = 256 << 10 // the payload of a frame (wire.MaxPayload)
	// What the widest frames hold at least, where there is that much: smaller ones cost more than they
	// overlap.
	minFrameBytes = 24 << 10

	// Aimed at: the steps of one overlap with those of the other. More cost a processor more than
	// they gain.
	spansPerLane = 2

	// A pipeline of d links is idle for d spans at its ends, so it wants many spans for each
	// of its links, and none so large that one of them is felt.
	spansPerLink     = 32
	minPipelineBytes = 16 << 10
	maxPipelineBytes = 64 << 10

	// ScratchBytes bounds the scratch of one span over all blocks. It follows from form alone,
	// not from a rank's memory limit, since all ranks cut alike.
	ScratchBytes = 8 << 20
)

// Span is a run of consecutive rounds of a lane. A block's part of it is what one frame moves.
type Span struct {
	First int // round
	Count int // rounds, at least 1
}

// Lane is the part of a plan that one lane carries: consecutive rounds, cut into even spans.
type Lane struct {
	First  int // round
	Rounds int
	Spans  []Span
	Bytes  int // that it carries of this rank's blocks, together
}

// Plan is the cut of one operation. It is immutable and may be shared by operations.
type Plan struct {
	Layout
	Lanes []Lane
}

// Rounds divides total rounds over lanes by weight, in whole rounds: the largest
// remainders get what rounding down left over, the lower lane first among equals. The
// result sums to total; a lane of weight 0 gets nothing. It panics when no lane has a weight.
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

// New makes the plan in which lane i carries rounds[i] rounds, following those of lane
// i-1, in spans that suit an algorithm of that cost. It panics when they don't sum to the
// layout's rounds.
func New(l Layout, rounds []int, cost schedule.Cost) *Plan {
	return newPlan(l, rounds, func(rounds int) int { return l.spanRounds(rounds, cost) })
}

// NewSpans is New with spans of so many rounds, for tests that want many spans of few bytes.
func NewSpans(l Layout, rounds []int, perSpan int) *Plan {
	return newPlan(l, rounds, func(int) int { return perSpan })
}

func newPlan(l Layout, rounds []int, perSpan func(rounds int) int) *Plan {
	p := &Plan{Layout: l, Lanes: make([]Lane, len(rounds))}
	first := 0
	for i, r := range rounds {
		if r < 0 {
			panic(fmt.Sprintf("plan: negative rounds in %v", rounds))
		}
		lane := &p.Lanes[i]
		lane.First, lane.Rounds = first, r
		lane.cut(ceil(r, perSpan(r)))
		for block := range l.Blocks {
			_, length := l.Range(first, r, block)
			lane.Bytes += length
		}
		first += r
	}
	if first != l.Rounds {
		panic(fmt.Sprintf("plan: lanes carry %v rounds of %d", rounds, l.Rounds))
	}
	return p
}

// spanRounds is how many rounds a span of a lane with so many has at most. They are few enough that
// there are spans to overlap, and so many that frames are not small. They stay within the limits of
// frames and scratch.
func (l *Layout) spanRounds(rounds int, cost schedule.Cost) int {
	spans, least, most := spansPerLane, minFrameBytes/max(cost.Widest, 1), MaxSpanBytes
	if cost.Depth > 0 {
		spans, least, most = spansPerLink*cost.Depth, minPipelineBytes, maxPipelineBytes
	}
	most = min(most, MaxSpanBytes/max(cost.Widest, 1), ScratchBytes/max(cost.Slots, 1))
	perSpan := max(ceil(rounds, spans), ceil(least, l.Segment))
	return max(min(perSpan, most/l.Segment), 1)
}

// cut makes so many even spans: they differ by one round at most, the longer ones come first.
func (lane *Lane) cut(count int) {
	lane.Spans = make([]Span, count)
	at := lane.First
	for i := range lane.Spans {
		size := lane.Rounds / count
		if i < lane.Rounds%count {
			size++
		}
		lane.Spans[i] = Span{First: at, Count: size}
		at += size
	}
}

// Find is the number of the lane's span of these rounds, which come from a header and
// may be anything; ok is false when the lane has no such span.
func (lane *Lane) Find(first, count int) (span int, ok bool) {
	i, ok := slices.BinarySearchFunc(lane.Spans, first,
		func(s Span, first int) int { return cmp.Compare(s.First, first) })
	return i, ok && lane.Spans[i].Count == count
}

// SlotBytes bounds what one block takes in any span of the lane.
func (p *Plan) SlotBytes(lane *Lane, block int) int {
	if len(lane.Spans) == 0 {
		return 0
	}
	return p.longest(lane.Spans[0].Count, block)
}

// SpanBytes is what the longest block takes in a span of a lane, at most.
func (p *Plan) SpanBytes(lane int) (bytes int) {
	for block := range p.Blocks {
		bytes = max(bytes, p.SlotBytes(&p.Lanes[lane], block))
	}
	return bytes
}
