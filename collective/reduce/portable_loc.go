package reduce

import (
	"math"

	"github.com/polyrail/polyrail/collective/op"
)

type locIndex interface{ int32 | int64 }

// A loc kernel picks the first of two pairs in a total order: by value, then by index. So it is
// associative and commutative, and its bits depend on no order.

func minLocInteger[V, I locIndex](dst, a, b []byte) {
	d, x, y := elements[op.Loc[V, I]](dst), elements[op.Loc[V, I]](a), elements[op.Loc[V, I]](b)
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		p, q := x[i], y[i]
		if q.Value < p.Value || q.Value == p.Value && q.Index < p.Index {
			p = q
		}
		d[i] = p
	}
}

func maxLocInteger[V, I locIndex](dst, a, b []byte) {
	d, x, y := elements[op.Loc[V, I]](dst), elements[op.Loc[V, I]](a), elements[op.Loc[V, I]](b)
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		p, q := x[i], y[i]
		if q.Value > p.Value || q.Value == p.Value && q.Index < p.Index {
			p = q
		}
		d[i] = p
	}
}

func minLocFloat[V float, I locIndex](dst, a, b []byte) {
	d, x, y := elements[op.Loc[V, I]](dst), elements[op.Loc[V, I]](a), elements[op.Loc[V, I]](b)
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		p, q := x[i], y[i]
		switch {
		case p.Value < q.Value:
		case q.Value < p.Value:
			p = q
		default:
			p = tie(p, q, true)
		}
		d[i] = p
	}
}

func maxLocFloat[V float, I locIndex](dst, a, b []byte) {
	d, x, y := elements[op.Loc[V, I]](dst), elements[op.Loc[V, I]](a), elements[op.Loc[V, I]](b)
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		p, q := x[i], y[i]
		switch {
		case p.Value > q.Value:
		case q.Value > p.Value:
			p = q
		default:
			p = tie(p, q, false)
		}
		d[i] = p
	}
}

// tie picks one of two pairs whose values are equal, zeros of either sign, or not both
// numbers. negative says which zero comes first.
func tie[V float, I locIndex](p, q op.Loc[V, I], negative bool) op.Loc[V, I] {
	pNaN, qNaN := p.Value != p.Value, q.Value != q.Value
	pSign, qSign := math.Signbit(float64(p.Value)), math.Signbit(float64(q.Value))
	switch {
	case pNaN && qNaN:
		return op.Loc[V, I]{Value: canonicalNaN[V](), Index: min(p.Index, q.Index)}
	case pNaN:
		return op.Loc[V, I]{Value: canonicalNaN[V](), Index: p.Index}
	case qNaN:
		return op.Loc[V, I]{Value: canonicalNaN[V](), Index: q.Index}
	case pSign != qSign:
		if qSign == negative {
			return q
		}
		return p
	case q.Index < p.Index:
		return q
	}
	return p
}
