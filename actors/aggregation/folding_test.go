package aggregation

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/reduce"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/schedule/reference"
)

// operands are those of all ranks for some fragments: by rank and number.
func operands(rng *rand.Rand, d op.Descriptor, ranks int, lengths []int) [][]request {
	parts := schedule.Parts(d.Kind, d.Algorithm, ranks)
	all := make([][]request, ranks)
	for rank := range all {
		for number, length := range lengths {
			data := make([]byte, length)
			for i := range data {
				data[i] = byte(rng.Uint32())
			}
			all[rank] = append(all[rank], request{desc: d, block: number % parts, data: data})
		}
	}
	return all
}

// valueOf is the right value of a fragment.
func valueOf(t testing.TB, o op.Op, all [][]request, number int) []byte {
	t.Helper()
	d, n := all[0][number].desc, len(all)
	combine, err := reduce.For(o, d.DType)
	if err != nil {
		t.Fatal(err)
	}
	operand := func(r op.Rank) []byte { return bytes.Clone(all[r][number].data) }
	add := func(a, b []byte) []byte {
		if err := combine(a, a, b); err != nil {
			t.Fatal(err)
		}
		return a
	}
	v := []byte(nil)
	if d.Algorithm.ByHost() { // the ranks of two hosts, dealt in turn (testHost)
		hosts := make([][]int, 2)
		for r := range n {
			hosts[testHost(r)] = append(hosts[testHost(r)], r)
		}
		v = reference.FoldByHost(d.Kind, d.Algorithm, hosts, all[0][number].block, operand, add)
	} else {
		v = reference.Fold(d.Algorithm, n, testBase, all[0][number].block, operand, add)
	}
	if o.Code() == op.CodeAvg {
		reduce.Divide(d.DType, v, n)
	}
	return v
}

func TestAnAllReduceIsRightToTheBit(t *testing.T) {
	lengths := []int{testBytes, testBytes, 4096, 16, 0, testBytes - 64, testBytes, 16, testBytes, 1024, 48, 4096, 0}
	for _, c := range []struct {
		op    op.Op
		dtype op.DType
	}{{op.Sum, op.F32}, {op.Avg, op.BF16}, {op.Prod, op.F64}, {op.Max, op.Int64}, {op.MinLoc, op.F32Loc},
		{op.BitXor, op.Uint8}, {op.Avg, op.Int32}} {
		for _, a := range schedule.Algorithms(op.KindAllReduce) {
			for _, n := range []int{2, 3, 5} {
				t.Run(fmt.Sprintf("%v/%v/%v/%d", c.op, c.dtype, a, n), func(t *testing.T) {
					virtual(t, n, nil, func(b *bed) {
						b.form()
						d := op.Descriptor{Kind: op.KindAllReduce, DType: c.dtype, Code: c.op.Code(),
							Algorithm: a, Elements: 1}
						all := operands(rand.New(rand.NewPCG(1, uint64(n))), d, n, lengths)
						b.run(c.op, all)
					})
				})
			}
		}
	}
}

// run has all children send their fragments, and checks the responses.
func (b *bed) run(o op.Op, all [][]request) {
	b.t.Helper()
	for rank, c := range b.children {
		c.begin(all[rank])
	}
	synctest.Wait()
	b.expectValues(o, all)
}

// expectValues checks the responses of all children, and what the server tells of them.
func (b *bed) expectValues(o op.Op, all [][]request) {
	b.t.Helper()
	synctest.Wait()
	var folded uint64
	for number := range all[0] {
		want := valueOf(b.t, o, all, number)
		folded += uint64(len(want) * len(all))
		for _, c := range b.children {
			c.mu.Lock()
			got, ok := c.responses[uint64(number)]
			c.mu.Unlock()
			if !ok || !bytes.Equal(got, want) {
				b.t.Fatalf("%s: fragment %d (here: %v) has another value", c.name, number, ok)
			}
		}
	}
	s := b.server.Groups()
	if len(s) != 1 || s[0].Fragments != uint64(len(all[0])) || s[0].FoldedBytes != folded {
		b.t.Errorf("status %+v, want %d fragments of %d bytes", s, len(all[0]), folded)
	}
}

// Of 1,000 fragments the operands come in as many orders: the same bits each time.
func TestOperandsOfAnyOrderAreFoldedInTheDeclaredOne(t *testing.T) {
	const ranks = 5
	virtual(t, ranks, nil, func(b *bed) {
		b.form()
		random := rand.New(rand.NewPCG(1, 2))
		all := operands(random, sumOfFloats, ranks, []int{256})
		want := valueOf(t, op.Sum, all, 0)
		orders := make(map[string]bool)
		for number := range uint64(1000) {
			order := random.Perm(ranks)
			orders[fmt.Sprint(order)] = true
			for _, rank := range order {
				b.children[rank].begin(all[rank])
				synctest.Wait()
			}
			if !bytes.Equal(b.children[1].responses[number], want) {
				t.Fatalf("arrived as %v: another value", order)
			}
		}
		if len(orders) < 100 {
			t.Errorf("%d orders", len(orders))
		}
	})
}

func TestWhatAllChildrenHaveIsSettled(t *testing.T) {
	virtual(t, 3, nil, func(b *bed) {
		b.form()
		b.run(op.Sum, operands(rand.New(rand.NewPCG(1, 2)), sumOfFloats, 3, []int{256, 256, 256}))
		b.children[0].hold()
		b.children[2].hold()
		synctest.Wait()
		if b.children[0].settled != 0 {
			t.Error("settled, though a child has said nothing")
		}
		b.children[1].hold()
		synctest.Wait()
		for _, c := range b.children {
			if c.settled != 3 {
				t.Errorf("%s: %d fragments are settled, want 3", c.name, c.settled)
			}
		}
	})
}

func TestAGroupKeepsNoMoreMemoryThanItReserved(t *testing.T) {
	virtual(t, 3, nil, func(b *bed) {
		b.form()
		lengths := slices.Repeat([]int{testBytes}, 100)
		b.run(op.Sum, operands(rand.New(rand.NewPCG(1, 2)), sumOfFloats, 3, lengths))
		g := b.server.group(testGroup)
		g.mu.Lock()
		defer g.mu.Unlock()
		if made := int64(g.buffers.made) * testBytes; made > g.reserved {
			t.Errorf("%d bytes were made, %d are reserved", made, g.reserved)
		}
	})
}

func TestAGroupOutlivesItsRail(t *testing.T) {
	virtual(t, 3, nil, func(b *bed) {
		b.form()
		all := operands(rand.New(rand.NewPCG(1, 2)), sumOfFloats, 3, slices.Repeat([]int{testBytes}, 20))
		b.children[1].moved = true
		b.net.Silence("child1", "rail1")
		for _, rank := range []int{0, 2} {
			b.children[rank].begin(all[rank])
		}
		b.children[1].begin(all[1][:3])
		synctest.Wait()
		b.net.Cut("child1", "rail1")
		b.children[1].begin(all[1][3:])
		<-time.After(10 * time.Second) // of virtual time
		if s := b.children[1].station.fabric.Rails(); s[0].Resent == 0 {
			t.Errorf("nothing was on its way when the rail was cut: %+v", s)
		}
		b.expectValues(op.Sum, all)
	})
}
