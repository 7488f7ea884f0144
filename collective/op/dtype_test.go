package op

import (
	"testing"
	"unsafe"
)

type (
	celsius float32
	mass    float64
	octet   uint8
	delta   int8
	index   int32
	color   uint32
	instant int64
	hash    uint64
)

func TestDTypeOfNamesEveryElementType(t *testing.T) {
	check := func(got, want DType) {
		t.Helper()
		if got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	check(DTypeOf[int8](), Int8)
	check(DTypeOf[uint8](), Uint8)
	check(DTypeOf[int32](), Int32)
	check(DTypeOf[uint32](), Uint32)
	check(DTypeOf[int64](), Int64)
	check(DTypeOf[uint64](), Uint64)
	check(DTypeOf[Float16](), F16)
	check(DTypeOf[BFloat16](), BF16)
	check(DTypeOf[float32](), F32)
	check(DTypeOf[float64](), F64)
}

func TestDTypeOfSeesThroughNamedTypes(t *testing.T) {
	check := func(got, want DType) {
		t.Helper()
		if got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	check(DTypeOf[delta](), Int8)
	check(DTypeOf[octet](), Uint8)
	check(DTypeOf[index](), Int32)
	check(DTypeOf[color](), Uint32)
	check(DTypeOf[instant](), Int64)
	check(DTypeOf[hash](), Uint64)
	check(DTypeOf[celsius](), F32)
	check(DTypeOf[mass](), F64)
}

func TestDTypesHaveNamesThatParse(t *testing.T) {
	if len(DTypes) != int(dtypeEnd)-1 {
		t.Fatalf("DTypes lists %d of %d types", len(DTypes), dtypeEnd-1)
	}
	for _, d := range DTypes {
		got, err := ParseDType(d.String())
		if err != nil || got != d || !d.Valid() || d.Size() == 0 {
			t.Errorf("%v: parsed as %v, %v; size %d", d, got, err, d.Size())
		}
	}
	for _, s := range []string{"", "invalid", "float", "Float32", "dtype(0)"} {
		if d, err := ParseDType(s); err == nil {
			t.Errorf("%q parsed as %v", s, d)
		}
	}
}

func TestInvalidDTypesAreHarmless(t *testing.T) {
	for _, d := range []DType{0, dtypeEnd, 255} {
		if d.Valid() || d.Size() != 0 || d.Integer() || d.String() == "" {
			t.Errorf("%d: valid %v, size %d, integer %v, name %q", uint8(d), d.Valid(), d.Size(), d.Integer(), d)
		}
	}
}

func TestBytesIsTheMemoryOfTheSlice(t *testing.T) {
	s := []instant{1, 2, 3}
	p := Bytes(s)
	if len(p) != 24 || unsafe.Pointer(&p[0]) != unsafe.Pointer(&s[0]) {
		t.Fatalf("%d bytes at %p, want 24 at %p", len(p), &p[0], &s[0])
	}
	if Bytes([]float32{}) != nil || Bytes[float32](nil) != nil {
		t.Fatal("no elements have bytes")
	}
	p[0] = 7
	if s[0] == 1 {
		t.Fatal("a write to the bytes is not seen in the slice")
	}
}

func TestPairsAreTypesOfTheirOwn(t *testing.T) {
	check := func(got, want DType, size, align uintptr) {
		t.Helper()
		if got != want || !got.Loc() || got.Integer() || uintptr(got.Size()) != size ||
			uintptr(got.Align()) != align {
			t.Errorf("%v of %d bytes on a multiple of %d, want %v of %d on %d", got, got.Size(),
				got.Align(), want, size, align)
		}
	}
	var i32, f32 = Loc[int32, int32]{}, Loc[float32, int32]{}
	var i64, f64 = Loc[int64, int64]{}, Loc[float64, int64]{}
	check(DTypeOf[Loc[int32, int32]](), Int32Loc, unsafe.Sizeof(i32), unsafe.Alignof(i32))
	check(DTypeOf[Loc[int64, int64]](), Int64Loc, unsafe.Sizeof(i64), unsafe.Alignof(i64))
	check(DTypeOf[Loc[float32, int32]](), F32Loc, unsafe.Sizeof(f32), unsafe.Alignof(f32))
	check(DTypeOf[Loc[float64, int64]](), F64Loc, unsafe.Sizeof(f64), unsafe.Alignof(f64))
	for _, d := range DTypes {
		if !d.Loc() && (d.Value() != d || d.Align() != d.Size()) {
			t.Errorf("%v: values of %v, aligned to %d", d, d.Value(), d.Align())
		}
		if d.Size()&(d.Size()-1) != 0 {
			t.Errorf("%v has %d bytes", d, d.Size())
		}
	}
}
