package engine

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/reduce"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/table"
)

// This file is about what follows from a call: what all ranks must decide alike.

// Configure gives a numbered operation its call, its shape under a table, and its owner. The
// coordinator alone calls it, then hands the operation to the caller, who launches it. A call that
// can't be run still consumes its seq: the other ranks may have called right. Launch ends it.
func (o *Operation) Configure(w *Work, t *table.Table, owner Owner) {
	r := w.request
	o.request, o.work, o.owner = r, w, owner
	w.seq = o.Seq
	if err := o.group.configure(o, r, t); err != nil {
		o.Doom(err)
	}
}

// Doom makes an operation that isn't launched yet end as it is launched.
func (o *Operation) Doom(cause error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cause == nil {
		o.cause = cause
	}
}

// configure works an operation's shape out. An error is a call that can't be run.
func (g *Group) configure(o *Operation, r *Request, t *table.Table) error {
	if !r.Kind.Rooted() {
		r.Root = 0
	}
	o.shape.desc = op.Descriptor{Kind: r.Kind, DType: r.DType, Code: r.Op.Code(), Root: r.Root,
		Batch: r.Batch.len()}
	if r.Batch != nil && r.Batch.fault != nil {
		return r.Batch.fault
	}
	if err := r.measure(g.Rank, g.Size); err != nil {
		return err
	}
	if r.Kind.Reduces() {
		combine, err := reduce.For(r.Op, r.DType)
		if err != nil {
			return err
		}
		if o.combine = combine; r.Op.Code() == op.CodeUser {
			o.combine = apart(combine)
		}
	}
	desc := &o.shape.desc
	desc.Elements = uint64(r.bytes / max(1, r.DType.Size()))
	desc.Algorithm = g.choose(r, entryOf(t, r).Algorithm)
	cut, err := g.cuts.of(g, r, t, desc.Algorithm)
	if err != nil {
		return err
	}
	o.shape.table, o.shape.split = t.Version, cut.split
	o.shape.eager = r.bytes <= g.eagerBytes()
	shows := g.shows(desc, t)
	o.shape.digest = digest(g, r, *desc, cut.plan.Segment, o.shape.eager, shows)
	config := &o.shape.config
	config.Program, config.Plan, config.Eager = cut.program, cut.plan, o.shape.eager
	if config.InPlace = cut.program.InPlace; !config.InPlace && r.External == nil {
		if config.InPlace, err = inPlace(r, cut.plan.Blocks); err != nil {
			return err
		}
	}
	o.shape.acknowledged = g.mayRunAhead(r)
	o.memory[0], o.memory[2] = r.Src, r.Dst // task.Input, task.Final
	polls := o.shape.eager && g.tries(g.paces.of(r.bytes))
	if shows {
		o.prepareShown(cut, polls)
		return nil
	}
	if polls {
		o.work.from = g.sources(o.work.from[:0], cut)
	}
	return o.joinTrees(t, polls)
}

// sharedFactor is how many times larger than EagerBytes an operation may be that goes without a
// grant, where all ranks share memory. There a grant costs a change of process, and what comes too
// early waits in rings.
const sharedFactor = 4

// eagerBytes is the largest operation that goes without a grant.
func (g *Group) eagerBytes() int {
	if g.shared {
		return sharedFactor * g.engine.Config.EagerBytes
	}
	return g.engine.Config.EagerBytes
}

// aheadUnheard is how many operations a rank may begin without hearing from others.
const aheadUnheard = 64

// mayRunAhead reports whether an operation is to wait for the acknowledgement of what it sends. In
// most kinds each rank waits for all others. In these some only send: a root of broadcasts could
// begin any number of them before the others' first one. So one in a few waits until its frames are
// on the other side, where credit bounds them.
func (g *Group) mayRunAhead(r *Request) bool {
	switch r.Kind {
	case op.KindReduce, op.KindGather, op.KindScatter, op.KindBroadcast, op.KindScan, op.KindExScan:
	default:
		if r.Counts == nil {
			return false
		}
	}
	g.unheard++
	return g.unheard%aheadUnheard == 0
}

