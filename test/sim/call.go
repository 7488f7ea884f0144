package sim

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/test/order"
)

// call is one operation as all ranks know it.
type call struct {
	kind      op.Kind
	algorithm op.Algorithm
	root      int
	bytes     int
	counts    plan.Parts // nil: as the kind divides it
	inPlace   uint32     // by bit of rank mod 32: which ranks call it in place
	subtract  bool       // instead of adding, which shows each operand's place

	// Settled by the first rank that begins it.
	table    *table.Table
	parts    plan.Parts
	eager    bool
	inputs   [][]float32 // by rank: what its source holds
	expected [][]float32 // by rank: what its destination holds afterwards; nil: nothing
}

func (c *call) String() string {
	name := fmt.Sprintf("%v by %v of %d bytes", c.kind, c.algorithm, c.bytes)
	if c.kind.Rooted() {
		name += fmt.Sprintf(", root %d", c.root)
	}
	if c.counts != nil {
		name += fmt.Sprintf(", parts of %v", c.counts)
	}
	return name
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
	a, known := t.Lookup(int64(c.bytes)).Algorithm, schedule.Algorithms(c.kind)
	switch {
	case slices.Contains(known, a):
		c.algorithm = a
	case s.setup.measured:
		c.algorithm = fixedRule(int64(c.bytes))
	case a != op.Auto: // tables have algorithms of allreduces only
		c.algorithm = known[int(a)%len(known)]
	}
	c.eager = c.bytes <= s.setup.eagerBytes
	c.parts = plan.PartsOf(c.kind, c.algorithm, s.setup.ranks, c.bytes, c.counts)
	c.inputs = c.inputs[:0]
	for r := range s.setup.ranks {
		source, _ := c.buffers(r, s.setup.ranks)
		input := s.floats.get(source / 4)
		s.awkward(input)
		c.inputs = append(c.inputs, input)
	}
	s.expect(c)
	if t.Version > 1 {
		s.stats.Switched++
	}
	if c.counts != nil {
		s.stats.Uneven++
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

// order is the call as test/order knows it.
func (s *Sim) order(c *call) order.Operation {
	return order.Operation{Kind: c.kind, Algorithm: c.algorithm, N: s.setup.ranks,
		Base: s.setup.base, Root: c.root, Hosts: s.setup.hosts}
}

// sameForAll reports whether all ranks get the same.
func (c *call) sameForAll() bool {
	return c.kind == op.KindAllReduce || c.kind == op.KindAllGather
}

// expect evaluates the declared order on the inputs.
func (s *Sim) expect(c *call) {
	o := s.order(c)
	if len(c.parts) != o.Parts() || c.parts.Total() != c.bytes {
		s.fail("%v among %d ranks is divided into %v", c, s.setup.ranks, c.parts)
	}
	c.expected = c.expected[:0]
	for r := range s.setup.ranks {
		if r > 0 && c.sameForAll() {
			c.expected = append(c.expected, c.expected[0])
			continue
		}
		c.expected = append(c.expected, s.result(c, o.Pieces(r)))
	}
}

// result is what a rank gets of these pieces; nil where there are none.
func (s *Sim) result(c *call, pieces []order.Piece) []float32 {
	if len(pieces) == 0 {
		return nil
	}
	bytes := 0
	for _, p := range pieces {
		bytes += c.parts[p.Part]
	}
	result := s.floats.get(bytes / 4)
	rest := result
	for _, p := range pieces {
		length, low := c.parts[p.Part]/4, c.parts[:p.Source].Total()/4
		s.evaluate(c, p.Of, low, low+length, rest[:length])
		rest = rest[length:]
	}
	if s.order(c).Averages() {
		for i := range result {
			result[i] *= finalFactor
		}
	}
	return result
}

// forget gives the memory of a call back that is over.
func (s *Sim) forget(c *call) {
	for r := range c.inputs {
		s.floats.put(c.inputs[r])
		if r == 0 || !c.sameForAll() {
			s.floats.put(c.expected[r])
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
// buffers are the lengths of a rank's source and destination.
func (c *call) buffers(rank, ranks int) (source, destination int) {
	own := c.parts.Total()
	if len(c.parts) == ranks {
		own = c.parts[rank]
	}
	return plan.Buffers(c.kind, op.Rank(rank), op.Rank(c.root), c.parts.Total(), own)
}

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

// places are the hosts as schedules have them: the same pointer for the same hosts, since programs are
// kept by it.
func (s *Sim) places() *schedule.Hosts {
	key := fmt.Sprint(s.setup.hosts)
	h, known := s.layouts[key]
	if !known {
		h = schedule.NewHosts(s.setup.hosts)
		s.layouts[key] = h
	}
	return h
}

// cost is that of a call's algorithm.
func (s *Sim) cost(c *call) schedule.Cost {
	return schedule.CostOf(schedule.Spec{Kind: c.kind, Algorithm: c.algorithm, N: s.setup.ranks, Root: op.Rank(c.root),
		Base: s.setup.base, Hosts: s.places()})
}

// program is the schedule of one rank, built once.
func (s *Sim) program(c *call, rank int, inPlace bool) *schedule.Program {
	spec := schedule.Spec{
		Kind: c.kind, Algorithm: c.algorithm, Rank: op.Rank(rank), N: s.setup.ranks, Root: op.Rank(c.root),
		Base: s.setup.base, InPlace: inPlace, Hosts: s.places(),
	}
	p := s.programs[spec]
	if p == nil {
		var err error
		p, err = schedule.Build(spec)
		s.failIf(err, "rank %d", rank)
		s.programs[spec] = p
	}
	return p
}
