package aggregation

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/reduce"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/sharp"
	"github.com/polyrail/polyrail/railactors/memory"
)

// order is how the operands of all children become the value of a fragment.
type order []schedule.Fold

// orderKey is what it depends on in a group.
type orderKey struct {
	kind      op.Kind
	algorithm op.Algorithm
	block     int // or of a reduce its root
}

// orderOf is the order of an operation's algorithm, for the owner of a block: the result is to the
// bit what the ranks would compute themselves. A tree of several levels folds children as they are
// numbered. Under mu.
func (g *group) orderOf(k op.Kind, a op.Algorithm, block int) order {
	key := orderKey{k, a, block}
	if g.deep {
		key = orderKey{} // theirs
	}
	o, ok := g.orders[key]
	switch {
	case ok:
		return o
	case g.deep:
		for child := range g.peers[1:] {
			o = append(o, schedule.Fold{Into: 0, From: op.Rank(child + 1)})
		}
	default:
		o = schedule.Order(schedule.Spec{Kind: k, Algorithm: a, N: g.size, Base: g.base, Hosts: g.hosts}, block)
	}
	g.orders[key] = o
	return o
}

// algorithms are those of the kinds that a node serves.
var algorithms = map[op.Kind][]op.Algorithm{
	op.KindAllReduce: schedule.Algorithms(op.KindAllReduce), op.KindBarrier: schedule.Algorithms(op.KindBarrier),
	op.KindReduce: schedule.Algorithms(op.KindReduce), op.KindBroadcast: schedule.Algorithms(op.KindBroadcast),
}

// foldable says why this node can't fold for an operation.
func (g *group) foldable(d op.Descriptor) error {
	known, served := algorithms[d.Kind]
	switch {
	case !served:
		return errors.New("an aggregation node serves allreduce, barrier, reduce and broadcast only")
	case !slices.Contains(known, d.Algorithm):
		return fmt.Errorf("no %v folds by %v", d.Kind, d.Algorithm)
	case int(d.Root) >= g.size:
		return fmt.Errorf("root %d of %d ranks", d.Root, g.size)
	case !d.Kind.Reduces():
		return nil
	}
	if g.deep && !g.free && !d.Code.Exact(d.DType) {
		return errors.New("a tree of several levels folds in an order of its own, " +
			"and this sum depends on the order")
	}
	_, err := kernel(d)
	return err
}

// kernel is what folds two operands of an operation.
func kernel(d op.Descriptor) (op.Combine, error) {
	for _, o := range op.BuiltIn {
		if o.Code() == d.Code {
			return reduce.For(o, d.DType)
		}
	}
	return nil, fmt.Errorf("an aggregation node doesn't know operator %v", d.Code)
}

// fold computes a fragment's value in place, on the calling goroutine, and appends what follows.
// All its operands are here, and nobody else touches them.
func (g *group) fold(number uint64, out []sharp.Action) []sharp.Action {
	g.mu.Lock()
	if g.cause != nil {
		g.mu.Unlock()
		return out
	}
	f := &g.fragments[number%uint64(len(g.fragments))]
	d := &f.response.Desc
	var o order
	value := 0
	if d.Kind.Reduces() {
		o = g.orderOf(d.Kind, d.Algorithm, max(int(f.response.Block), int(d.Root)))
		value = int(o[len(o)-1].Into)
	} else {
		value = f.passedOn()
	}
	g.mu.Unlock()

	if number == 0 {
		g.server.log.Info("aggregation group serves", "group", groupText(g.id), "communicator", g.name,
			"rail", g.rail, "members", strings.Join(g.names, " "), "reserved bytes", g.reserved)
	}
	err := g.compute(f, o)
	if d.Kind == op.KindBroadcast && g.parent == nil && len(f.operands[value]) != int(f.response.Length) {
		err = fmt.Errorf("nobody has sent what is broadcast")
	}

	g.mu.Lock()
	if err == nil && g.cause == nil {
		defer g.mu.Unlock()
		return g.keep(f, value, out)
	}
	g.mu.Unlock()
	if err != nil {
		g.end(fmt.Errorf("%w: fragment %d: %w", fault.ErrInternal, number, err))
	}
	return out
}

// compute leaves the value in the operand that the last fold goes into.
func (g *group) compute(f *fragment, o order) error {
	if f.response.Length == 0 || len(o) == 0 {
		return nil
	}
	combine, err := kernel(f.response.Desc)
	if err != nil {
		return err
	}
	for _, s := range o {
		into := f.operands[s.Into]
		if err := combine(into, into, f.operands[s.From]); err != nil {
			return err
		}
	}
	if f.response.Desc.Code == op.CodeAvg && g.parent == nil {
		reduce.Divide(f.response.Desc.DType, f.operands[o[len(o)-1].Into], g.size)
	}
	return nil
}

// keep makes a child's operand the fragment's result, frees the others and tells the core. Under
// mu.
func (g *group) keep(f *fragment, child int, out []sharp.Action) []sharp.Action {
	number := f.number
	r := &result{response: f.response, folded: f.operands[child]}
	if g.parent == nil {
		r.whole = r.folded
	}
	g.results[number] = r
	g.folded++
	for i, b := range f.operands {
		g.bytes += uint64(len(b))
		if i != child {
			g.buffers.put(b)
		}
		f.operands[i] = nil
	}
	f.begun = false
	return g.note(g.core.Folded(number, out), len(out))
}

// buffers are the memory of a group: as many as are needed, up to what is reserved.
type buffers struct {
	bytes int // of each
	limit int // how many there may be
	made  int
	spare [][]byte
}

// take returns n bytes, aligned to memory.Alignment.
func (b *buffers) take(n int) ([]byte, error) {
	if n == 0 {
		return []byte{}, nil
	}
	if last := len(b.spare) - 1; last >= 0 {
		buf := b.spare[last]
		b.spare = b.spare[:last]
		return buf[:n], nil
	}
	if b.made == b.limit {
		return nil, fmt.Errorf("%w: all %d buffers of %d bytes are in use", fault.ErrInternal, b.limit, b.bytes)
	}
	b.made++
	return memory.Aligned(b.bytes)[:n], nil
}

// put takes back what take returned.
func (b *buffers) put(buf []byte) {
	if cap(buf) > 0 {
		b.spare = append(b.spare, buf[:cap(buf)])
	}
}
