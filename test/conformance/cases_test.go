package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/test/order"
)

const (
	maxRails  = 3
	variants  = 2 // of weights and of the eager limit, see bed
	bcubeBase = 3
)

var (
	fewRanks  = []int{1, 2, 3, 4, 5, 6, 7, 8, 9}
	manyRanks = append(slices.Clone(fewRanks), 13, 16, 32) // with -all
	codes     = []op.Code{op.CodeSum, op.CodeProd, op.CodeMin, op.CodeMax, op.CodeAvg,
		op.CodeBitAnd, op.CodeBitOr, op.CodeBitXor, op.CodeUser, op.CodeMinLoc, op.CodeMaxLoc}
)

// cut is how data of a kind with a part for each rank is divided among them.
type cut int

const (
	equal  cut = iota
	uneven     // parts as 1 : 3 : 5 …
	holed      // one rank has nothing, the others the same
)

// amount is how many elements an operation has, and its cut. Where they don't divide by the ranks,
// there are a few more or less.
type amount struct {
	elements int
	cut      cut
}

var amounts = []amount{{0, equal}, {1, equal}, {10, equal}, {100, equal}, {1000, equal},
	{10_000, equal}, {65_537, equal},
	{10_007, uneven}, {1009, holed}}

// form is a kind and an algorithm that runs it.
type form struct {
	kind      op.Kind
	algorithm op.Algorithm
}

// forms are all of them.
var forms = func() (all []form) {
	for _, k := range op.Kinds {
		for _, a := range schedule.Algorithms(k) {
			all = append(all, form{k, a})
		}
	}
	return all
}()

// hosts are where ranks run, by a number for each: neighbours share one, or ranks are dealt to three in
// turn.
func hosts(ranks, variant int) []int {
	numbers := make([]int, ranks)
	for r := range numbers {
		if numbers[r] = r / 2; variant == 1 {
			numbers[r] = r % 3
		}
	}
	return numbers
}

// order is the call as test/order knows it.
func (c *testCase) order() order.Operation {
	return order.Operation{Kind: c.kind, Algorithm: c.algorithm, N: c.ranks, Base: bcubeBase, Root: c.root,
		Hosts: hosts(c.ranks, c.variant)}
}

// takes says whether n ranks are tried with an amount: an uneven one where callers give counts, and
// no more than what is worth its time and memory.
func (f form) takes(a amount, n int) bool {
	const most = 600_000 // elements of all ranks
	return (a.cut == equal || f.kind.Counted()) && n*a.elements <= most
}

// testCase is one operation on one bed.
type testCase struct {
	form
	dtype   op.DType
	code    op.Code // CodeNone of kinds that move data only
	ranks   int
	root    int
	amount  amount
	rails   int
	variant int // of weights, the eager limit and the hosts

	once     sync.Once
	operands [][]byte // by rank
	expected [][]byte // by rank; nil: it gets nothing
}

func (c *testCase) String() string {
	return fmt.Sprintf("%v by %v, %v of %d × %v (cut %d) among %d ranks, root %d, %d rails, variant %d",
		c.kind, c.algorithm, c.code, c.amount.elements, c.dtype, c.amount.cut, c.ranks, c.root,
		c.rails, c.variant)
}

// divided says whether a kind has a part of its data for each rank, as callers see it.
func divided(k op.Kind) bool { return k.Counted() || k == op.KindAllToAll }

// counts are the elements of each rank's part, or of the whole where there are none.
func (c *testCase) counts() []int {
	n, elements := c.ranks, c.amount.elements
	if !divided(c.kind) {
		return []int{elements}
	}
	counts := slices.Repeat([]int{(elements + n - 1) / n}, n)
	switch c.amount.cut {
	case uneven:
		for r := range counts {
			counts[r] = elements * (2*r + 1) / (n * n)
		}
	case holed:
		counts[elements%n] = 0
	}
	return counts
}

// roots are those that are tried among n ranks.
func roots(k op.Kind, n int) []int {
	all := []int{0, 1, n - 1}
	if !k.Rooted() {
		all = all[:1]
	}
	return slices.Compact(slices.DeleteFunc(all, func(r int) bool { return r >= n }))
}

// operators are the codes that a kind applies to a type.
func operators(k op.Kind, d op.DType) (defined []op.Code) {
	if !k.Reduces() {
		return []op.Code{op.CodeNone}
	}
	for _, code := range codes {
		scanned := (k == op.KindScan || k == op.KindExScan) && code == op.CodeAvg
		if !scanned && operator(code, d).Check(d) == nil {
			defined = append(defined, code)
		}
	}
	return defined
}

func operator(code op.Code, d op.DType) op.Op {
	switch code {
	case op.CodeNone:
		return op.Op{}
	case op.CodeUser:
		return userOp(d)
	}
	for _, o := range op.BuiltIn {
		if o.Code() == code {
			return o
		}
	}
	panic("no operator " + code.String())
}

