package balance

import (
	"math"
	"slices"

	"github.com/polyrail/polyrail/collective/op"
)

// point is what a rail took for some bytes, over some windows.
type point struct {
	class   Class
	alone   bool // no other rail carried a part of the operation
	bytes   float64
	seconds float64
	weight  float64
}

// line is the cost of a rail around one size: α + bytes/E (docs/decisions/022).
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
type model struct {
	points []point
	seen   []point // seenFrom's last
}

// form is how operations are run: by an algorithm among the ranks, or in its order by a tree.
type form struct {
	algorithm op.Algorithm
	treed     bool
}

// models are a rail's, by form: those that were looked at.
type models map[form]*model

func (m models) of(f form) *model {
	if m[f] == nil {
		m[f] = &model{}
	}
	return m[f]
}

// footing is how well a model can tell what a measurement should have been.
type footing uint8

const (
	unmeasured footing = iota // nothing like it was measured
	near                      // something near its size was, in the same company
	exact                     // the same was
)

// expect is the time that was to be expected of so many bytes, which took took. How much slower
// rails are together than alone is no change of theirs, and what a probe has seen once can't be
// held against a measurement. Where all that was measured is of about the same bytes, what is
// startup of it can't be told from what is transfer: any part is as likely.
func (m *model) expect(class Class, alone bool, bytes, took, lean float64) (seconds float64, f footing) {
	l := m.fit(class, alone, lean)
	if at := m.same(class, alone, bytes); at >= 0 && m.points[at].weight >= 1 {
		p := &m.points[at]
		return p.seconds * l.at(bytes) / l.at(p.bytes), exact
	}
	least, most := math.Inf(1), 0.0 // bytes that were measured
	for i := range m.points {
		if p := &m.points[i]; p.alone == alone && p.speaksFor(class) {
			least, most = min(least, p.bytes), max(most, p.bytes)
		}
	}
	switch {
	case most == 0:
		return 0, unmeasured
	case math.Log(most/least) < nearby:
		scaled := l.at(most) * bytes / most
		return min(max(took, min(l.at(most), scaled)), max(l.at(most), scaled)), near
	}
	return l.at(bytes), near
}

// measured reports whether anything near the class was, and not only probed.
func (m *model) measured(class Class) bool {
	return slices.ContainsFunc(m.points, func(p point) bool { return p.speaksFor(class) })
}

// speaksFor reports whether a point was measured near a class, and has not been doubted since.
func (p point) speaksFor(class Class) bool {
	return p.weight >= 1 && math.Abs(float64(p.class)-float64(class)) <= reach
}

// same is the point that a measurement belongs to; -1 if there is none.
func (m *model) same(class Class, alone bool, bytes float64) int {
	return slices.IndexFunc(m.points, func(q point) bool {
		return q.class == class && q.alone == alone && math.Abs(math.Log(q.bytes/bytes)) < nearby
	})
}

// observe takes a measurement. A point is the mean of that many of its last ones.
func (m *model) observe(p point, memory float64) {
	at := m.same(p.class, p.alone, p.bytes)
	count, oldest := 0, -1
	for i := range m.points {
		q := &m.points[i]
		if q.class != p.class || q.alone != p.alone || i == at {
			continue
		}
		q.weight *= fade
		count++
		if oldest < 0 || q.weight < m.points[oldest].weight {
			oldest = i
		}
	}
	switch {
	case at >= 0:
		q := &m.points[at]
		keep := min(q.weight, memory-1)
		if q.weight < 1 && p.seconds < q.seconds {
			keep = 0 // a few operations of a probe were disturbed: no rail is quicker than it can be
		}
		q.bytes = (q.bytes*keep + p.bytes) / (keep + 1)
		q.seconds = (q.seconds*keep + p.seconds) / (keep + 1)
		q.weight = keep + 1
	case count >= maxPointsPerClass:
		m.points[oldest] = p
	default:
		m.points = append(m.points, p)
	}
}

