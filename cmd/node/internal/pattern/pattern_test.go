package pattern

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
)

// decode reads element i as a float64, exactly for all values that patterns of floats use.
func decode(d op.DType, b []byte, i int) float64 {
	e := b[i*d.Size():]
	switch d {
	case op.F16:
		return float64(op.Float16(binary.NativeEndian.Uint16(e)).Float32())
	case op.BF16:
		return float64(op.BFloat16(binary.NativeEndian.Uint16(e)).Float32())
	case op.F32:
		return float64(math.Float32frombits(binary.NativeEndian.Uint32(e)))
	}
	return math.Float64frombits(binary.NativeEndian.Uint64(e))
}

// round is v as d holds it.
func round(d op.DType, v float64) float64 { return decode(d, appendFloat(nil, d, v), 0) }

func mustNew(t *testing.T, d op.DType, o op.Op, n int) *Pattern {
	t.Helper()
	p, err := New(d, o, n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *Pattern) operand(r int) []byte { return p.of(Only(op.Rank(r))) }

func (p *Pattern) whole() []byte { return p.of(Ranks{0, op.Rank(p.n - 1)}) }

// Whatever the order, each partial result must be exact: no rounding may happen.
func TestFloatResultsAreExactInAnyOrder(t *testing.T) {
	apply := map[op.Code]func(a, b float64) float64{
		op.CodeSum:  func(a, b float64) float64 { return a + b },
		op.CodeAvg:  func(a, b float64) float64 { return a + b },
		op.CodeProd: func(a, b float64) float64 { return a * b },
		op.CodeMin:  math.Min,
		op.CodeMax:  math.Max,
	}
	for _, d := range []op.DType{op.F16, op.BF16, op.F32, op.F64} {
		for _, n := range []int{1, 2, 5, 9, 33} {
			for code, f := range apply {
				o, err := op.Parse(code.String())
				if err != nil {
					t.Fatal(err)
				}
				p := mustNew(t, d, o, n)
				for first := range min(n, 2) { // orders: the ring's, from several starts, and its reverse
					for _, step := range []int{1, n - 1} {
						for j := range period {
							acc := decode(d, p.operand(first), j)
							for k := 1; k < n; k++ {
								sum := f(acc, decode(d, p.operand((first+k*step)%n), j))
								acc = round(d, sum)
								if acc != sum {
									t.Fatalf("%v %v n=%d element %d: %v is not exact", d, o, n, j, sum)
								}
							}
							if code == op.CodeAvg {
								acc /= float64(n)
							}
							if want := decode(d, p.whole(), j); acc != want {
								t.Fatalf("%v %v n=%d element %d: got %v, the pattern says %v", d, o, n, j, acc, want)
							}
						}
					}
				}
			}
		}
	}
}

func TestIntegerResultsWrapAround(t *testing.T) {
	reduce := map[op.Code]func(a, b int8) int8{
		op.CodeSum:    func(a, b int8) int8 { return a + b },
		op.CodeProd:   func(a, b int8) int8 { return a * b },
		op.CodeMin:    func(a, b int8) int8 { return min(a, b) },
		op.CodeMax:    func(a, b int8) int8 { return max(a, b) },
		op.CodeBitAnd: func(a, b int8) int8 { return a & b },
		op.CodeBitOr:  func(a, b int8) int8 { return a | b },
		op.CodeBitXor: func(a, b int8) int8 { return a ^ b },
		op.CodeAvg:    func(a, b int8) int8 { return a + b },
	}
	for _, o := range op.BuiltIn {
		if o.Check(op.Int8) != nil {
			continue
		}
		for _, n := range []int{1, 2, 5, 9} {
			p := mustNew(t, op.Int8, o, n)
			for j := range period {
				acc := int8(p.operand(0)[j])
				for r := 1; r < n; r++ {
					acc = reduce[o.Code()](acc, int8(p.operand(r)[j]))
				}
				if o.Code() == op.CodeAvg {
					acc /= int8(n)
				}
				if want := int8(p.whole()[j]); acc != want {
					t.Fatalf("%v n=%d element %d: got %d, the pattern says %d", o, n, j, acc, want)
				}
			}
		}
	}
}

func TestEveryWrongElementIsFound(t *testing.T) {
	for _, d := range op.DTypes {
		t.Run(d.String(), func(t *testing.T) {
			o := op.Sum
			if d.Loc() {
				o = op.MinLoc
			}
			p := mustNew(t, d, o, 3)
			const elements = 3*period + 17
			buf := make([]byte, elements*d.Size())
			for i := 0; i < len(buf); i += len(p.whole()) {
				copy(buf[i:], p.whole())
			}
			if wrong := p.Wrong(buf, []Part{{Ranks{0, 2}, 0, elements}}); wrong != 0 {
				t.Fatalf("%d elements of the right result are said to be wrong", wrong)
			}
			for _, i := range []int{0, 1, period - 1, period, elements - 1} {
				buf[i*d.Size()] ^= 1
			}
			if wrong := p.Wrong(buf, []Part{{Ranks{0, 2}, 0, elements}}); wrong != 5 {
				t.Errorf("%d wrong elements found, 5 were made", wrong)
			}
		})
	}
}

// A lost or doubled contribution must change most elements, a shift all segments.
func TestLostAndMisplacedContributionsShow(t *testing.T) {
	const n = 4
	sum := make([]float64, period)
	p := mustNew(t, op.F32, op.Sum, n)
	for r := range n - 1 { // the last rank is lost
		for j := range period {
			sum[j] += decode(op.F32, p.operand(r), j)
		}
	}
	var lost []byte
	for _, v := range sum {
		lost = appendFloat(lost, op.F32, v)
	}
	all := []Part{{Ranks{0, n - 1}, 0, period}}
	if wrong := p.Wrong(lost, all); wrong != period {
		t.Errorf("a lost rank shows in %d of %d elements", wrong, period)
	}
	shifted := append(append([]byte(nil), p.whole()[4*64:]...), p.whole()[:4*64]...)
	if wrong := p.Wrong(shifted, all); wrong < period*9/10 {
		t.Errorf("a shift by 64 elements shows in %d of %d elements", wrong, period)
	}
}

func TestInputRepeatsOverTheBuffer(t *testing.T) {
	p := mustNew(t, op.Int32, op.Sum, 3)
	buf := make([]byte, 4*(2*period+5))
	p.Fill(2, buf)
	for i := range 2*period + 5 {
		if got, want := fmt.Sprint(buf[4*i:4*i+4]), fmt.Sprint(p.operand(2)[4*(i%period):4*(i%period)+4]); got != want {
			t.Fatalf("element %d is %s, want %s", i, got, want)
		}
	}
}

func TestWhatCannotBeCheckedIsRefused(t *testing.T) {
	if _, err := New(op.F32, op.BitAnd, 2); err == nil {
		t.Error("bitand of float32 accepted")
	}
	if _, err := New(op.BF16, op.Sum, 257); err == nil {
		t.Error("a sum that bfloat16 cannot hold accepted")
	}
}

func TestTheResultOfPairsIsTheBestOfThem(t *testing.T) {
	const n = 5
	for _, o := range []op.Op{op.MinLoc, op.MaxLoc} {
		for _, d := range []op.DType{op.Int32Loc, op.Int64Loc, op.F32Loc, op.F64Loc} {
			p := mustNew(t, d, o, n)
			for r := range n {
				if wrong := p.Wrong(p.operand(r), []Part{{Ranks{0, n - 1}, 0, period}}); wrong < period/2 {
					t.Errorf("%v of %v: rank %d's operand differs from the result in %d of %d elements", o, d, r, wrong, period)
				}
			}
			for _, ranks := range []Ranks{{0, n - 1}, {0, 2}, {3, 3}} { // all, a prefix, one
				for j := range period {
					best := decodePair(d, p.operand(int(ranks.Last)), j)
					for r := ranks.First; r <= ranks.Last; r++ {
						x := decodePair(d, p.operand(int(r)), j)
						if o.Code() == op.CodeMaxLoc && x.value > best.value || o.Code() == op.CodeMinLoc && x.value < best.value ||
							x.value == best.value && x.index < best.index {
							best = x
						}
					}
					if got := decodePair(d, p.of(ranks), j); got != best {
						t.Fatalf("%v of %v, ranks %v, element %d: %v, want %v", o, d, ranks, j, got, best)
					}
				}
			}
		}
	}
}

// What is moved only: each part of a result is a run of one rank's operand, at any phase.
func TestPartsOfAResultAreFoundWhereverTheyBegin(t *testing.T) {
	for _, d := range op.DTypes {
		p := mustNew(t, d, op.Op{}, 3)
		operands := make([][]byte, 3)
		for r := range operands {
			operands[r] = make([]byte, 3000*d.Size())
			p.Fill(op.Rank(r), operands[r])
		}
		parts := []Part{{Only(2), 5, 1}, {Only(0), period - 1, 1500}, {Only(1), 0, 0}, {Only(1), 2 * period, 3}}
		var result []byte
		for _, part := range parts {
			result = append(result, operands[part.Ranks.First][part.First*d.Size():(part.First+part.Elements)*d.Size()]...)
		}
		if wrong := p.Wrong(result, parts); wrong != 0 {
			t.Errorf("%v: %d elements of the right result are said to be wrong", d, wrong)
		}
		parts[1].Ranks = Only(1)
		if wrong := p.Wrong(result, parts); wrong < 1400 {
			t.Errorf("%v: 1500 elements of another rank: %d are said to be wrong", d, wrong)
		}
	}
}

func TestPrefixesAreFoldsOfTheFirstRanks(t *testing.T) {
	p := mustNew(t, op.Int32, op.Sum, 5)
	for j := range period {
		sum := p.integer(Only(0), j) + p.integer(Only(1), j) + p.integer(Only(2), j)
		if got := p.integer(Ranks{0, 2}, j); uint32(got) != uint32(sum) {
			t.Fatalf("element %d is %d, want %d", j, got, sum)
		}
	}
}

// decodePair reads pair i.
func decodePair(d op.DType, b []byte, i int) loc {
	e, v := b[i*d.Size():], d.Value()
	integer := func(p []byte) int {
		if v.Size() == 4 {
			return int(int32(binary.NativeEndian.Uint32(p)))
		}
		return int(binary.NativeEndian.Uint64(p))
	}
	if v.Integer() {
		return loc{integer(e), integer(e[v.Size():])}
	}
	return loc{int(decode(v, e, 0)), integer(e[v.Size():])}
}
