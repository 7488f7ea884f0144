package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/polyrail/polyrail/collective/op"
)

const (
	maxRanks  = 9
	maxRails  = 3
	variants  = 2 // of weights and of the eager limit, see bed
	bcubeBase = 3
)

var (
	lengths    = []int{0, 1, 7, 100, 1000, 65537} // elements
	algorithms = []op.Algorithm{op.Ring, op.RecursiveDoubling, op.Bcube, op.Tree}
	codes      = []op.Code{op.CodeSum, op.CodeProd, op.CodeMin, op.CodeMax, op.CodeAvg,
		op.CodeBitAnd, op.CodeBitOr, op.CodeBitXor, op.CodeUser, op.CodeMinLoc, op.CodeMaxLoc}
)

// testCase is one operation on one bed.
type testCase struct {
	dtype     op.DType
	code      op.Code
	ranks     int
	length    int // elements
	algorithm op.Algorithm
	rails     int
	variant   int

	once     sync.Once
	operands [][]byte // by rank
	expected []byte
}

func (c *testCase) String() string {
	return fmt.Sprintf("%v of %d × %v by %v over %d ranks, %d rails, variant %d",
		c.code, c.length, c.dtype, c.algorithm, c.ranks, c.rails, c.variant)
}

// allCases is every combination that is defined.
func allCases() []*testCase {
	var cases []*testCase
	for ranks := 1; ranks <= maxRanks; ranks++ {
		for rails := 1; rails <= maxRails; rails++ {
			for variant := range variants {
				for _, a := range algorithms {
					for _, d := range op.DTypes {
						for _, code := range codes {
							for _, length := range lengths {
								if operator(code, d).Check(d) == nil {
									cases = append(cases, &testCase{dtype: d, code: code, ranks: ranks,
										length: length, algorithm: a, rails: rails, variant: variant})
								}
							}
						}
					}
				}
			}
		}
	}
	return cases
}

func operator(code op.Code, d op.DType) op.Op {
	if code == op.CodeUser {
		return userOp(d)
	}
	for _, o := range op.BuiltIn {
		if o.Code() == code {
			return o
		}
	}
	panic("no operator " + code.String())
}

// properties are what a pairwise cover pairs up.
func (c *testCase) properties() [7]int {
	return [...]int{int(c.dtype), int(c.code), c.ranks, c.length, int(c.algorithm), c.rails, c.variant}
}

// pair is two properties with their values.
type pair struct{ i, vi, j, vj int }

func (c *testCase) pairs() []pair {
	p := c.properties()
	var pairs []pair
	for i := range p {
		for j := i + 1; j < len(p); j++ {
			pairs = append(pairs, pair{i, p[i], j, p[j]})
		}
	}
	return pairs
}

// cover is a set of cases in which every pair of properties occurs that occurs in any: the first
// one that has something new in a shuffled order, as long as there is one.
func cover(cases []*testCase, rng *rand.Rand) []*testCase {
	met := make(map[pair]bool)
	var chosen []*testCase
	// Those that have much that is new first, then the rest.
	for _, least := range []int{15, 10, 6, 3, 1} {
		for _, i := range rng.Perm(len(cases)) {
			fresh := 0
			pairs := cases[i].pairs()
			for _, p := range pairs {
				if !met[p] {
					fresh++
				}
			}
			if fresh < least {
				continue
			}
			for _, p := range pairs {
				met[p] = true
			}
			chosen = append(chosen, cases[i])
		}
	}
	return chosen
}

// prepare makes the operands and the expected result, once for all ranks.
func (c *testCase) prepare() {
	c.once.Do(func() {
		rng := rand.New(rand.NewPCG(uint64(c.dtype)<<32|uint64(c.length), uint64(c.ranks)<<32|uint64(c.code)))
		for range c.ranks {
			c.operands = append(c.operands, operand(c.dtype, c.length, rng))
		}
		c.expected = expected(c.dtype, c.code, c.algorithm, bcubeBase, c.operands)
	})
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