// point is a case by its properties: small numbers, since there are a million.
type point [properties]uint8

const properties = 8

// The properties: indices into the lists above, or numbers.
const (
	ofForm = iota
	ofType
	ofCode
	ofRanks
	ofAmount
	ofRails
	ofVariant
	ofRoot // index of roots
)

// points are all combinations that are defined, for some numbers of ranks.
func points(ranks []int) (all []point) {
	for f, form := range forms {
		for t, d := range op.DTypes {
			for _, code := range operators(form.kind, d) {
				for _, n := range ranks {
					for root := range roots(form.kind, n) {
						for a, amount := range amounts {
							if !form.takes(amount, n) {
								continue
							}
							for i := range maxRails * variants {
								all = append(all, point{uint8(f), uint8(t), uint8(code), uint8(n), uint8(a),
									uint8(i/variants + 1), uint8(i % variants), uint8(root)})
							}
						}
					}
				}
			}
		}
	}
	return all
}

// testCase is the case of a point.
func (p point) testCase() *testCase {
	c := &testCase{form: forms[p[ofForm]], dtype: op.DTypes[p[ofType]], code: op.Code(p[ofCode]),
		ranks:  int(p[ofRanks]),
		amount: amounts[p[ofAmount]], rails: int(p[ofRails]), variant: int(p[ofVariant])}
	c.root = roots(c.kind, c.ranks)[p[ofRoot]]
	return c
}

// valuesOfProperty is more than a property has.
const valuesOfProperty = 64

// pairs notes which pairs of properties' values have occurred.
type pairs [properties][properties][valuesOfProperty][valuesOfProperty]bool

// fresh is how many pairs of a point have not occurred.
func (m *pairs) fresh(p point) (fresh int) {
	for i := range p {
		for j := i + 1; j < len(p); j++ {
			if !m[i][j][p[i]][p[j]] {
				fresh++
			}
		}
	}
	return fresh
}

func (m *pairs) add(p point) {
	for i := range p {
		for j := i + 1; j < len(p); j++ {
			m[i][j][p[i]][p[j]] = true
		}
	}
}

// cover is a set of points in which every pair of properties occurs that occurs in any: the first
// one that has something new in a shuffled order, as long as there is one.
func cover(all []point, rng *rand.Rand) (chosen []point) {
	met := new(pairs)
	// Those that have much that is new first, then the rest.
	for _, least := range []int{20, 15, 10, 6, 3, 1} {
		for _, i := range rng.Perm(len(all)) {
			if met.fresh(all[i]) >= least {
				met.add(all[i])
				chosen = append(chosen, all[i])
			}
		}
	}
	return chosen
}

// prepare makes the operands and the expected results, once for all ranks.
func (c *testCase) prepare() {
	c.once.Do(func() {
		rng := rand.New(rand.NewPCG(uint64(c.dtype)<<32|uint64(c.amount.elements),
			uint64(c.ranks)<<32|uint64(c.code)))
		for r := range c.ranks {
			c.operands = append(c.operands, operand(c.dtype, c.source(r), rng))
		}
		c.expected = c.results()
	})
}

// source is the number of elements of a rank's operand.
func (c *testCase) source(r int) (elements int) {
	counts := c.counts()
	for _, count := range counts {
		elements += count
	}
	switch c.kind {
	case op.KindAllGather, op.KindGather:
		return counts[r]
	case op.KindScatter, op.KindBroadcast:
		if r != c.root {
			return 0
		}
	}
	return elements
}

// forget lets go of the memory.
func (c *testCase) forget() { c.operands, c.expected = nil, nil }

// operand is aligned memory with awkward elements: integers that wrap around; floating-point numbers of
// mixed signs and magnitudes, so that the order of a sum shows, and every kind of special value.
func operand(d op.DType, length int, rng *rand.Rand) []byte {
	p := alignedBytes(length * d.Size())
	if d.Loc() {
		fillPairs(d, p, rng)
		return p
	}
	for at := 0; at < len(p); at += d.Size() {
		v := rng.Uint64()
		if !d.Integer() {
			v = number(d, v, rng)
		}
		store(d, p[at:], v)
	}
	return p
}

func number(d op.DType, random uint64, rng *rand.Rand) uint64 {
	if random%64 == 0 {
		return random >> 7 // any bits at all: NaNs with payloads, subnormals, the largest
	}
	f := math.Ldexp(rng.Float64()*2-1, int(random>>8%12)-3)
	switch random % 64 {
	case 1:
		f = math.Inf(int(random>>6&1)*2 - 1)
	case 2:
		f = math.Copysign(0, f)
	}
	if d == op.F64 {
		return math.Float64bits(f)
	}
	return narrow(d, float32(f))
}

// alignedBytes is memory on a multiple of 8 bytes.
func alignedBytes(n int) []byte { return op.Bytes(make([]uint64, (n+7)/8))[:n] }
