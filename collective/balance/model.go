package balance

import (
	"math"
	"slices"
	"time"

	"github.com/polyrail/polyrail/collective/op"
)

// How a rail's model forgets, and what it takes for a change of the rail.
const (
	maxPointsPerClass = 3     // kept of one class and mode: where its share was before is what tells α from E
	maxWeight         = 4     // windows that a point remembers
	fade              = 0.5   // what older points of a class keep of their weight when a new one comes
	nearby            = 0.15  // points whose bytes differ by less are one point
	neighbour         = 0.3   // weight of a point per size class that it is away
	otherMode         = 1e-3  // weight of a point that was taken alone when rails together are asked for, and the reverse
	leanToZero        = 0.003 // pull of α towards 0, in squares of relative error: decides where points can't
	changedRatio      = 1.35  // measured against predicted time, above which the rail itself has changed
	changedFar        = 1.8   // the same where the prediction is that of other sizes or shares
	nearClasses       = 3     // how far away these may be
)

// point is what a rail took for some bytes, over some windows.
type point struct {
	class   Class
	alone   bool // no other rail carried a part of the operation
	bytes   float64
	seconds float64
	weight  float64
}

// line is the cost of a rail around one size: α + bytes/E (DESIGN §6).
type line struct {
	startup float64 // α, in seconds
	perByte float64 // 1/E, in seconds
	known   bool
}

// at is the time for so many bytes; a burst makes no time negative.
func (l line) at(bytes float64) float64 {
	return max(l.startup+l.perByte*bytes, 0.1*l.perByte*bytes)
}

// rate is E in bytes per second.
func (l line) rate() float64 { return 1 / l.perByte }

// model is what is known of one rail under one algorithm. α and E are of the algorithm, not
// of the link: a ring has more steps than recursive doubling and moves fewer bytes.
type model struct{ points []point }

// models are a rail's, by algorithm: few, and only those that were measured.
type models map[op.Algorithm]*model

func (m models) of(a op.Algorithm) *model {
	if m[a] == nil {
		m[a] = &model{}
	}
	return m[a]
}

// observe takes a measurement, and reports whether it shows that the rail has changed.
func (m *model) observe(class Class, alone bool, bytes int64, elapsed time.Duration) (changed bool) {
	p := point{class: class, alone: alone, bytes: float64(max(bytes, 1)), seconds: max(elapsed, 1).Seconds(), weight: 1}
	at := slices.IndexFunc(m.points, func(q point) bool {
		return q.class == class && q.alone == alone && math.Abs(math.Log(q.bytes/p.bytes)) < nearby
	})
	switch {
	case at >= 0:
		changed = m.rescale(p, changedRatio)
	case m.near(class, alone):
		changed = m.rescale(p, changedFar)
	}
	count, oldest := 0, -1
	for i := range m.points {
		q := &m.points[i]
		if q.class != class || q.alone != alone || i == at {
			continue
		}
		q.weight *= fade
		count++
		if oldest < 0 || q.weight < m.points[oldest].weight {
			oldest = i
		}
	}
	switch {
	case at >= 0 && !changed:
		q := &m.points[at]
		keep := min(q.weight, maxWeight-1)
		q.bytes = (q.bytes*keep + p.bytes) / (keep + 1)
		q.seconds = (q.seconds*keep + p.seconds) / (keep + 1)
		q.weight = keep + 1
	case at >= 0:
		m.points[at] = p
	case count >= maxPointsPerClass-1:
		m.points[oldest] = p
	default:
		m.points = append(m.points, p)
	}
	return changed
}

// near reports whether something was measured near the class, in the same company: only that can be held against a
// measurement; what a probe has seen once can't. How much slower rails are together than alone is no change of theirs.
func (m *model) near(class Class, alone bool) bool {
	return slices.ContainsFunc(m.points, func(p point) bool {
		return p.alone == alone && p.weight >= 1 && math.Abs(float64(p.class)-float64(class)) <= nearClasses
	})
}

// rescale compares a measurement with what was to be expected. A rail that has become faster
// or slower has done so for all sizes: what was known of them is scaled along, and counts for little from then
// on. What hangs on the startup alone is left as it is.
func (m *model) rescale(p point, limit float64) (changed bool) {
	l := m.fit(p.class, p.alone)
	want := l.at(p.bytes)
	if ratio := p.seconds / want; ratio < limit && ratio > 1/limit {
		return false
	}
	base := max(l.startup, 0)
	transfer := want - base
	factor := 1.0
	if transfer > 0.3*want {
		factor = min(max((p.seconds-base)/transfer, 1.0/64), 64)
	}
	for i := range m.points {
		q := &m.points[i]
		if q.seconds > base {
			q.seconds = base + factor*(q.seconds-base)
		}
		q.weight = min(q.weight, 0.2)
	}
	return true
}

// fit is the line through the points around a class: least squares of the relative errors, in which
// near classes count more. So one measurement teaches its neighbours, and each class follows its own
// measurements once it has some.
func (m *model) fit(class Class, alone bool) line {
	var w, wb, wbb, wt, wbt float64
	for i := range m.points {
		p := &m.points[i]
		weight := p.weight * math.Pow(neighbour, math.Abs(float64(p.class)-float64(class))) / (p.seconds * p.seconds)
		if p.alone != alone {
			weight *= otherMode
		}
		w += weight
		wb += weight * p.bytes
		wbb += weight * p.bytes * p.bytes
		wt += weight * p.seconds
		wbt += weight * p.bytes * p.seconds
	}
	if w == 0 {
		return line{}
	}
	l := line{known: true}
	// α is pulled towards 0 a little: then a single point is a line through the origin, which overrates
	// what more bytes would take, and never underrates it.
	if det := w*(1+leanToZero)*wbb - wb*wb; det > 0 {
		l.startup = (wt*wbb - wbt*wb) / det
		l.perByte = (wbt - l.startup*wb) / wbb
	}
	average := wt / wb // seconds per byte over all points
	// Below 0 α is what a shaper lets through in a burst. More than half of the time it can't be.
	if least := -0.5 * wt / w; l.startup < least {
		l.startup, l.perByte = least, (wbt-least*wb)/wbb
	}
	if least := average * 0.02; l.perByte < least { // no rail is infinitely fast
		l.perByte = least
		l.startup = max(wt-l.perByte*wb, 0) / w
	}
	return l
}
