// Package polyrail is an actor-based distributed runtime that runs collective
// operations over all of a host's networks at once.
//
// A process starts a Node, which joins its cluster by gossip; nodes that ask for the
// same name form a Communicator; its members call collectives on it, all in the same order:
//
//	node, err := polyrail.Start(ctx, cfg)
//	comm, err := node.Communicator(ctx, "train", 4)
//	err = polyrail.AllReduce(ctx, comm, gradients, polyrail.Sum)
//
// Every network is a rail. An operation is divided over the rails in whole rounds, and
// the bits of its result depend neither on the division nor on what became of the rails.
// An operation never hangs and never returns a wrong sum: it finishes right, or ends
// with an error that names the cause, on every rank.
//
// This package is the only generic layer, and composes the others; ARCHITECTURE.md
// walks through one operation from top to bottom.
package polyrail

import (
	"fmt"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
)

// Element is the set of types that a buffer can hold.
type Element = op.Element

// Float16 is an IEEE 754 binary16 number, BFloat16 a bfloat16 number, by their bits.
type (
	Float16  = op.Float16
	BFloat16 = op.BFloat16
)

// A pair is a value and its index, such as the rank that has it: what MinLoc and MaxLoc combine.
type (
	Int32Loc   = op.Loc[int32, int32]
	Int64Loc   = op.Loc[int64, int64]
	Float32Loc = op.Loc[float32, int32]
	Float64Loc = op.Loc[float64, int64]
)

// ToFloat16 rounds to nearest even; what is too large becomes infinite.
func ToFloat16(f float32) Float16 { return op.ToFloat16(f) }

// ToBFloat16 rounds to nearest even.
func ToBFloat16(f float32) BFloat16 { return op.ToBFloat16(f) }

// DType is an element type as a value, for callers that choose it at run time.
type DType = op.DType

// ParseDType finds an element type by name: "float32", "bfloat16", …
func ParseDType(name string) (DType, error) { return parsed(op.ParseDType(name)) }

// DTypes lists every element type.
func DTypes() []DType { return append([]DType(nil), op.DTypes...) }

// Op is an operator: one of those below, or a user-defined one.
type Op = op.Op

// The built-in operators. Sum and Prod wrap around on integers. Min and Max are Go's
// built-ins: a NaN wins. Avg is the sum divided once by the number of ranks; integers
// truncate. The bitwise ones are defined on integers only.
//
// MinLoc and MaxLoc are defined on pairs only (Float32Loc, …), and no other operator of these is.
// The smaller or larger value wins, a NaN before all, and −0 is below +0. Of equal values, and
// among NaNs, that of the lower index wins. So neither value nor index depends on any order.
//
// float16 and bfloat16 are widened to float32 for each step and rounded to nearest even.
var (
	Sum    = op.Sum
	Prod   = op.Prod
	Min    = op.Min
	Max    = op.Max
	Avg    = op.Avg
	BitAnd = op.BitAnd
	BitOr  = op.BitOr
	BitXor = op.BitXor
	MinLoc = op.MinLoc
	MaxLoc = op.MaxLoc
)

// Ops lists the built-in operators.
func Ops() []Op { return append([]Op(nil), op.BuiltIn...) }

// ParseOp finds a built-in operator by name: "sum", "max", …
func ParseOp(name string) (Op, error) { return parsed(op.Parse(name)) }

// UserOp makes an operator of a function that sets dst[i] = a[i] ∘ b[i] for equally long
// slices; dst may be the same memory as a or b. It must be associative and commutative and
// is called on goroutines of the runtime, which wait for it: one that blocks holds up what else goes
// over the rail. Ranks compare the name.
func UserOp[T Element](name string, f func(dst, a, b []T)) Op {
	if f == nil { // calls with it say so
		return op.User(name, op.DTypeOf[T](), nil)
	}
	return op.User(name, op.DTypeOf[T](), func(dst, a, b []byte) error {
		f(elements[T](dst), elements[T](a), elements[T](b))
		return nil
	})
}

// Algorithm names a schedule.
type Algorithm = op.Algorithm

// The algorithms. Auto chooses by size. Not every kind of operation has each: see Algorithms.
const (
	Auto              = op.Auto
	Ring              = op.Ring
	RecursiveDoubling = op.RecursiveDoubling
	Bcube             = op.Bcube
	Tree              = op.Tree
	Chain             = op.Chain
	Direct            = op.Direct
	Bruck             = op.Bruck
	Hierarchical      = op.Hierarchical // by host, every rank at work: docs/hosts.md
	Leaders           = op.Leaders      // by host, one rank each
)

// ParseAlgorithm finds an algorithm by name: "auto", "ring", "recursive-doubling", "bcube", "tree",
// "chain", "direct", "bruck", "hierarchical", "leaders". docs/collectives.md says which kinds have it.
func ParseAlgorithm(name string) (Algorithm, error) { return parsed(op.ParseAlgorithm(name)) }

// parsed is what a core reads by name, whose errors are of no kind.
func parsed[T any](v T, err error) (T, error) {
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return v, err
}

// What errors.Is finds in an error of this package.
var (
	ErrClosed   = fault.ErrClosed   // the communicator or node was closed here
	ErrBroken   = fault.ErrBroken   // an earlier operation failed and broke the communicator
	ErrMismatch = fault.ErrMismatch // ranks called different operations
	ErrRankLost = fault.ErrRankLost // a rank's process or host is gone
	ErrAborted  = fault.ErrAborted  // another rank ended the operation
	ErrTimeout  = fault.ErrTimeout  // it took too long here, or on the rank that ended it
	ErrRail     = fault.ErrRail     // a rail failed or cannot be used
	ErrConfig   = fault.ErrConfig   // the configuration has faults
	// A call lacks its context, communicator, node, operation, message, trace or an option: one of
	// them is nil. Or an argument cannot be, such as a rank or a tag of a message.
	ErrArgument = fault.ErrArgument
	ErrView     = fault.ErrView     // a communicator could not be formed
	ErrMinority = fault.ErrMinority // too few members are left of a communicator to go on
	ErrLimit    = fault.ErrLimit    // a limit of the runtime was reached
	ErrInternal = fault.ErrInternal // a part of polyrail failed
)

// What errors.As finds in an error of this package.
type (
	OperationError = fault.OperationError
	RankLostError  = fault.RankLostError
	MismatchError  = fault.MismatchError
	AbortError     = fault.AbortError
	RailError      = fault.RailError
	TimeoutError   = fault.TimeoutError
	ViewError      = fault.ViewError
	MinorityError  = fault.MinorityError
)
