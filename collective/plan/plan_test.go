package plan

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/polyrail/polyrail/collective/schedule"
)

// operation is what a layout is made of.
type operation struct {
	elem, bytes int
	parts       Parts
	blocks      []schedule.Block
	cost        schedule.Cost
}

func (o *operation) layout() Layout { return NewLayout(o.bytes, o.elem, o.parts, o.blocks, o.cost) }

// even is an allreduce among so many owners.
func even(bytes, elem, owners int) Layout {
	o := operation{elem: elem, bytes: bytes, parts: Even(bytes, owners),
		cost: schedule.Cost{Widest: 1, Slots: owners - 1}}
	for part := range owners {
		o.blocks = append(o.blocks, schedule.Block{Part: part, Source: part, Target: part})
	}
	return o.layout()
}

// anyOperation has parts of any lengths, some of them none, and a block of each.
func anyOperation(t *rapid.T) operation {
	o := operation{elem: rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "elem")}
	// A few bytes to 32 GiB, each power of two as often: of a range rapid draws mostly small numbers.
	limit := rapid.SampledFrom(powers).Draw(t, "limit")
	elements := func() int { return limit - rapid.IntRange(0, limit).Draw(t, "less elements") }
	n := rapid.SampledFrom([]int{1, 2, 3, 6, 17}).Draw(t, "parts")
	if rapid.Bool().Draw(t, "even") {
		o.bytes = o.elem * elements()
		o.parts = Even(o.bytes, n)
	} else {
		for range n {
			o.parts = append(o.parts, o.elem*elements())
		}
		o.bytes = o.parts.Total()
	}
	for part := range n {
		b := schedule.Block{Part: part, Source: part, Target: schedule.None}
		if rapid.Bool().Draw(t, "received") {
			b.Source, b.Target = schedule.None, part
		}
		o.blocks = append(o.blocks, b)
	}
	o.cost = schedule.Cost{Widest: rapid.SampledFrom([]int{1, 1, n}).Draw(t, "widest"),
		Slots: rapid.IntRange(0, 200).Draw(t, "slots"),
		Depth: rapid.SampledFrom([]int{0, 0, 1, 3, 20}).Draw(t, "depth")}
	return o
}

var powers = func() (p []int) {
	for bits := range 33 {
		p = append(p, 1<<bits)
	}
	return p
}()

func anyWeights(t *rapid.T) []uint32 {
	w := rapid.SliceOfN(rapid.OneOf(rapid.Uint32Range(0, 4), rapid.Uint32()), 1, 4).Draw(t, "weights")
	w[rapid.IntRange(0, len(w)-1).Draw(t, "someone")] |= 1
	return w
}

func TestLayoutCoversEachBlockOnceInWholeElements(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := anyOperation(t)
		l := o.layout()
		if o.parts.Total() != o.bytes {
			t.Fatalf("parts %v have not %d bytes", o.parts, o.bytes)
		}
		next := 0
		for i, b := range l.Blocks {
			at := b.Source
			if at == schedule.None {
				at = b.Target
			}
			if at != next || b.Bytes != o.parts[i] {
				t.Fatalf("%+v: block %d begins at %d, want %d", l, i, at, next)
			}
			next += b.Bytes
			r := rapid.IntRange(0, l.Rounds-1).Draw(t, "round")
			start, before := l.Range(0, r, i)
			middle, after := l.Range(r, l.Rounds-r, i)
			if start != 0 || middle != before || before+after != b.Bytes || middle%o.elem != 0 {
				t.Fatalf("%+v: block %d: %d+%d and %d+%d", l, i, start, before, middle, after)
			}
			_, length := l.Range(r, 1, i)
			if length > l.Segment || length == 0 && l.Full() && l.Bytes > 0 {
				t.Fatalf("%+v: round %d of block %d has %d bytes", l, r, i, length)
			}
		}
		if l.Segment%64 != 0 || l.Segment < MinSegmentBytes || l.Segment > MaxSegmentBytes ||
			l.Segment*o.cost.Widest > MaxSpanBytes {
			t.Fatalf("%+v", l)
		}
	})
}

