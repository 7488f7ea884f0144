package plan

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func anyLayout(t *rapid.T) Layout {
	elem := rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "elem")
	owners := rapid.IntRange(1, 17).Draw(t, "owners")
	limit := rapid.SampledFrom([]int{10, 1000, 100_000, 50_000_000, 1 << 40}).Draw(t, "limit")
	return NewLayout(elem*rapid.IntRange(0, limit).Draw(t, "elements"), elem, owners)
}

func anyWeights(t *rapid.T) []uint32 {
	w := rapid.SliceOfN(rapid.OneOf(rapid.Uint32Range(0, 4), rapid.Uint32()), 1, 4).Draw(t, "weights")
	w[rapid.IntRange(0, len(w)-1).Draw(t, "someone")] |= 1
	return w
}

func TestLayoutCoversTheBufferOnceInWholeElements(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLayout(t)
		next := 0
		for o := range l.Owners {
			off, length := l.Range(0, l.Rounds, o)
			if length > 0 && off != next {
				t.Fatalf("%+v: owner %d begins at %d, want %d", l, o, off, next)
			}
			next += length
			if off%l.ElemSize != 0 || length%l.ElemSize != 0 {
				t.Fatalf("%+v: owner %d has bytes %d+%d", l, o, off, length)
			}
			r := rapid.IntRange(0, l.Rounds-1).Draw(t, "round")
			a, before := l.Range(0, r, o)
			b, after := l.Range(r, l.Rounds-r, o)
			if _, length := l.Range(r, 1, o); length > l.Segment {
				t.Fatalf("%+v: round %d of owner %d has %d bytes", l, r, o, length)
			}
			if before+after != length || after > 0 && b != a+before {
				t.Fatalf("%+v: owner %d: %d+%d and %d+%d aren't its block", l, o, a, before, b, after)
			}
		}
		if next != l.Bytes {
			t.Fatalf("%+v: blocks cover %d bytes", l, next)
		}
		if l.Segment%64 != 0 || l.Block%64 != 0 || l.Segment < MinSegmentBytes || l.Segment > MaxSegmentBytes {
			t.Fatalf("%+v", l)
		}
	})
}

func TestLayoutFollowsTheDesign(t *testing.T) {
	for _, c := range []struct{ bytes, owners, block, segment, rounds int }{
		{0, 4, 0, 256, 1},
		{8, 1, 64, 256, 1},
		{8, 6, 64, 256, 1},
		{64 << 10, 6, 10944, 320, 42},
		{256 << 10, 6, 43712, 512, 96},
		{1 << 20, 4, 256 << 10, 2752, 96},
		{16 << 20, 4, 4 << 20, 43712, 96},
		{64 << 20, 6, 11184832, 62144, 180},
		{1 << 30, 2, 512 << 20, 64 << 10, 8196},
	} {
		l := NewLayout(c.bytes, 8, c.owners)
		if l.Block != c.block || l.Segment != c.segment || l.Rounds != c.rounds {
			t.Errorf("%d bytes, %d owners: %+v, want %+v", c.bytes, c.owners, l, c)
		}
	}
}

// Shares of a small operation must not be coarse: of two rails of 4 : 1 at 64 KiB the slower one has 20 %, to a few.
func TestSmallOperationsDivideFinely(t *testing.T) {
	for owners := 2; owners <= 8; owners++ {
		l := NewLayout(64<<10, 4, owners)
		p := New(l, Rounds(l.Rounds, []uint32{4, 1}))
		var bytes int
		for owner := range owners {
			_, length := p.Range(p.PerRail[1].First, p.PerRail[1].Rounds, owner)
			bytes += length
		}
		if share := float64(bytes) / float64(l.Bytes); share < 0.175 || share > 0.215 {
			t.Errorf("%d owners: the slower rail has %.3f of %d rounds", owners, share, l.Rounds)
		}
	}
}

// Rails that carry as many rounds carry as many bytes, to 64 of each owner: the last round is no shorter than others.
func TestEqualRoundsAreEqualBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLayout(t)
		if l.Bytes < 2*MinSegmentBytes*l.Owners {
			return
		}
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

func TestSpansCoverEachRailsRoundsAndAreFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		elem, owners := rapid.SampledFrom([]int{1, 4, 8}).Draw(t, "elem"), rapid.IntRange(1, 9).Draw(t, "owners")
		l := NewLayout(elem*rapid.IntRange(0, 4<<20).Draw(t, "elements"), elem, owners)
		p := New(l, Rounds(l.Rounds, anyWeights(t)))
		next, largest := 0, 0
		carried := make([]int, len(p.PerRail))
		for i, s := range p.Spans {
			if s.First != next || s.Count < 1 {
				t.Fatalf("span %d is %+v, want to begin at round %d", i, s, next)
			}
			next += s.Count
			if r := p.PerRail[s.Rail]; r.From+s.Index != i || i >= r.To {
				t.Fatalf("span %d is %+v on rail %+v", i, s, r)
			}
			if found, ok := p.Find(s.Rail, s.First, s.Count); !ok || found != i {
				t.Fatalf("Find(%+v) = %d, %v, want %d", s, found, ok, i)
			}
			for o := range owners {
				_, length := p.RangeOf(i, o)
				largest = max(largest, length)
				carried[s.Rail] += length
				if took := o < p.OwnersIn(i); took != (length > 0 || l.Bytes == 0) {
					t.Fatalf("owner %d has %d bytes in span %d, OwnersIn says %d", o, length, i, p.OwnersIn(i))
				}
			}
		}
		if next != l.Rounds || largest != p.SpanBytes || largest > MaxSpanBytes {
			t.Fatalf("spans cover %d rounds of %d, the largest has %d bytes, SpanBytes says %d", next, l.Rounds, largest, p.SpanBytes)
		}
		for rail, bytes := range carried {
			if got := p.RailBytes(rail); got != bytes {
				t.Fatalf("RailBytes(%d) = %d, its spans have %d", rail, got, bytes)
			}
		}
		rail, first, count := rapid.IntRange(-1, 4).Draw(t, "rail"), rapid.IntRange(-2, l.Rounds+2).Draw(t, "first"), rapid.IntRange(-1, 5).Draw(t, "count")
		want := slices.IndexFunc(p.Spans, func(s Span) bool { return s.Rail == rail && s.First == first && s.Count == count })
		if found, ok := p.Find(rail, first, count); ok != (want >= 0) || ok && found != want {
			t.Fatalf("Find(%d, %d, %d) = %d, %v, want %d", rail, first, count, found, ok, want)
		}
	})
}

func TestSpansAreManyEnoughToOverlapAndLargeEnoughToPay(t *testing.T) {
	for _, c := range []struct{ bytes, owners, rails, spans int }{
		{8, 1, 1, 1},
		{64 << 10, 4, 2, 2},   // 8 KiB per owner and rail
		{1 << 20, 4, 2, 4},    // 128 KiB: 2 × 64
		{16 << 20, 4, 2, 20},  // 2 MiB: as large as frames allow
		{64 << 20, 6, 2, 46},  // 4 rounds each
		{256 << 10, 4, 2, 4},  // 32 KiB: 2 × 16
		{1 << 30, 2, 1, 2049}, // 512 MiB
	} {
		l := NewLayout(c.bytes, 8, c.owners)
		weights := make([]uint32, c.rails)
		for i := range weights {
			weights[i] = 1
		}
		if p := New(l, Rounds(l.Rounds, weights)); len(p.Spans) != c.spans {
			t.Errorf("%+v: %d spans: %+v", c, len(p.Spans), p.PerRail)
		}
	}
}
