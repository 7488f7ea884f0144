package pattern

import "github.com/polyrail/polyrail/collective/op"

// loc is one rank's pair of element j. Integers are exact in every type of value.
type loc struct{ value, index int }

// locOf has few different values, so that the index decides too; no two ranks have the same pair.
func locOf(rank op.Rank, j int) loc {
	v := mix(uint64(rank)<<32 | uint64(j))
	return loc{int(v%7) - 3, int(rank)<<3 | int(v>>32%8)}
}

// loc is element j of the fold of some ranks' operands.
func (p *Pattern) loc(ranks Ranks, j int) loc {
	best := locOf(ranks.First, j)
	for r := ranks.First + 1; r <= ranks.Last; r++ {
		x := locOf(r, j)
		first := x.value < best.value
		if p.code == op.CodeMaxLoc {
			first = x.value > best.value
		}
		if first || x.value == best.value && x.index < best.index {
			best = x
		}
	}
	return best
}

func appendLoc(b []byte, d op.DType, l loc) []byte {
	v, index := d.Value(), op.Int32
	if v.Size() == 8 {
		index = op.Int64
	}
	if v.Integer() {
		b = appendInt(b, v, uint64(l.value))
	} else {
		b = appendFloat(b, v, float64(l.value))
	}
	return appendInt(b, index, uint64(l.index))
}