// measure works out the operation's size, and reports memory that isn't what its kind wants.
func (r *Request) measure(rank op.Rank, n int) error {
	if r.Counts != nil && !r.Kind.Counted() {
		return fmt.Errorf("counts for %v, which takes none", r.Kind)
	}
	if r.Kind.Empty() || r.Kind == op.KindAllToAllV {
		r.bytes = 0 // as the schedule has it
		if r.Algorithm != op.Auto && (r.Kind.Empty() || r.Algorithm != op.Direct) {
			return fmt.Errorf("no schedule for %v by algorithm %v", r.Kind, r.Algorithm)
		}
		return nil
	}
	size := r.DType.Size()
	switch {
	case size == 0:
		return fmt.Errorf("%v is not an element type", r.DType)
	case r.Root < 0 || int(r.Root) >= n:
		return fmt.Errorf("root %d of %d ranks", r.Root, n)
	case r.Counts != nil && len(r.Counts) != n:
		return fmt.Errorf("%d counts for %d ranks", len(r.Counts), n)
	}
	most := maxOperation / size
	if i := slices.IndexFunc(r.Counts, func(count int) bool { return count < 0 || count > most }); i >= 0 {
		return fmt.Errorf("count %d is %d: it must be 0 … %d", i, r.Counts[i], most)
	}
	if (r.Kind == op.KindScan || r.Kind == op.KindExScan) && r.Op.Code() == op.CodeAvg {
		return fmt.Errorf("an average is not defined for %v", r.Kind)
	}
	if r.bytes = r.total(rank, n, size); r.bytes > maxOperation {
		return fmt.Errorf("%d elements of %v in all; an operation has at most %d", r.bytes/size, r.DType, most)
	}
	if r.Kind == op.KindAllToAll && r.bytes%(n*size) != 0 {
		return fmt.Errorf("source of %d elements can't be divided into %d equal parts", r.bytes/size, n)
	}
	own := r.bytes / n
	if r.Counts != nil {
		own = r.Counts[rank] * size
	}
	source, destination := plan.Buffers(r.Kind, rank, r.Root, r.bytes, own)
	if reads, writes := plan.Buffers(r.Kind, rank, r.Root, 1, 1); reads == 0 {
		r.Src = nil
	} else if writes == 0 {
		r.Dst = nil
	}
	switch {
	case len(r.Src) != source:
		return fmt.Errorf("source has %d bytes, want %d", len(r.Src), source)
	case len(r.Dst) != destination:
		return fmt.Errorf("destination has %d bytes, want %d", len(r.Dst), destination)
	case len(r.Src)%size != 0 || len(r.Dst)%size != 0:
		return fmt.Errorf("%d bytes are no whole number of %v", max(len(r.Src), len(r.Dst)), r.DType)
	case misaligned(r.Dst, r.DType) || misaligned(r.Src, r.DType):
		return fmt.Errorf("memory is not aligned for %v", r.DType)
	}
	return nil
}

// maxOperation, in bytes, keeps lengths and offsets far from what an int holds. Counts may be of
// memory that other ranks have, so that there is none here to hold them against.
const maxOperation = 1 << 40

// total is the size of the operation: what its larger buffers have, on the ranks that have those.
func (r *Request) total(rank op.Rank, n, elemSize int) int {
	if r.Counts != nil {
		elements := 0
		for _, count := range r.Counts {
			elements += count
		}
		return elements * elemSize
	}
	switch r.Kind {
	case op.KindAllGather, op.KindGather:
		return n * len(r.Src)
	case op.KindReduceScatter, op.KindScatter:
		return n * len(r.Dst)
	case op.KindBroadcast:
		if rank != r.Root {
			return len(r.Dst)
		}
	}
	return len(r.Src)
}

// parts is how the operation's data is divided by an algorithm.
func (r *Request) parts(n int, a op.Algorithm) plan.Parts {
	var counts plan.Parts
	for _, count := range r.Counts {
		counts = append(counts, count*r.DType.Size())
	}
	return plan.PartsOf(r.Kind, a, n, r.bytes, counts)
}

// sources appends the pairs that an operation's frames come over.
func (g *Group) sources(from []source, k *cut) []source {
	for lane := range k.plan.Lanes {
		if k.plan.Lanes[lane].Rounds == 0 {
			continue
		}
		for i := range k.program.From {
			rank := inTurn(k.program.From, g.Rank, i)
			s := source{peer: g.Peers[rank], rail: g.Peers[rank].Carrier(lane)}
			if s.peer.Pollable(s.rail) && !slices.Contains(from, s) {
				from = append(from, s)
			}
		}
	}
	return from
}

