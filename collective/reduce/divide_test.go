package reduce

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
)

func TestDivideEqualsTheReference(t *testing.T) {
	divisors := []int{1, 2, 3, 7, 10, 127, 128, 129, 255, 256, 257, 2049, 65535, 65537, 1 << 24, 1<<31 - 1}
	for _, impl := range implementations() {
		for _, d := range divisible() {
			t.Run(fmt.Sprintf("impl=%s/dtype=%v", impl.name, d), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(3, uint64(d)))
				for _, n := range divisors {
					for length := range 131 {
						p := make([]byte, length*d.Size())
						fill(rng, d, p)
						checkDivide(t, impl.divide[d], d, p, n, rng.IntN(32))
					}
				}
			})
		}
	}
}

func TestDivideEqualsTheReferenceOnAllValuesOfSmallTypes(t *testing.T) {
	for _, d := range divisible() {
		if d.Size() > 2 {
			continue
		}
		all := make([]byte, d.Size()<<(8*d.Size()))
		for i := range 1 << (8 * d.Size()) {
			store(d, all[i*d.Size():], uint64(i))
		}
		for _, impl := range implementations() {
			for _, n := range []int{1, 2, 3, 5, 6, 7, 9, 11, 13, 48, 127, 128, 4099} {
				checkDivide(t, impl.divide[d], d, all, n, 0)
			}
		}
	}
}

// divisible are the types that Avg is defined on.
func divisible() (types []op.DType) {
	for _, d := range op.DTypes {
		if op.Avg.Check(d) == nil {
			types = append(types, d)
		}
	}
	return types
}

func checkDivide(t *testing.T, divide divideKernel, d op.DType, p []byte, n, skew int) {
	t.Helper()
	want := bytes.Clone(p)
	referenceDivide(d, want, n)
	got, intact := guarded(len(p), skew*d.Size())
	copy(got, p)
	divide(got, n)
	if i := firstDifference(d, got, want); i >= 0 {
		t.Fatalf("%v, element %d of %d: %#x / %d = %#x, want %#x", d, i, len(p)/d.Size(),
			fetch(d, p[i*d.Size():]), n, fetch(d, got[i*d.Size():]), fetch(d, want[i*d.Size():]))
	}
	if !intact() {
		t.Fatalf("%v, %d elements: wrote outside", d, len(p)/d.Size())
	}
}

func TestDivideFinishesAnAverage(t *testing.T) {
	v := []float32{3, -9, 10}
	Divide(op.F32, op.Bytes(v), 4)
	if v[0] != 0.75 || v[1] != -2.25 || v[2] != 2.5 {
		t.Fatalf("got %v", v)
	}
}

func TestDivideTruncatesIntegersTowardZero(t *testing.T) {
	v := []int8{7, -7, -128, 127}
	Divide(op.Int8, op.Bytes(v), 2)
	if fmt.Sprint(v) != "[3 -3 -64 63]" {
		t.Fatalf("got %v", v)
	}
	v = []int8{-128, 127}
	Divide(op.Int8, op.Bytes(v), 128) // 128 is not an int8
	if fmt.Sprint(v) != "[-1 0]" {
		t.Fatalf("got %v", v)
	}
}

func TestDividePanicsWhereNoAverageLeads(t *testing.T) {
	for _, c := range []struct {
		d     op.DType
		bytes int
		n     int
	}{{op.F32, 8, 0}, {op.Int8, 8, -1}, {0, 8, 2}, {op.F64, 12, 2}, {op.F64Loc, 32, 2}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Divide of %d bytes of %v by %d did not panic", c.bytes, c.d, c.n)
				}
			}()
			Divide(c.d, make([]byte, c.bytes), c.n)
		}()
	}
}
