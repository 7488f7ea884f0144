package sim

import (
	"bytes"
	"math"
	"math/bits"

	"github.com/polyrail/polyrail/collective/op"
)

// floatPool keeps memory by size class.
type floatPool [32][][]float32

// get returns n numbers, all poison: a NaN that no arithmetic on the inputs makes.
func (p *floatPool) get(n int) []float32 {
	class := bits.Len(uint(n))
	var v []float32
	if kept := p[class]; len(kept) > 0 {
		v, p[class] = kept[len(kept)-1][:n], kept[:len(kept)-1]
	} else {
		v = make([]float32, n, 1<<class)
	}
	poison(v)
	return v
}

func (p *floatPool) put(v []float32) {
	if cap(v) > 0 {
		class := bits.Len(uint(cap(v))) - 1
		p[class] = append(p[class], v[:0])
	}
}

var poisonValue = math.Float32frombits(0x7fc0dead)

func poison(v []float32) {
	for i := range v {
		v[i] = poisonValue
	}
}

func poisoned(v []float32) bool {
	for _, f := range v {
		if math.Float32bits(f) != 0x7fc0dead {
			return false
		}
	}
	return true
}

// same reports whether two vectors are equal to the bit.
func same(a, b []float32) bool { return bytes.Equal(op.Bytes(a), op.Bytes(b)) }
