package sim

import (
	"math"
	"math/bits"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/test/order"
)

// call is one operation as all ranks know it.
type call struct {
	bytes     int
	algorithm op.Algorithm
	inPlace   uint32 // by bit: which ranks call it in place
	subtract  bool   // instead of adding: no operator of polyrail's, but it shows each operand's place

	// Settled by the first rank that begins it.
	table    *table.Table
	plan     *plan.Plan
	eager    bool
	inputs   [][]float32 // by rank: its source memory
	expected []float32
}

// finalFactor stands for what is done once where a value becomes final (the division of an
// average): done twice, or not at all, it shows.
const finalFactor = 3

// settle fixes what depends on the table, and checks that all ranks mean the same one.
func (s *Sim) settle(c *call, rank int, seq uint64, t *table.Table) {
	if c.table != nil {
		if c.table.Version != t.Version {
			s.fail("rank %d runs seq %d under table version %d, another rank under %d", rank, seq, t.Version, c.table.Version)
		}
		return
	}
	c.table = t
	entry := t.Lookup(int64(c.bytes))
	if entry.Algorithm != op.Auto {
		c.algorithm = entry.Algorithm
	} else if s.setup.measured {
		c.algorithm = fixedRule(int64(c.bytes))
	}
	c.eager = c.bytes <= s.setup.eagerBytes
	c.plan = s.planOf(c.bytes, order.Owners(c.algorithm, s.setup.ranks), entry.Weights)
	c.inputs = c.inputs[:0]
	for range s.setup.ranks {
		input := s.floats.get(c.bytes / 4)
		s.awkward(input)
		c.inputs = append(c.inputs, input)
	}
	s.expect(c)
	if t.Version > 1 {
		s.stats.Switched++
	}
}

// awkward fills v with numbers whose sum shows the order in which it was formed: signs and
// magnitudes mixed so that much cancels, some zeros of both signs, some subnormals.
func (s *Sim) awkward(v []float32) {
	for i := range v {
		r := s.rng.Uint32()
		exponent := 120 + r>>8&15 // 2⁻⁷ … 2⁸
		switch r >> 12 & 31 {
		case 0:
			exponent, r = 0, r&^0x7fffff // ±0
		case 1:
			exponent = 0
		case 2:
			exponent = 180
		}
		v[i] = math.Float32frombits(r&0x80000000 | exponent<<23 | bits.Reverse32(r)>>9)
	}
}

// expect evaluates the declared order on the inputs.
func (s *Sim) expect(c *call) {
	c.expected = s.floats.get(c.bytes / 4)
	for owner := range c.plan.Owners {
		low := min(owner*c.plan.Block, c.bytes) / 4
		high := min((owner+1)*c.plan.Block, c.bytes) / 4
		if low == high {
			continue
		}
		e := order.Of(c.algorithm, s.setup.ranks, s.setup.base, owner)
		s.evaluate(c, e, low, high, c.expected[low:high])
		for i := low; i < high; i++ {
			c.expected[i] *= finalFactor
		}
	}
}

// evaluate sets dst to an expression over elements [low, high) of the inputs.
func (s *Sim) evaluate(c *call, e *order.Expr, low, high int, dst []float32) {
	if len(e.Args) == 0 {
		copy(dst, c.inputs[e.Rank][low:high])
		return
	}
	s.evaluate(c, e.Args[0], low, high, dst)
	operand := s.floats.get(high - low)
	for _, arg := range e.Args[1:] {
		s.evaluate(c, arg, low, high, operand)
		c.combine(dst, dst, operand)
	}
	s.floats.put(operand)
}

// combine is the kernel. dst may be a or b.
func (c *call) combine(dst, a, b []float32) {
	if c.subtract {
		for i, v := range b {
			dst[i] = a[i] - v
		}
		return
	}
	for i, v := range b {
		dst[i] = a[i] + v
	}
}

// program is the schedule of one rank, built once.
func (s *Sim) program(a op.Algorithm, rank int) *schedule.Program {
	key := programKey{a, rank, s.setup.ranks, s.setup.base}
	p := s.programs[key]
	if p == nil {
		var err error
		p, err = schedule.Build(a, op.Rank(rank), s.setup.ranks, s.setup.base)
		s.failIf(err, "rank %d", rank)
		s.programs[key] = p
	}
	return p
}

// floatPool keeps memory by size class.
type floatPool [32][][]float32

// get returns n numbers, all poison: a NaN that no arithmetic on the inputs makes.
func (p *floatPool) get(n int) []float32 {
	class := bits.Len(uint(n))
	var v []float32
	if kept := p[class]; len(kept) > 0 {
		v, p[class] = kept[len(kept)-1][:n], kept[:len(kept)-1]
	} else {
		v = make([]float32, n, 1<<class)
	}
	poison(v)
	return v
}

func (p *floatPool) put(v []float32) {
	if cap(v) > 0 {
		class := bits.Len(uint(cap(v))) - 1
		p[class] = append(p[class], v[:0])
	}
}

var poisonValue = math.Float32frombits(0x7fc0dead)

func poison(v []float32) {
	for i := range v {
		v[i] = poisonValue
	}
}

func poisoned(v []float32) bool {
	for _, f := range v {
		if math.Float32bits(f) != 0x7fc0dead {
			return false
		}
	}
	return true
}
