// Package reduce holds the kernels: the arithmetic of every operator on every
// element type, over packed elements in the host's byte order.
//
// It owns the rules that make a result the same to the bit on every rank, whatever
// its processor (docs/decisions/009):
//
//   - a is the left operand, b the right one; one element depends on nothing but
//     its two operands, so neither length nor alignment nor vector width shows;
//   - integers wrap around;
//   - float16 and bfloat16 are widened to float32, combined and rounded once to
//     nearest even;
//   - Min and Max are Go's built-ins: −0 is below +0, and a NaN wins;
//   - MinLoc and MaxLoc order values alike, and of equal ones take the lower index;
//   - a result that is a NaN is always the same one, quiet, positive and without a payload
//     (0x7fc00000 in float32). Which operand's payload survives an addition differs
//     between processors and, on one, by how the compiler orders the operands.
//
// There are two implementations, equal bit for bit: AVX2 assembly, written by the
// program in gen (a module of its own), and portable Go, which also takes what is too
// short for a vector. The build tag purego leaves the assembly out. Who calls a kernel, on
// which operands and in which order, is decided in collective/schedule and collective/task.
package reduce

//go:generate sh -c "cd gen && go run ."

import (
	"fmt"

	"github.com/polyrail/polyrail/collective/op"
)

// implementation is one complete set of kernels.
type implementation struct {
	name   string
	binary binaryTable
	divide divideTable
}

// Bounds of the tables: one beyond the last built-in operator and the last element type.
const (
	codes  = int(op.CodeMaxLoc) + 1
	dtypes = int(op.F64Loc) + 1
)

type (
	binaryTable [codes][dtypes]binaryKernel // no entries for Avg, which uses Sum's, and User
	divideTable [dtypes]divideKernel
)

// A binaryKernel sets dst[i] = a[i] ∘ b[i]. The slices are equally long, in whole elements.
type binaryKernel func(dst, a, b []byte)

// A divideKernel divides each element of p by n. p is in whole elements, n at least 1.
type divideKernel func(p []byte, n int)

// chosen is what For and Divide hand out on this processor.
var chosen = choose()

// combines holds the built-in operators of chosen as For returns them.
var combines = wrapAll(chosen.binary)

// For returns the kernel of o on elements of type d: dst[i] = a[i] ∘ b[i]. dst may be
// exactly a or exactly b, but must not overlap them otherwise. Avg has Sum's kernel, to
// be followed by Divide. A user-defined operator's kernel is the user's function.
//
// The kernel of a built-in operator allocates nothing. It fails only on slices of
// different lengths or with a part of an element at the end, before it writes anything.
//
// The error is that of op.Op.Check: o is not defined on d.
func For(o op.Op, d op.DType) (op.Combine, error) {
	if err := o.Check(d); err != nil {
		return nil, err
	}
	if o.Code() == op.CodeUser {
		return o.UserDefined(), nil
	}
	return combines[kernelCode(o.Code())][d], nil
}

// Divide finishes an Avg over n ranks in place: it divides each element of p once by n.
// Integers truncate toward zero; float16 and bfloat16 are divided in float32 and
// rounded once to nearest even. It panics where no Avg can have led: n below 1, a d that
// is not an element type or one of pairs, or a part of an element at the end of p.
func Divide(d op.DType, p []byte, n int) {
	if n < 1 || !d.Valid() || d.Loc() || len(p)%d.Size() != 0 {
		panic(fmt.Sprintf("reduce: Divide of %d bytes of %v by %d", len(p), d, n))
	}
	chosen.divide[d](p, n)
}

// kernelCode is the operator whose kernel c uses.
func kernelCode(c op.Code) op.Code {
	if c == op.CodeAvg {
		return op.CodeSum
	}
	return c
}

func wrapAll(kernels binaryTable) (all [codes][dtypes]op.Combine) {
	for c := range kernels {
		for d, k := range kernels[c] {
			if k != nil {
				all[c][d] = checked(op.Code(c), op.DType(d), k)
			}
		}
	}
	return all
}

// checked guards the kernel's memory: an assembly kernel knows no bounds.
func checked(c op.Code, d op.DType, kernel binaryKernel) op.Combine {
	size := d.Size()
	return func(dst, a, b []byte) error {
		if len(a) != len(dst) || len(b) != len(dst) || len(dst)%size != 0 {
			return fmt.Errorf("reduce: %v of %v: operands of %d and %d bytes into %d", c, d, len(a), len(b), len(dst))
		}
		kernel(dst, a, b)
		return nil
	}
}
