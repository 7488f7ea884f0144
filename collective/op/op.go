package op

import "fmt"

// Rank is a member's number in a communicator: 0 … n-1.
type Rank int

// Code numbers an operator on the wire.
type Code uint8

// The operators. User stands for every user-defined one: their names tell them apart.
const (
	CodeNone Code = iota // a collective without arithmetic (barrier)
	CodeSum
	CodeProd
	CodeMin
	CodeMax
	CodeAvg
	CodeBitAnd
	CodeBitOr
	CodeBitXor
	CodeUser
	CodeMinLoc
	CodeMaxLoc
	codeEnd
)

var codeNames = [codeEnd]string{"none", "sum", "prod", "min", "max", "avg", "bitand", "bitor",
	"bitxor", "user",
	"minloc", "maxloc"}

// Valid reports whether c is an operator's number.
func (c Code) Valid() bool { return c < codeEnd }

func (c Code) String() string {
	if !c.Valid() {
		return fmt.Sprintf("op(%d)", uint8(c))
	}
	return codeNames[c]
}

// Combine sets dst[i] = a[i] ∘ b[i] for packed elements of one type. The three
// slices are equally long; dst may be the same memory as a or b, never a part of it.
type Combine func(dst, a, b []byte) error

// Op is an operator: one of the built-in ones, or a user-defined one made with User.
// The zero Op is not an operator.
type Op struct {
	code    Code
	name    string
	dtype   DType // of a user-defined operator; 0 otherwise
	combine Combine
}

// The built-in operators. Sum, Prod wrap around on integers. Min and Max are Go's
// built-ins (a NaN wins). Avg is the sum divided once by the number of ranks;
// integers truncate. The Bit operators are defined on integers only.
//
// MinLoc and MaxLoc are defined on pairs (Loc) only, and no other built-in operator is. The smaller
// or larger value wins, by the order of Min and Max: a NaN before all, −0 below +0. Of equal
// values, and among NaNs, that of the lower index wins.
var (
	Sum    = Op{code: CodeSum}
	Prod   = Op{code: CodeProd}
	Min    = Op{code: CodeMin}
	Max    = Op{code: CodeMax}
	Avg    = Op{code: CodeAvg}
	BitAnd = Op{code: CodeBitAnd}
	BitOr  = Op{code: CodeBitOr}
	BitXor = Op{code: CodeBitXor}
	MinLoc = Op{code: CodeMinLoc}
	MaxLoc = Op{code: CodeMaxLoc}
)

// BuiltIn lists the built-in operators in wire order.
var BuiltIn = []Op{Sum, Prod, Min, Max, Avg, BitAnd, BitOr, BitXor, MinLoc, MaxLoc}

// User makes a user-defined operator on elements of type d. It must be associative
// and commutative. The name is compared between ranks.
func User(name string, d DType, f Combine) Op {
	return Op{code: CodeUser, name: name, dtype: d, combine: f}
}

// Code is the operator's number on the wire.
func (o Op) Code() Code { return o.code }

// UserDefined returns the function of a user-defined operator, or nil.
func (o Op) UserDefined() Combine { return o.combine }

// String is the operator's name; a user-defined one is "user:NAME".
func (o Op) String() string {
	if o.code == CodeUser {
		return "user:" + o.name
	}
	return o.code.String()
}

// Check reports why the operator cannot be applied to elements of type d, or nil.
func (o Op) Check(d DType) error {
	switch {
	case !d.Valid():
		return fmt.Errorf("%v is not an element type", d)
	case o.code == CodeNone || !o.code.Valid():
		return fmt.Errorf("%v is not an operator", o.code)
	case o.code >= CodeBitAnd && o.code <= CodeBitXor && !d.Integer():
		return fmt.Errorf("%v is not defined on %v, only on integers", o, d)
	case (o.code == CodeMinLoc || o.code == CodeMaxLoc) && !d.Loc():
		return fmt.Errorf(
			"%v is not defined on %v, only on pairs of a value and an index (float32loc, …)", o, d)
	case o.code != CodeUser && o.code < CodeMinLoc && d.Loc():
		return fmt.Errorf("%v is not defined on %v, only minloc, maxloc and user-defined operators are", o, d)
	case o.code == CodeUser && o.dtype != d:
		return fmt.Errorf("%v works on %v, not on %v", o, o.dtype, d)
	case o.code == CodeUser && (o.combine == nil || o.name == ""):
		return fmt.Errorf("a user-defined operator needs a name and a function")
	}
	return nil
}

// Exact reports whether the result has the same bits in whatever order elements of type d are
// combined: of integers, and where one of the operands is the result (of NaNs there is one).
func (c Code) Exact(d DType) bool {
	switch c {
	case CodeMin, CodeMax, CodeMinLoc, CodeMaxLoc:
		return true
	}
	return c != CodeUser && d.Integer()
}

// Parse finds a built-in operator by name.
func Parse(name string) (Op, error) {
	for _, o := range BuiltIn {
		if o.String() == name {
			return o, nil
		}
	}
	return Op{}, fmt.Errorf("unknown operator %q (one of %v)", name, BuiltIn)
}

// Kind is the kind of a collective operation, as the wire numbers it.
type Kind uint8