// rescale follows a rail that has become faster or slower: it has done so for all sizes, so what
// was known of them is scaled along, by the ratio to what was to be expected of p, and counts for
// little from then on. Much larger sizes aren't scaled: behind a shaper small operations become
// many times slower when its burst is used up, which says nothing of those. What hangs on the
// startup alone is left as it is.
func (m *model) rescale(p point, want, ratio, lean float64) {
	base := max(m.fit(p.class, p.alone, lean).startup, 0)
	for i := range m.points { // what a burst let pass in no time is scaled along
		base = min(base, m.points[i].seconds/2)
	}
	transfer := want - base
	factor := 1.0
	if transfer > 0.3*want {
		factor = min(max((want*ratio-base)/transfer, 1.0/64), 64)
	}
	for i := range m.points {
		q := &m.points[i]
		if q.seconds > base && q.bytes <= farOff*p.bytes {
			q.seconds = base + factor*(q.seconds-base)
		}
		q.weight = min(q.weight, 0.2)
	}
	if at := m.same(p.class, p.alone, p.bytes); at >= 0 {
		m.points[at].weight = 0 // the measurement takes its place
	}
}

// scale moves all that is known of the rail by a factor, and leaves how much it counts.
func (m *model) scale(factor float64) {
	for i := range m.points {
		m.points[i].seconds *= factor
	}
}

// tested reports whether the rail has worked alone for operations near the class.
func (m *model) tested(class Class) bool {
	return slices.ContainsFunc(m.points, func(p point) bool {
		return p.alone && p.weight >= 1 && p.class <= class+1 && class <= p.class+1
	})
}

// soonest is the least that a measurement of so many bytes alone or fewer took; infinite where
// there is none.
func (m *model) soonest(bytes float64) float64 {
	least := math.Inf(1)
	for i := range m.points {
		if p := &m.points[i]; p.alone && p.bytes <= bytes {
			least = min(least, p.seconds)
		}
	}
	return least
}

// evidence is how many measurements speak for the line at a size.
func (m *model) evidence(class Class, alone bool) (weight float64) {
	for i := range m.points {
		if p := &m.points[i]; p.alone == alone {
			weight += p.weight * p.class.nearness(class)
		}
	}
	return weight
}

// through moves a line to what the class took for so many bytes, if it was measured and took far
// longer than by the line. What a burst let pass of smaller operations outweighs it there, since errors
// are relative. It takes more where operations are not brief: of those a burst is a small part.
func (m *model) through(l line, class Class, alone bool, bytes float64) line {
	at := m.same(class, alone, bytes)
	if at < 0 || m.points[at].weight < 1 {
		return l
	}
	p, limit := &m.points[at], clearly
	if p.seconds > brief {
		limit = farOff
	}
	if factor := p.seconds / l.at(p.bytes); factor > limit {
		l.startup *= factor
		l.perByte *= factor
	}
	return l
}

// neighbourTo are the powers of neighbour, by the exponent.
var neighbourTo = func() (powers [Classes]float64) {
	for apart := range powers {
		powers[apart] = math.Pow(neighbour, float64(apart))
	}
	return powers
}()

// nearness is the weight that a class's points have for another one.
func (c Class) nearness(other Class) float64 { return neighbourTo[max(c, other)-min(c, other)] }

// seenFrom are the points as a class sees them, until it is called again: its own, and of each other
// class the mean of all that it has of a mode. What those differ by, a few rounds, may be a knee, and
// tells nothing of sizes that are many times as large or small.
func (m *model) seenFrom(class Class) []point {
	points := m.seen[:0]
	var at [2][Classes]int // of a class's mean in points, plus 1
	for _, p := range m.points {
		if p.class == class || p.weight == 0 {
			points = append(points, p)
			continue
		}
		mode := 0
		if p.alone {
			mode = 1
		}
		if at[mode][p.class] == 0 {
			points = append(points, p)
			at[mode][p.class] = len(points)
			continue
		}
		mean := &points[at[mode][p.class]-1]
		whole := mean.weight + p.weight
		mean.bytes += (p.bytes - mean.bytes) * p.weight / whole
		mean.seconds += (p.seconds - mean.seconds) * p.weight / whole
		mean.weight = whole
	}
	m.seen = points
	return points
}

// fit is the line through the points around a class: least squares of the relative errors, in which
// near classes count more. So one measurement teaches its neighbours, and each class follows its own
// measurements once it has some. Lean is the pull of α towards 0.
func (m *model) fit(class Class, alone bool, lean float64) line {
	var w, wb, wbb, wt, wbt float64
	for _, p := range m.seenFrom(class) {
		weight := p.weight * p.class.nearness(class) / (p.seconds * p.seconds)
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
	if det := w*(1+lean)*wbb - wb*wb; det > 0 {
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
