package polyrail_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule/reference"
	"github.com/polyrail/polyrail/railactors/transport/fault"
)

// farRails are rails on which a message takes long, so that a ring's many stages are dear.
func farRails(order OrderMode) (adapt func(*Config), rail func(node, rail int) *fault.Transport) {
	return shapedRails(fault.Options{Rate: 100e6, Delay: time.Millisecond}, func(c *Config) {
		c.Balance, c.Order, c.BcubeBase = BalanceMeasured, order, orderedBase
	})
}

// fickle is an operand whose sum shows in which order it was formed: much of it cancels.
func fickle(rank, i int) float32 {
	h := uint32(rank*7919+i)*2654435761 ^ uint32(i)<<7
	return math.Float32frombits(h&0x80000000 | (120+h>>8&15)<<23 | h>>9)
}

func fickles(rank, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = fickle(rank, i)
	}
	return v
}

// ordered is the sum of all ranks' fickles in the order of an algorithm.
func ordered(a Algorithm, ranks, n int) []float32 {
	block := plan.PartsOf(op.KindAllReduce, a, ranks, 4*n, nil)[0]
	v := make([]float32, n)
	for i := range v {
		v[i] = reference.Fold(a, ranks, orderedBase, 4*i/block,
			func(r op.Rank) float32 { return fickle(int(r), i) },
			func(a, b float32) float32 { return a + b })
	}
	return v
}

// orders runs operations and returns, by rank, the algorithm in whose order each was summed: a result
// that is in none fails. between is called on rank 0's goroutine before each.
func (b *bed) orders(comms []*Communicator, operations, n int, between func(operation int)) (algorithms [][]Algorithm) {
	b.t.Helper()
	references := make(map[Algorithm][]byte)
	for _, a := range []Algorithm{Ring, RecursiveDoubling, Bcube} {
		references[a] = op.Bytes(ordered(a, len(comms), n))
		for other, r := range references {
			if other != a && bytes.Equal(r, references[a]) {
				b.t.Fatalf("%v and %v give the same bits: the operands show nothing", a, other)
			}
		}
	}
	algorithms = make([][]Algorithm, len(comms))
	b.each(func(i int) error {
		operand, buf := fickles(i, n), make([]float32, n)
		for k := range operations {
			if i == 0 && between != nil {
				between(k)
			}
			copy(buf, operand)
			if err := AllReduce(b.t.Context(), comms[i], buf, Sum); err != nil {
				return err
			}
			ran := Auto
			for a, r := range references {
				if bytes.Equal(r, op.Bytes(buf)) {
					ran = a
				}
			}
			if ran == Auto {
				return fmt.Errorf("the sum of operation %d is in no algorithm's order", k)
			}
			algorithms[i] = append(algorithms[i], ran)
		}
		return nil
	})
	for i := range algorithms {
		if !slices.Equal(algorithms[i], algorithms[0]) {
			b.t.Errorf("rank %d ran %v, rank 0 %v", i, algorithms[i], algorithms[0])
		}
	}
	return algorithms
}

const (
	orderedElements = 50_000 // 200 kB: a ring by the fixed rule
	orderedBase     = 4      // with 2, Bcube of four ranks sums in the order of recursive doubling
)

func TestAFreeOrderFindsTheFasterAlgorithmAndKeepsEverySumRight(t *testing.T) {
	for _, cuts := range []bool{false, true} {
		t.Run(fmt.Sprintf("cuts=%v", cuts), func(t *testing.T) {
			if brief() && cuts {
				t.Skip("long under the race detector")
			}
			adapt, rails := farRails(OrderFree)
			inBed(t, 4, 2, adapt, func(b *bed) {
				comms := b.form("train")
				between := func(k int) { // a rail of a node is gone for some operations, now and then
					switch node := k / 60 % 4; k % 60 {
					case 30:
						rails(node, 1).Cut()
					case 40:
						rails(node, 1).Heal()
					}
				}
				operations := 400
				if cuts {
					operations = 900
				} else {
					between = nil
				}
				ran := b.orders(comms, operations, orderedElements, between)[0]
				if !slices.Contains(ran, Ring) || ran[len(ran)-1] == Ring {
					t.Errorf("a ring of six stages is in use: %v … %v", ran[0], ran[len(ran)-1])
				}
				table := comms[1].Table()
				if now := table.Lookup(4 * orderedElements).Algorithm; now == Auto || now == Ring {
					t.Errorf("the table has %v", now)
				}
				r, err := comms[0].Balance(b.t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range r.Classes {
					if c.Class.MaxBytes() == 256<<10 {
						t.Logf("settled %v, %v, %+v", c.Settled, c.Shares, c.Algorithms)
					}
				}
				if cuts {
					again := uint64(0)
					for _, n := range b.Nodes {
						again += n.Rails()[1].Reconnects
					}
					if again == 0 {
						t.Error("no rail was lost")
					}
				}
			})
		})
	}
}

func TestAFixedOrderKeepsItsAlgorithm(t *testing.T) {
	adapt, _ := farRails(OrderFixed)
	inBed(t, 4, 2, adapt, func(b *bed) {
		ran := b.orders(b.form("train"), 300, orderedElements, nil)[0]
		if i := slices.IndexFunc(ran, func(a Algorithm) bool { return a != Ring }); i >= 0 {
			t.Errorf("operation %d ran %v", i, ran[i])
		}
	})
}

func TestAFreeOrderServesOneRailAndItsChildren(t *testing.T) {
	adapt, _ := farRails(OrderFree)
	inBed(t, 4, 1, adapt, func(b *bed) {
		comms := b.form("train")
		ran := b.orders(comms, 300, orderedElements, nil)[0]
		chosen := ran[len(ran)-1]
		if chosen == Ring {
			t.Error("a ring of six stages is in use")
		}
		children := make([]*Communicator, len(comms))
		b.each(func(i int) (err error) { children[i], err = comms[i].Dup(b.t.Context()); return err })
		if ran := b.orders(children, 20, orderedElements, nil)[0]; ran[0] != chosen {
			t.Errorf("the child of a communicator that runs %v begins with %v", chosen, ran[0])
		}
	})
}

func TestAFreeOrderNeedsMeasurement(t *testing.T) {
	c := DefaultConfig()
	c.Rails = []Rail{{Name: "a", Protocol: "tcp", Device: "lo", Weight: 2}}
	c.Balance, c.Order = BalanceMeasured, OrderFree
	if err := c.Validate(); err == nil {
		t.Error("a free order is accepted beside a weight")
	}
	c.Rails[0].Weight = 0
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	for _, m := range []OrderMode{OrderFixed, OrderFree} {
		if got, err := ParseOrderMode(m.String()); got != m || err != nil {
			t.Errorf("%v parses as %v, %v", m, got, err)
		}
	}
	if _, err := ParseOrderMode("loose"); err == nil {
		t.Error("an unknown order is accepted")
	}
}
