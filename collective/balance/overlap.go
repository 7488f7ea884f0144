package balance

import (
	"slices"
	"time"
)

// mostSpans bounds what is remembered of a rail: of operations in flight together few leave it idle.
const mostSpans = 16

// Overlap takes out of a rank's times what operations in flight together waited for each other
// (docs/decisions/023). A moment in which a rail worked for several operations counts for the one of
// them that ended first. So the times of a rail add up to the time in which it worked.
// It is not safe for concurrent use.
type Overlap struct {
	spans [][]span // by rail: when it worked, as far as operations were told; ascending and apart
}

// span is from one moment to another one.
type span struct{ from, to time.Duration }

// Own leaves of an operation's times what no operation before it was charged. Operations are told in
// the order in which they end; began is counted from any moment that is the same for all.
func (o *Overlap) Own(began time.Duration, times []RailTime) {
	for i := range times {
		t := &times[i]
		for t.Rail >= len(o.spans) {
			o.spans = append(o.spans, nil)
		}
		t.Elapsed = o.take(t.Rail, span{began, began + t.Elapsed})
	}
}

// take adds a span to a rail's, and returns how much of it is new.
func (o *Overlap) take(rail int, s span) (fresh time.Duration) {
	spans, whole := o.spans[rail], s
	fresh = s.to - s.from
	first := slices.IndexFunc(spans, func(old span) bool { return old.to >= s.from })
	if first < 0 {
		first = len(spans)
	}
	after := first
	for ; after < len(spans) && spans[after].from <= s.to; after++ {
		old := spans[after]
		fresh -= min(old.to, s.to) - max(old.from, s.from)
		whole = span{min(whole.from, old.from), max(whole.to, old.to)}
	}
	spans = slices.Replace(spans, first, after, whole)
	if len(spans) > mostSpans {
		spans = slices.Delete(spans, 0, 1)
	}
	o.spans[rail] = spans
	return fresh
}