// The cut is one of the bits that all ranks share: it must not change by accident.
func TestLayoutOfAnAllReduce(t *testing.T) {
	for _, c := range []struct{ bytes, owners, block, segment, rounds int }{
		{0, 4, 0, 256, 1},
		{8, 1, 8, 256, 1},
		{8, 6, 8, 256, 1},
		{64 << 10, 6, 10944, 320, 42},
		{256 << 10, 6, 43712, 512, 96},
		{1 << 20, 4, 256 << 10, 2752, 96},
		{16 << 20, 4, 4 << 20, 43712, 96},
		{64 << 20, 6, 11184832, 62144, 180},
		{1 << 30, 2, 512 << 20, 64 << 10, 8196},
	} {
		l := even(c.bytes, 8, c.owners)
		if l.Blocks[0].Bytes != c.block || l.Segment != c.segment || l.Rounds != c.rounds {
			t.Errorf("%d bytes, %d owners: %+v, want %+v", c.bytes, c.owners, l, c)
		}
	}
}

// Shares of a small operation must not be coarse: of two rails of 4 : 1 at 64 KiB the slower one
// has 20 %, to a few.
func TestSmallOperationsDivideFinely(t *testing.T) {
	for owners := 2; owners <= 8; owners++ {
		l := even(64<<10, 4, owners)
		p := New(l, Rounds(l.Rounds, []uint32{4, 1}), schedule.Cost{Widest: 1})
		if share := float64(p.Lanes[1].Bytes) / float64(l.Bytes); share < 0.175 || share > 0.215 {
			t.Errorf("%d owners: the slower rail has %.3f of %d rounds", owners, share, l.Rounds)
		}
	}
}

// Lanes that carry as many rounds carry as many bytes, to 64 of each block: the last round is no
// shorter than others.
func TestEqualRoundsAreEqualBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := anyOperation(t)
		l := o.layout()
		half := l.Rounds / 2
		_, first := l.Range(0, half, 0)
		_, last := l.Range(l.Rounds-half, half, 0)
		if first-last > alignment || last-first > alignment {
			t.Fatalf("%+v: the first half has %d bytes, the last one %d", l, first, last)
		}
	})
}

func TestRoundsFollowTheWeights(t *testing.T) {
	for _, c := range []struct {
		total   int
		weights []uint32
		want    []int
	}{
		{96, []uint32{1, 1}, []int{48, 48}},
		{96, []uint32{4, 1}, []int{77, 19}},
		{1, []uint32{1, 1, 1}, []int{1, 0, 0}},
		{2, []uint32{1, 5, 5}, []int{0, 1, 1}},
		{10, []uint32{0, 3, 0}, []int{0, 10, 0}},
		{10, []uint32{1 << 31, 1 << 31, 1 << 31}, []int{4, 3, 3}},
	} {
		if got := Rounds(c.total, c.weights); !slices.Equal(got, c.want) {
			t.Errorf("Rounds(%d, %v) = %v, want %v", c.total, c.weights, got, c.want)
		}
	}
}

func TestRoundsAreWithinOneOfTheShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total, weights := rapid.IntRange(0, 1<<20).Draw(t, "total"), anyWeights(t)
		rounds := Rounds(total, weights)
		sum, all := 0, 0.0
		for _, w := range weights {
			all += float64(w)
		}
		for i, r := range rounds {
			sum += r
			share := float64(total) * float64(weights[i]) / all
			if d := float64(r) - share; d <= -1.001 || d >= 1.001 || weights[i] == 0 && r != 0 {
				t.Fatalf("rail %d of %v gets %d of %d rounds", i, weights, r, total)
			}
		}
		if sum != total {
			t.Fatalf("%v sums to %d, want %d", rounds, sum, total)
		}
	})
}

