package op

import (
	"math"
	"testing"
)

// A format is that of a 16-bit float, for a reference that only uses values, no bits of a float32.
type format struct {
	fractionBits int
	minExponent  int // of a normal number
	maxExponent  int
}

var (
	float16Format  = format{fractionBits: 10, minExponent: -14, maxExponent: 15}
	bfloat16Format = format{fractionBits: 7, minExponent: -126, maxExponent: 127}
)

// value is what the bits mean.
func (f format) value(bits uint16) float64 {
	sign := 1.0
	if bits&0x8000 != 0 {
		sign = -1
	}
	exponent := int(bits&0x7fff) >> f.fractionBits
	fraction := float64(int(bits) & (1<<f.fractionBits - 1))
	switch {
	case exponent > f.maxExponent-f.minExponent+1 && fraction != 0:
		return math.NaN()
	case exponent > f.maxExponent-f.minExponent+1:
		return math.Inf(int(sign))
	case exponent == 0:
		return sign * math.Ldexp(fraction, f.minExponent-f.fractionBits)
	}
	return sign * math.Ldexp(1+math.Ldexp(fraction, -f.fractionBits), exponent-1+f.minExponent)
}

// infinity is the bits of +Inf; those of a NaN are greater.
func (f format) infinity() uint16 {
	return uint16(f.maxExponent-f.minExponent+2) << f.fractionBits
}

// checkNarrowing goes over all neighbours low < high of a format's positive numbers, and checks
// that every float32 close to low, to high and to the midpoint between is rounded to the nearer, or
// at the midpoint to the even one.
func (f format) checkNarrowing(t *testing.T, narrow func(float32) uint16) {
	t.Helper()
	for low := range f.infinity() {
		high := low + 1
		lowValue, highValue := f.value(low), f.value(high)
		if high == f.infinity() { // as if the exponents went on
			highValue = math.Ldexp(1, f.maxExponent+1)
		}
		middle := (lowValue + highValue) / 2
		for _, around := range []float64{lowValue, middle, (lowValue + middle) / 2, (middle + highValue) / 2} {
			v := float32(around)
			for _, v := range []float32{math.Nextafter32(v, float32(lowValue)), v, math.Nextafter32(v, math.MaxFloat32)} {
				want := low
				if float64(v) > middle || float64(v) == middle && low%2 == 1 {
					want = high
				}
				if got := narrow(v); got != want {
					t.Fatalf("%v (%#x) between %#x and %#x became %#x", v, math.Float32bits(v), low, high, got)
				}
				if got := narrow(-v); got != want|0x8000 {
					t.Fatalf("%v between -%#x and -%#x became %#x", -v, low, high, got)
				}
			}
		}
	}
	for _, v := range []float32{math.MaxFloat32, float32(math.Inf(1))} {
		if got := narrow(v); got != f.infinity() {
			t.Errorf("%v became %#x", v, got)
		}
		if got := narrow(-v); got != f.infinity()|0x8000 {
			t.Errorf("%v became %#x", -v, got)
		}
	}
	if got := narrow(math.SmallestNonzeroFloat32); got != 0 {
		t.Errorf("the smallest float32 became %#x", got)
	}
}

// checkNaNs narrows NaNs of every upper payload: they stay NaNs, quiet, with sign and upper payload.
func (f format) checkNaNs(t *testing.T, narrow func(float32) uint16) {
	t.Helper()
	dropped := 23 - f.fractionBits
	for payload := uint32(1); payload < 1<<23; payload += 1021 {
		for _, sign := range []uint32{0, 1} {
			want := uint16(sign<<15) | f.infinity() | 1<<(f.fractionBits-1) | uint16(payload>>dropped)
			if got := narrow(math.Float32frombits(sign<<31 | 0x7f800000 | payload)); got != want {
				t.Fatalf("NaN of payload %#x became %#x, want %#x", payload, got, want)
			}
		}
	}
}

func TestFloat16WidensEveryValueExactly(t *testing.T) {
	for bits := range 1 << 16 {
		got, want := Float16(bits).Float32(), float16Format.value(uint16(bits))
		if want != want {
			quiet := uint32(bits&0x8000)<<16 | 0x7fc00000 | uint32(bits&0x3ff)<<13
			if math.Float32bits(got) != quiet {
				t.Fatalf("NaN %#x became %#x, want %#x", bits, math.Float32bits(got), quiet)
			}
		} else if float64(got) != want || math.Signbit(float64(got)) != math.Signbit(want) {
			t.Fatalf("%#x is %v, want %v", bits, got, want)
		}
	}
}

func TestBFloat16WidensEveryValueExactly(t *testing.T) {
	for bits := range 1 << 16 {
		got, want := BFloat16(bits).Float32(), bfloat16Format.value(uint16(bits))
		if want != want {
			if got == got {
				t.Fatalf("NaN %#x became %v", bits, got)
			}
		} else if float64(got) != want || math.Signbit(float64(got)) != math.Signbit(want) {
			t.Fatalf("%#x is %v, want %v", bits, got, want)
		}
	}
}

func TestToFloat16RoundsToNearestEven(t *testing.T) {
	float16Format.checkNarrowing(t, func(v float32) uint16 { return uint16(ToFloat16(v)) })
}

func TestToBFloat16RoundsToNearestEven(t *testing.T) {
	bfloat16Format.checkNarrowing(t, func(v float32) uint16 { return uint16(ToBFloat16(v)) })
}

func TestToFloat16KeepsNaNs(t *testing.T) {
	float16Format.checkNaNs(t, func(v float32) uint16 { return uint16(ToFloat16(v)) })
}

func TestToBFloat16KeepsNaNs(t *testing.T) {
	bfloat16Format.checkNaNs(t, func(v float32) uint16 { return uint16(ToBFloat16(v)) })
}

func TestHalvesSurviveWideningAndNarrowing(t *testing.T) {
	for bits := range 1 << 16 {
		quiet := func(f format) uint16 {
			if f.value(uint16(bits)) != f.value(uint16(bits)) {
				return uint16(bits) | 1<<(f.fractionBits-1)
			}
			return uint16(bits)
		}
		if got := ToFloat16(Float16(bits).Float32()); got != Float16(quiet(float16Format)) {
			t.Fatalf("float16 %#x came back as %#x", bits, got)
		}
		if got := ToBFloat16(BFloat16(bits).Float32()); got != BFloat16(quiet(bfloat16Format)) {
			t.Fatalf("bfloat16 %#x came back as %#x", bits, got)
		}
	}
}

func TestToFloat16IsMonotonic(t *testing.T) {
	previous := uint16(0)
	for bits := uint32(0); bits <= 0x7f800000; bits += 257 {
		got := uint16(ToFloat16(math.Float32frombits(bits)))
		if got < previous {
			t.Fatalf("%#x became %#x, a smaller one %#x", bits, got, previous)
		}
		previous = got
	}
}
