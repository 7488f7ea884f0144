package reduce

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
)

// An aliasing says which operand a kernel overwrites.
type aliasing int

const (
	apart aliasing = iota
	ontoA
	ontoB
)

func (a aliasing) String() string { return [...]string{"apart", "dst=a", "dst=b"}[a] }

// A guarded buffer sits between bytes that a kernel must not touch.
const (
	guardBytes = 64
	guardByte  = 0xa5
)

// guarded returns n bytes that start skew bytes into a buffer, and a function that
// reports whether anything around them was written.
func guarded(n, skew int) (p []byte, intact func() bool) {
	whole := bytes.Repeat([]byte{guardByte}, guardBytes+skew+n+guardBytes)
	start := guardBytes + skew
	return whole[start : start+n : start+n], func() bool {
		around := append(bytes.Clone(whole[:start]), whole[start+n:]...)
		return bytes.Count(around, []byte{guardByte}) == len(around)
	}
}

// operands are the input of a kernel and what the reference makes of it.
type operands struct {
	code       op.Code
	dtype      op.DType
	a, b, want []byte
}

func withReference(c op.Code, d op.DType, a, b []byte) operands {
	o := operands{code: c, dtype: d, a: a, b: b, want: make([]byte, len(a))}
	referenceCombine(c, d, o.want, a, b)
	return o
}

// check runs kernel once on copies of the operands, which start skew elements off the
// buffer's start, and compares with the reference.
func (o operands) check(t *testing.T, impl implementation, alias aliasing, skew int) {
	t.Helper()
	a, b, d, want := o.a, o.b, o.dtype, o.want
	x, xIntact := guarded(len(a), skew*d.Size())
	y, yIntact := guarded(len(b), 2*skew*d.Size())
	dst, dstIntact := guarded(len(a), 3*skew*d.Size())
	copy(x, a)
	copy(y, b)
	switch alias {
	case ontoA:
		dst = x
	case ontoB:
		dst = y
	}
	impl.binary[o.code][d](dst, x, y)

	if i := firstDifference(d, dst, want); i >= 0 {
		t.Fatalf("%s, %v of %v, %v, skew %d, element %d of %d: %#x ∘ %#x = %#x, want %#x", impl.name, o.code, d, alias, skew, i, len(a)/d.Size(),
			fetch(d, a[i*d.Size():]), fetch(d, b[i*d.Size():]), fetch(d, dst[i*d.Size():]), fetch(d, want[i*d.Size():]))
	}
	if !xIntact() || !yIntact() || !dstIntact() {
		t.Fatalf("%s, %v of %v, %v, skew %d, %d elements: wrote outside of dst", impl.name, o.code, d, alias, skew, len(a)/d.Size())
	}
	if alias != ontoA && !bytes.Equal(x, a) || alias != ontoB && !bytes.Equal(y, b) {
		t.Fatalf("%s, %v of %v, %v, skew %d, %d elements: changed an operand", impl.name, o.code, d, alias, skew, len(a)/d.Size())
	}
}

// firstDifference returns the index of the first element that differs, or -1.
func firstDifference(d op.DType, p, q []byte) int {
	if bytes.Equal(p, q) {
		return -1
	}
	i := 0
	for p[i] == q[i] {
		i++
	}
	return i / d.Size()
}

func TestKernelsEqualTheReferenceOnAllLengthsAndAlignments(t *testing.T) {
	lengths := []int{255, 257, 511, 1023, 4099}
	for n := range 131 {
		lengths = append(lengths, n)
	}
	forEachKernel(func(o op.Op, d op.DType) {
		rng := rand.New(rand.NewPCG(1, uint64(o.Code())<<8|uint64(d)))
		for _, n := range lengths {
			a, b := make([]byte, n*d.Size()), make([]byte, n*d.Size())
			fill(rng, d, a)
			fill(rng, d, b)
			input := withReference(o.Code(), d, a, b)
			for _, impl := range implementations() {
				for _, alias := range []aliasing{apart, ontoA, ontoB} {
					input.check(t, impl, alias, rng.IntN(32))
				}
			}
		}
	})
}

func TestKernelsEqualTheReferenceOnAllPairsOfSpecialValues(t *testing.T) {
	forEachKernel(func(o op.Op, d op.DType) {
		if d.Loc() { // see TestLocKernelsEqualTheReferenceOnAllPairsOfSpecialValues
			return
		}
		var a, b []byte
		element := make([]byte, d.Size())
		for _, x := range specials(d) {
			for _, y := range specials(d) {
				store(d, element, x)
				a = append(a, element...)
				store(d, element, y)
				b = append(b, element...)
			}
		}
		input := withReference(o.Code(), d, a, b)
		for _, impl := range implementations() {
			input.check(t, impl, apart, 0)
		}
	})
}

// All values of the small types against many partners, from both sides.
func TestKernelsEqualTheReferenceOnAllValuesOfSmallTypes(t *testing.T) {
	forEachKernel(func(o op.Op, d op.DType) {
		if d.Size() > 2 {
			return
		}
		t.Run(fmt.Sprintf("op=%v/dtype=%v", o, d), func(t *testing.T) {
			t.Parallel()
			values := 1 << (8 * d.Size())
			all, partners := make([]byte, values*d.Size()), make([]byte, values*d.Size())
			want, got := make([]byte, len(all)), make([]byte, len(all))
			for i := range values {
				store(d, all[i*d.Size():], uint64(i))
			}
			for _, partner := range partnersOf(d) {
				for i := range values {
					store(d, partners[i*d.Size():], partner)
				}
				referenceCombine(o.Code(), d, want, all, partners)
				for _, impl := range implementations() {
					kernel := impl.binary[o.Code()][d]
					kernel(got, all, partners)
					if i := firstDifference(d, got, want); i >= 0 {
						t.Fatalf("%s: %#x ∘ %#x = %#x, want %#x", impl.name, i, partner,
							fetch(d, got[i*d.Size():]), fetch(d, want[i*d.Size():]))
					}
					kernel(got, partners, all) // every built-in operator is commutative, NaNs included
					if i := firstDifference(d, got, want); i >= 0 {
						t.Fatalf("%s: %#x ∘ %#x = %#x, want %#x", impl.name, partner, i,
							fetch(d, got[i*d.Size():]), fetch(d, want[i*d.Size():]))
					}
				}
			}
		})
	})
}

