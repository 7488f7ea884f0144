package sharp_test

import (
	"fmt"
	"math/bits"
	"math/rand/v2"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/sharp"
)

// What lies in memory that nobody may read any more, or not yet.
const (
	scribbled = 0xdead_0000 + iota // the caller has its result, and goes on
	torn                           // a frame is being received
	unfolded                       // a kernel writes here
	freed
)

// world is a whole group: its ranks and aggregation nodes, with their memory, and what is on its
// way between them. One step at a time happens, of those that can, drawn from a seed.
type world struct {
	rng      *rand.Rand
	without  rule
	window   int
	results  sharp.Results
	chance   *rand.Rand // of casts: worlds without any draw as they would if there were none
	loss     float64    // of casts
	ops      []operation
	want     []uint64 // by fragment
	orders   [][]schedule.Fold
	ranks    []*rank
	nodes    []*node // the root first, each after its parent
	frames   []*frame
	lazy     [kinds]float64 // of frames: how likely one is put off
	slow     []float64      // of ranks
	alarm    int            // number of responses at ranks after which a node is lost; -1: none is
	patience int            // steps from then on until it is
	steps    int

	responses, reports, repairs int
	redone                      int // fragments that all ranks folded again, up to this one
	disagreed                   bool
	seen                        stats
	failure                     *failure
	refusal                     *failure // of a repair, which goes on to see what comes of it
	logf                        func(string, ...any)
}

// stats is what a test wants to have seen.
type stats struct {
	runs, deaths, falseAlarms, repaired, saved, redone, late, levels, radix, full, torn, disagreed int
	casts, lostCasts, asks, sunk                                                                   int
}

func (s *stats) add(o stats) {
	s.runs++
	s.deaths += o.deaths
	s.falseAlarms += o.falseAlarms
	s.repaired += o.repaired
	s.saved += o.saved
	s.redone += o.redone
	s.late += o.late
	s.levels += o.levels
	s.radix += o.radix
	s.full += o.full
	s.torn += o.torn
	s.disagreed += o.disagreed
	s.casts += o.casts
	s.lostCasts += o.lostCasts
	s.asks += o.asks
	s.sunk += o.sunk
}

// failure is what was wrong first.
type failure struct {
	kind string // "wrong", "refused", "stuck", "memory", "unnoticed"
	text string
}

func (f *failure) Error() string { return f.kind + ": " + f.text }

// operation is one as all ranks call it.
type operation struct {
	first, count int
	copied       bool // resolves with its result, since its operand was copied
	liar         int  // rank that calls something else; -1: none does
}

// rank is a member: its core, and its memory by fragment.
type rank struct {
	id, child int
	parent    *node
	leaf      *sharp.Leaf
	user      []uint64 // in place: the operand, then the result
	pool      []uint64 // operands of copied operations
	slots     []uint64
	left      []bool // the result has left its slot
	highest   uint64 // response so far, and one
	launched  int    // operations
	finished  int
	told      int // operations whose end was told as Held
	fenced    bool
	repaired  bool
	from      uint64 // of the repair
}

// node is an aggregation node: its core, and its memory.
type node struct {
	id, child int
	parent    *node
	kids      []any // *rank or *node
	core      *sharp.Node
	window    int
	operands  [][]operand // by child, number % window
	requests  map[uint64]sharp.Request
	results   map[uint64]*result
	cast      uint64 // the results below were; the highest of them
	dead      bool
}

type operand struct {
	used  bool
	value uint64
}

type result struct {
	value   uint64
	readers int // frames
}

// newWorld draws a group and what befalls it.
func newWorld(seed uint64, without rule, logf func(string, ...any)) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 0)), without: without, alarm: -1, logf: logf}
	w.window = 1 + w.rng.IntN(4)
	w.drawCasts(seed)
	n := 2 + w.rng.IntN(7)
	fragments := w.drawOperations(n)
	w.drawTree(n)
	for r := range n {
		w.ranks[r].remember(fragments, w.ops)
	}
	algorithms := []op.Algorithm{op.Ring, op.RecursiveDoubling, op.Tree, op.Bcube}
	a := algorithms[w.rng.IntN(len(algorithms))]
	for owner := range n {
		w.orders = append(w.orders, schedule.Order(schedule.Spec{Kind: op.KindAllReduce, Algorithm: a, N: n, Base: 2}, owner))
	}
	for f := range fragments {
		operands := make([]uint64, n)
		for r := range operands {
			operands[r] = original(r, f)
		}
		w.want = append(w.want, w.fold(f, operands))
	}
	for k := range w.lazy {
		w.lazy[k] = w.drawSlowness()
	}
	for range n {
		w.slow = append(w.slow, w.drawSlowness())
	}
	if w.rng.IntN(3) > 0 && !w.lied() {
		w.alarm, w.patience = w.rng.IntN(fragments*n), w.rng.IntN(30)
	}
	return w
}

// drawCasts has two of three worlds cast their results, and some of these lose all casts.
func (w *world) drawCasts(seed uint64) {
	w.chance = rand.New(rand.NewPCG(seed, 1))
	w.results = sharp.Results(w.chance.IntN(3))
	switch w.without { // what is taken out there is what a node is told of frames
	case resultsKept, resultsBounded, doneFirst:
		w.results = sharp.Unicast
	}
	w.loss = []float64{0.01, 0.3, 1}[w.chance.IntN(3)]
}

func (w *world) drawSlowness() float64 { return []float64{0, 0, 0.5, 0.9}[w.rng.IntN(4)] }

func (w *world) drawOperations(n int) (fragments int) {
	for range 1 + w.rng.IntN(4) {
		o := operation{first: fragments, count: 1 + w.rng.IntN(6), copied: w.rng.IntN(4) == 0, liar: -1}
		if w.rng.IntN(40) == 0 {
			o.liar = w.rng.IntN(n)
		}
		w.ops = append(w.ops, o)
		fragments += o.count
	}
	return fragments
}