func TestSpansCoverEachLanesRoundsAndAreFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := anyOperation(t)
		l := o.layout()
		if l.Rounds > 10_000 {
			return
		}
		p := New(l, Rounds(l.Rounds, anyWeights(t)), o.cost)
		next := 0
		for i := range p.Lanes {
			lane := &p.Lanes[i]
			from, carried := next, 0
			for at, s := range lane.Spans {
				if s.First != next || s.Count < 1 {
					t.Fatalf("span %d of lane %d is %+v, want to begin at round %d", at, i, s, next)
				}
				next += s.Count
				if found, ok := lane.Find(s.First, s.Count); !ok || found != at {
					t.Fatalf("Find(%+v) = %d, %v, want %d", s, found, ok, at)
				}
				largest := 0
				for b := range l.Blocks {
					_, length := p.Range(s.First, s.Count, b)
					carried += length
					largest = max(largest, length)
					if slot := p.SlotBytes(lane, b); length > slot {
						t.Fatalf("block %d has %d bytes in %+v, its slot %d", b, length, s, slot)
					}
				}
				if largest*o.cost.Widest > MaxSpanBytes ||
					s.Count > 1 && largest*o.cost.Slots > ScratchBytes {
					t.Fatalf("%+v has %d bytes of a block, cost %+v", s, largest, o.cost)
				}
			}
			if next-from != lane.Rounds || carried != lane.Bytes {
				t.Fatalf("%+v: spans of %d rounds and %d bytes", lane, next-from, carried)
			}
			first, count := rapid.IntRange(-2, l.Rounds+2).Draw(t, "first"),
				rapid.IntRange(-1, 5).Draw(t, "count")
			want := slices.Index(lane.Spans, Span{first, count})
			if found, ok := lane.Find(first, count); ok != (want >= 0) || ok && found != want {
				t.Fatalf("Find(%d, %d) = %d, %v, want %d", first, count, found, ok, want)
			}
		}
		if next != l.Rounds {
			t.Fatalf("spans cover %d rounds of %d", next, l.Rounds)
		}
	})
}

func TestSpansAreManyEnoughToOverlapAndLargeEnoughToPay(t *testing.T) {
	for _, c := range []struct{ bytes, owners, lanes, spans int }{
		{8, 1, 1, 1},
		{64 << 10, 4, 2, 2},   // 8 KiB per owner and rail
		{1 << 20, 4, 2, 4},    // 128 KiB: 2 × 64
		{16 << 20, 4, 2, 20},  // 2 MiB: as large as frames allow
		{64 << 20, 6, 2, 46},  // 4 rounds each
		{256 << 10, 4, 2, 4},  // 32 KiB: 2 × 16
		{1 << 30, 2, 1, 2049}, // 512 MiB
	} {
		l := even(c.bytes, 8, c.owners)
		if got := spansOf(l, c.lanes, schedule.Cost{Widest: 1, Slots: c.owners - 1}); got != c.spans {
			t.Errorf("%+v: %d spans", c, got)
		}
	}
}

// spansOf is the number of spans over so many equal lanes.
func spansOf(l Layout, lanes int, cost schedule.Cost) (spans int) {
	for _, lane := range New(l, Rounds(l.Rounds, slices.Repeat([]uint32{1}, lanes)), cost).Lanes {
		spans += len(lane.Spans)
	}
	return spans
}

// A pipeline is idle for as many spans as it has links beyond the first.
func TestPipelinesHaveManySpans(t *testing.T) {
	for _, c := range []struct{ bytes, lanes, depth, least, longest int }{
		{16 << 20, 1, 2, 250, 64 << 10},
		{16 << 20, 2, 2, 250, 64 << 10},
		{1 << 20, 1, 2, 48, 22 << 10},
		{64 << 10, 1, 2, 3, 22 << 10},
	} {
		l := even(c.bytes, 4, 1)
		cost := schedule.Cost{Widest: 1, Slots: 1, Depth: c.depth}
		p := New(l, Rounds(l.Rounds, slices.Repeat([]uint32{1}, c.lanes)), cost)
		if got := spansOf(l, c.lanes, cost); got < c.least || p.SlotBytes(&p.Lanes[0], 0) > c.longest {
			t.Errorf("%+v: %d spans of up to %d bytes", c, got, p.SlotBytes(&p.Lanes[0], 0))
		}
	}
}

// The scratch of one span stays bounded, however many ranks there are: a window shrinks then, an
// operation doesn't fail.
func TestScratchOfASpanIsBounded(t *testing.T) {
	for _, n := range []int{18, 34, 66, 120} {
		l := even(128<<20, 4, n)
		p := New(l, Rounds(l.Rounds, []uint32{1, 1, 1, 1}), schedule.Cost{Widest: 1, Slots: n - 1})
		if scratch := p.SlotBytes(&p.Lanes[0], 0) * (n - 1); scratch > ScratchBytes {
			t.Errorf("%d ranks: %d bytes", n, scratch)
		}
	}
}