// partnersOf are the special values and random ones: the same in each run.
func partnersOf(d op.DType) []uint64 {
	partners := specials(d)
	if testing.Short() {
		return partners[:8]
	}
	rng := rand.New(rand.NewPCG(2, uint64(d)))
	for len(partners) < 100 {
		partners = append(partners, rng.Uint64N(1<<(8*d.Size())))
	}
	return partners
}

func TestForHandsOutTheChosenKernels(t *testing.T) {
	forEachKernel(func(o op.Op, d op.DType) {
		combine, err := For(o, d)
		if err != nil {
			t.Fatalf("For(%v, %v): %v", o, d, err)
		}
		input := withReference(o.Code(), d, bytes.Repeat([]byte{7}, 208), bytes.Repeat([]byte{3}, 208))
		got := make([]byte, 208)
		if err := combine(got, input.a, input.b); err != nil {
			t.Fatalf("%v of %v: %v", o, d, err)
		}
		if !bytes.Equal(got, input.want) {
			t.Fatalf("%v of %v: wrong result", o, d)
		}
	})
}

func TestForGivesAvgTheKernelOfSum(t *testing.T) {
	combine, err := For(op.Avg, op.Int8)
	if err != nil {
		t.Fatal(err)
	}
	got := []byte{1, 2, 3}
	if err := combine(got, got, []byte{10, 20, 30}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, []byte{11, 22, 33}) {
		t.Fatalf("got %v", got)
	}
}

func TestForReturnsAUsersFunction(t *testing.T) {
	mine := errors.New("mine")
	combine, err := For(op.User("mine", op.F32, func(_, _, _ []byte) error { return mine }), op.F32)
	if err != nil {
		t.Fatal(err)
	}
	if err := combine(nil, nil, nil); err != mine {
		t.Fatalf("got %v", err)
	}
}

func TestForRefusesWhatIsNotDefined(t *testing.T) {
	for _, c := range []struct {
		o op.Op
		d op.DType
	}{
		{op.BitAnd, op.F32}, {op.BitXor, op.BF16}, {op.Op{}, op.F32}, {op.Sum, 0}, {op.Sum, 200},
		{op.User("mine", op.F32, func(_, _, _ []byte) error { return nil }), op.F64},
	} {
		if combine, err := For(c.o, c.d); err == nil || combine != nil {
			t.Errorf("For(%v, %v) gave no error", c.o, c.d)
		}
	}
}

func TestKernelsRefuseOperandsThatDoNotFit(t *testing.T) {
	combine, err := For(op.Sum, op.F32)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range [][3]int{{64, 32, 64}, {64, 64, 32}, {32, 64, 64}, {62, 62, 62}, {3, 3, 3}} {
		dst := bytes.Repeat([]byte{guardByte}, n[0])
		err := combine(dst, make([]byte, n[1]), make([]byte, n[2]))
		if err == nil || !strings.Contains(err.Error(), "sum of float32") {
			t.Errorf("%v bytes: error %v", n, err)
		}
		if bytes.Count(dst, []byte{guardByte}) != n[0] {
			t.Errorf("%v bytes: wrote before it failed", n)
		}
	}
}

func TestKernelsAllocateNothing(t *testing.T) {
	dst, a := make([]byte, 4096), make([]byte, 4096)
	forEachKernel(func(o op.Op, d op.DType) {
		allocations := testing.AllocsPerRun(10, func() {
			combine, err := For(o, d)
			if err != nil {
				t.Fatal(err)
			}
			if err := combine(dst, a, dst); err != nil {
				t.Fatal(err)
			}
		})
		if allocations != 0 {
			t.Errorf("%v of %v: %v allocations", o, d, allocations)
		}
	})
}

func FuzzKernelsEqualTheReference(f *testing.F) {
	f.Add(uint8(op.CodeSum), uint8(op.F16), uint8(ontoA), uint8(3), bytes.Repeat([]byte{0x01, 0x7c, 0xff, 0x80}, 40))
	f.Add(uint8(op.CodeMin), uint8(op.F64), uint8(ontoB), uint8(0), make([]byte, 1000))
	f.Add(uint8(op.CodeMinLoc), uint8(op.F32Loc), uint8(ontoA), uint8(2),
		bytes.Repeat([]byte{0x80, 0x7f, 0}, 100))
	f.Add(uint8(op.CodeProd), uint8(op.BF16), uint8(apart), uint8(1), bytes.Repeat([]byte{0x80, 0x7f}, 99))
	f.Fuzz(func(t *testing.T, code, dtype, alias, skew uint8, data []byte) {
		c, d := op.Code(code), op.DType(dtype)
		if int(c) >= codes || !d.Valid() || portable.binary[c][d] == nil || alias > uint8(ontoB) {
			t.Skip()
		}
		n := len(data) / 2 / d.Size() * d.Size()
		input := withReference(c, d, data[:n], data[n:2*n])
		for _, impl := range implementations() {
			input.check(t, impl, aliasing(alias), int(skew%32))
		}
	})
}