// lied reports whether the ranks' operations are to be found different.
func (w *world) lied() bool {
	for _, o := range w.ops {
		if o.liar >= 0 {
			return true
		}
	}
	return false
}

// drawTree puts all ranks below the root, or some of them below nodes of a second level; or it makes a
// tree of a radix of 2 or 4, of up to three levels, without nodes that have one child.
func (w *world) drawTree(n int) {
	root := &node{}
	w.nodes = []*node{root}
	switch {
	case n > 2 && w.rng.IntN(3) == 0:
		w.seen.radix++
		w.divide(root, 0, n, 2<<w.rng.IntN(2))
		w.makeCores()
		return
	case n > 2 && w.rng.IntN(2) == 0:
		w.seen.levels++
		for i := range 1 + w.rng.IntN(3) {
			below := &node{id: i + 1, parent: root, child: i}
			root.kids = append(root.kids, below)
			w.nodes = append(w.nodes, below)
		}
	}
	for id := range n {
		r := &rank{id: id, parent: root}
		switch i := id + 1; {
		case i < len(w.nodes):
			r.parent = w.nodes[i] // none is without children
		case len(w.nodes) > 1:
			r.parent = w.nodes[w.rng.IntN(len(w.nodes))]
		}
		w.addRank(r)
	}
	w.makeCores()
}

// divide puts ranks below a node, in groups so that no node has more than radix children.
func (w *world) divide(a *node, first, end, radix int) {
	group := 1
	for group*radix < end-first {
		group *= radix
	}
	for ; first < end; first += group {
		last := min(first+group, end)
		if last-first == 1 {
			w.addRank(&rank{id: first, parent: a})
			continue
		}
		below := &node{id: len(w.nodes), parent: a, child: len(a.kids)}
		a.kids = append(a.kids, below)
		w.nodes = append(w.nodes, below)
		w.divide(below, first, last, radix)
	}
}

func (w *world) addRank(r *rank) {
	r.child = len(r.parent.kids)
	r.parent.kids = append(r.parent.kids, r)
	r.leaf = sharp.NewLeaf(w.leafWindow())
	r.slots = make([]uint64, r.leaf.Slots())
	w.ranks = append(w.ranks, r)
}

func (w *world) makeCores() {
	for _, a := range w.nodes {
		a.window = w.nodeWindow()
		casts := make([]bool, len(a.kids))
		for c, kid := range a.kids {
			_, casts[c] = kid.(*rank)
		}
		a.core = sharp.NewNode(sharp.NodeConfig{Children: len(a.kids), Window: a.window, Root: a.parent == nil,
			Results: w.results, Casts: casts})
		a.operands = make([][]operand, len(a.kids))
		for c := range a.operands {
			a.operands[c] = make([]operand, a.window)
		}
		a.requests, a.results = make(map[uint64]sharp.Request), make(map[uint64]*result)
	}
}

// remember fills the rank's memory with its operands.
func (r *rank) remember(fragments int, ops []operation) {
	r.user, r.pool, r.left = make([]uint64, fragments), make([]uint64, fragments), make([]bool, fragments)
	for f := range r.user {
		r.user[f] = original(r.id, f)
	}
	for _, o := range ops {
		if o.copied {
			copy(r.pool[o.first:], r.user[o.first:o.first+o.count])
		}
	}
}

// original is a rank's operand of a fragment.
func original(rank, fragment int) uint64 {
	return uint64(rank*1000+fragment+1) * 0x9e3779b97f4a7c15
}

// combine is neither associative nor commutative.
func combine(a, b uint64) uint64 { return bits.RotateLeft64(a, 7)*0xd1342543de82ef95 + (b ^ b>>29) }

// fold is the value of a fragment over all ranks: in the order of its owner where one node folds
// them all. Trees of more levels have an order of their own, and so none but exact operators.
func (w *world) fold(fragment int, operands []uint64) uint64 {
	if len(w.nodes) > 1 {
		return sum(operands)
	}
	order := w.orders[fragment%len(operands)]
	v := append([]uint64(nil), operands...)
	for _, f := range order {
		v[f.Into] = combine(v[f.Into], v[f.From])
	}
	return v[order[len(order)-1].Into]
}

func sum(operands []uint64) (s uint64) {
	for _, x := range operands {
		s += x
	}
	return s
}

func (w *world) opOf(fragment uint64) *operation {
	for i := range w.ops {
		if o := &w.ops[i]; int(fragment) < o.first+o.count {
			return o
		}
	}
	panic(fmt.Sprintf("no operation has fragment %d", fragment))
}

// operand is where a rank's operand of a fragment lies.
func (w *world) operand(r *rank, fragment uint64) *uint64 {
	if w.opOf(fragment).copied {
		return &r.pool[fragment]
	}
	return &r.user[fragment]
}

func (w *world) request(r *rank, fragment uint64) sharp.Request {
	o := w.opOf(fragment)
	q := sharp.Request{Seq: uint64(o.first), Digest: 7, Block: int(fragment), Bytes: 8,
		Desc: op.Descriptor{Kind: op.KindAllReduce, Code: op.CodeSum, Elements: 1}}
	if o.liar == r.id {
		q.Digest++
	}
	return q
}

func (w *world) fail(kind, format string, args ...any) {
	if w.failure == nil {
		w.failure = &failure{kind, fmt.Sprintf(format, args...)}
		w.log("%v", w.failure)
	}
}

func (w *world) log(format string, args ...any) {
	if w.logf != nil {
		w.logf("%5d  "+format, append([]any{w.steps}, args...)...)
	}
}