// inTurn is the i-th of ascending ranks from this one on. Sums are folded in that order: a frame that is
// found when it is its turn is folded where it lies.
func inTurn(ranks []op.Rank, own op.Rank, i int) op.Rank {
	next, _ := slices.BinarySearch(ranks, own)
	return ranks[(next+i)%len(ranks)]
}

// maxCuts bounds the programs and plans that a group keeps for the next operations.
const maxCuts = 256

// cut is what an operation runs by.
type cut struct {
	program *schedule.Program
	plan    *plan.Plan
	split   uint32          // of its size class (balance.SplitOf)
	counts  []int           // of the calls that it is for
	folds   []schedule.Fold // where every rank has all operands; else none
}

// cutKey is what a cut follows from, but for the counts.
type cutKey struct {
	spec     schedule.Spec
	table    uint32
	bytes    int
	elemSize int
	rail     int
}

// cuts are the last ones.
type cuts struct {
	programs map[schedule.Spec]*schedule.Program
	cuts     map[cutKey]*cut
}

func newCuts() cuts {
	return cuts{make(map[schedule.Spec]*schedule.Program), make(map[cutKey]*cut)}
}

// of is the cut of a call under a table.
func (k *cuts) of(g *Group, r *Request, t *table.Table, a op.Algorithm) (*cut, error) {
	spec := g.spec(r.Kind, a, r.Root)
	spec.InPlace = r.Kind == op.KindAllToAll && same(r.Dst, r.Src)
	key := cutKey{spec, t.Version, r.bytes, max(1, r.DType.Size()), r.Rail}
	if old := k.cuts[key]; old != nil && slices.Equal(old.counts, r.Counts) {
		return old, nil
	}
	program := k.programs[spec]
	if program == nil {
		var err error
		if program, err = schedule.Build(spec); err != nil {
			return nil, err
		}
		if len(k.programs) >= maxCuts {
			clear(k.programs)
		}
		k.programs[spec] = program
	}
	family := table.FamilyOf(r.Kind)
	weights := entryOf(t, r).Weights
	if r.Rail > 0 {
		weights = make([]uint32, len(weights))
		weights[r.Rail-1] = 1
	}
	cost := schedule.CostOf(spec)
	l := plan.NewLayout(r.bytes, key.elemSize, r.parts(g.Size, a), program.Blocks, cost)
	made := &cut{program: program, plan: plan.New(l, plan.Rounds(l.Rounds, weights), cost),
		split:  balance.SplitOf(t, family, balance.ClassOf(int64(r.bytes))),
		counts: slices.Clone(r.Counts)}
	if g.boards != nil && r.Kind == op.KindAllReduce && schedule.Parts(r.Kind, a, g.Size) == 1 {
		made.folds = schedule.Order(spec, 0)
	}
	if len(k.cuts) >= maxCuts {
		clear(k.cuts)
	}
	k.cuts[key] = made
	return made, nil
}

// inPlace reports whether source and destination are the same memory, for every block that has
// both. An error says that they overlap in some other way.
func inPlace(r *Request, blocks []plan.Block) (bool, error) {
	shared := overlap(r.Dst, r.Src)
	if shared == 0 {
		return false, nil
	}
	ahead := int(uintptr(unsafe.Pointer(unsafe.SliceData(r.Dst))) - uintptr(unsafe.Pointer(unsafe.SliceData(r.Src))))
	for _, b := range blocks {
		if b.Source != schedule.None && b.Target != schedule.None && b.Source == ahead+b.Target {
			shared -= b.Bytes
		}
	}
	if shared != 0 {
		return false, fmt.Errorf("source and destination overlap: where %v works in place, "+
			"the rank's own part must be the same memory in both, and nothing else", r.Kind)
	}
	return true, nil
}

// overlap is how many bytes two slices share.
func overlap(a, b []byte) int {
	if len(a) == 0 || len(b) == 0 {
		return 0
	}
	pa, pb := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	low, high := max(pa, pb), min(pa+uintptr(len(a)), pb+uintptr(len(b)))
	if low >= high {
		return 0
	}
	return int(high - low)
}

// same reports whether two equally long slices are the same memory.
func same(a, b []byte) bool {
	return len(a) == len(b) && len(a) > 0 && unsafe.SliceData(a) == unsafe.SliceData(b)
}

func misaligned(b []byte, d op.DType) bool {
	return len(b) > 0 && uintptr(unsafe.Pointer(&b[0]))%uintptr(d.Align()) != 0
}