// The kinds of operation.
const (
	KindAllReduce Kind = 1 + iota
	KindBarrier
	KindView // the barrier that commits a view; its digest is the view's
	KindDup  // the barrier that makes a second communicator
	KindReduce
	KindReduceScatter
	KindAllGather
	KindGather
	KindScatter
	KindBroadcast
	KindAllToAll
	KindScan
	KindExScan
	KindAllToAllV // each rank knows its own counts alone
	KindSendRecv  // a message between two ranks; not numbered with the collectives
	KindSub       // as KindDup, of some of the members …
	KindSplit     // … or of several, each of some
	kindEnd
)

// KindCount is above every kind's number.
const KindCount = int(kindEnd)

var kindNames = [kindEnd]string{"invalid", "allreduce", "barrier", "view", "dup", "reduce", "reducescatter",
	"allgather", "gather", "scatter", "broadcast", "alltoall", "scan", "exscan", "alltoallv", "sendrecv",
	"sub", "split"}

// Kinds lists every kind of operation that carries data, in wire order.
var Kinds = []Kind{KindAllReduce, KindReduce, KindReduceScatter, KindAllGather, KindGather, KindScatter,
	KindBroadcast, KindAllToAll, KindScan, KindExScan}

// Empty reports whether operations of the kind carry no data: the barriers.
func (k Kind) Empty() bool {
	switch k {
	case KindBarrier, KindView, KindDup, KindSub, KindSplit:
		return true
	}
	return false
}

// Reduces reports whether operations of the kind fold operands with an operator.
func (k Kind) Reduces() bool {
	switch k {
	case KindAllReduce, KindReduce, KindReduceScatter, KindScan, KindExScan:
		return true
	}
	return false
}

// Rooted reports whether one rank has another part in operations of the kind than the others.
func (k Kind) Rooted() bool {
	switch k {
	case KindReduce, KindGather, KindScatter, KindBroadcast:
		return true
	}
	return false
}

// Counted reports whether callers may give the lengths of the parts.
func (k Kind) Counted() bool {
	switch k {
	case KindReduceScatter, KindAllGather, KindGather, KindScatter:
		return true
	}
	return false
}

// Valid reports whether k is a kind of operation.
func (k Kind) Valid() bool { return k > 0 && k < kindEnd }

func (k Kind) String() string {
	if !k.Valid() {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// Algorithm names a schedule, as the wire numbers it.
type Algorithm uint8

// The algorithms. Auto is a request, never on the wire.
const (
	Auto Algorithm = iota
	Ring
	RecursiveDoubling
	Bcube
	Tree
	Chain
	Direct
	Bruck
	Hierarchical // by host, every rank at work: for large operations
	Leaders      // by host, one rank each: for small ones
	algorithmEnd
)

var algorithmNames = [algorithmEnd]string{"auto", "ring", "recursive-doubling", "bcube", "tree",
	"chain", "direct", "bruck", "hierarchical", "leaders"}

// ByHost reports whether the schedule follows the hosts that ranks share.
func (a Algorithm) ByHost() bool { return a == Hierarchical || a == Leaders }

// Valid reports whether a names a schedule (Auto does not).
func (a Algorithm) Valid() bool { return a > Auto && a < algorithmEnd }

func (a Algorithm) String() string {
	if a >= algorithmEnd {
		return fmt.Sprintf("algorithm(%d)", uint8(a))
	}
	return algorithmNames[a]
}

// ParseAlgorithm is the inverse of String.
func ParseAlgorithm(s string) (Algorithm, error) {
	for i, n := range algorithmNames {
		if n == s {
			return Algorithm(i), nil
		}
	}
	return 0, fmt.Errorf("unknown algorithm %q (one of %v)", s, algorithmNames)
}

// Descriptor is what all ranks must agree on about one operation, in words: it is in
// every data and grant header so that a mismatch can name both sides.
type Descriptor struct {
	Kind      Kind
	DType     DType
	Code      Code
	Algorithm Algorithm
	Root      Rank   // 0 where the kind has none
	Batch     int    // buffers that an allreduce was called with as a list; 0 where there was none
	Elements  uint64 // of the larger one of a rank's input and output
}

// RootOrBatch are Root and Batch in one word: no kind with a root is called with a batch.
func (d Descriptor) RootOrBatch() uint32 {
	if d.Kind.Rooted() {
		return uint32(d.Root)
	}
	return uint32(d.Batch)
}

// SetRootOrBatch is the reverse, once Kind is set.
func (d *Descriptor) SetRootOrBatch(word uint32) {
	if d.Kind.Rooted() {
		d.Root = Rank(word)
	} else {
		d.Batch = int(word)
	}
}

func (d Descriptor) String() string {
	if d.Kind.Empty() {
		return d.Kind.String()
	}
	if d.Kind == KindAllToAllV {
		return fmt.Sprintf("%v(%v)", d.Kind, d.DType)
	}
	s := fmt.Sprintf("%v(", d.Kind)
	if d.Batch > 0 {
		s += fmt.Sprintf("batch of %d, ", d.Batch)
	}
	if d.Algorithm != Auto { // otherwise the call was refused, and its size may be unknown
		s += fmt.Sprintf("%d × ", d.Elements)
	}
	s += d.DType.String()
	if d.Kind.Reduces() {
		s += ", " + d.Code.String()
	}
	if d.Kind.Rooted() {
		s += fmt.Sprintf(", root %d", d.Root)
	}
	if d.Algorithm != Auto {
		s += ", " + d.Algorithm.String()
	}
	return s + ")"
}
