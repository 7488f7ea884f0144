package schedule

import "github.com/polyrail/polyrail/collective/op"

// form is a kind of operation and an algorithm that runs it.
type form struct {
	kind      op.Kind
	algorithm op.Algorithm
}

// forms are the builders of all algorithms, for two ranks and more.
var forms = map[form]func(*builder){
	{op.KindAllReduce, op.Ring}:              (*builder).ring,
	{op.KindAllReduce, op.RecursiveDoubling}: (*builder).doubling,
	{op.KindAllReduce, op.Bcube}:             (*builder).bcube,
	{op.KindAllReduce, op.Tree}:              (*builder).tree,
	{op.KindAllReduce, op.Bruck}:             (*builder).allReduceBruck,
	{op.KindReduce, op.Tree}:                 (*builder).reduceTree,
	{op.KindReduce, op.Chain}:                (*builder).reduceChain,
	{op.KindBroadcast, op.Tree}:              (*builder).broadcastTree,
	{op.KindBroadcast, op.Chain}:             (*builder).broadcastChain,
	{op.KindReduceScatter, op.Ring}:          (*builder).reduceScatterRing,
	{op.KindReduceScatter, op.Direct}:        (*builder).reduceScatterDirect,
	{op.KindReduceScatter, op.Bcube}:         (*builder).reduceScatterBcube,
	{op.KindReduceScatter, op.Bruck}:         (*builder).reduceScatterBruck,
	{op.KindAllGather, op.Ring}:              (*builder).allGatherRing,
	{op.KindAllGather, op.Direct}:            (*builder).allGatherDirect,
	{op.KindAllGather, op.Tree}:              (*builder).allGatherTree,
	{op.KindAllGather, op.Bcube}:             (*builder).allGatherBcube,
	{op.KindAllGather, op.Bruck}:             (*builder).allGatherBruck,
	{op.KindGather, op.Direct}:               (*builder).gatherDirect,
	{op.KindGather, op.Tree}:                 (*builder).gatherTree,
	{op.KindScatter, op.Direct}:              (*builder).scatterDirect,
	{op.KindScatter, op.Tree}:                (*builder).scatterTree,
	{op.KindAllToAll, op.Direct}:             (*builder).allToAllDirect,
	{op.KindAllToAll, op.Bruck}:              (*builder).allToAllBruck,
	// Its data goes as messages, beside schedules.
	{op.KindAllToAllV, op.Direct}:           func(*builder) {},
	{op.KindScan, op.RecursiveDoubling}:     (*builder).scanDoubling,
	{op.KindScan, op.Chain}:                 (*builder).scanChain,
	{op.KindExScan, op.RecursiveDoubling}:   (*builder).scanDoubling,
	{op.KindExScan, op.Chain}:               (*builder).scanChain,
	{op.KindAllReduce, op.Hierarchical}:     (*builder).hierarchicalAllReduce,
	{op.KindAllReduce, op.Leaders}:          (*builder).tree,
	{op.KindReduce, op.Hierarchical}:        (*builder).hierarchicalReduce,
	{op.KindReduce, op.Leaders}:             (*builder).reduceTree,
	{op.KindBroadcast, op.Hierarchical}:     (*builder).hierarchicalBroadcast,
	{op.KindBroadcast, op.Leaders}:          (*builder).broadcastTree,
	{op.KindReduceScatter, op.Hierarchical}: (*builder).hierarchicalReduceScatter,
	{op.KindAllGather, op.Hierarchical}:     (*builder).hierarchicalAllGather,
}

// formOf is the kind whose builders serve a kind: a barrier is an allreduce of nothing.
func formOf(k op.Kind) op.Kind {
	if k.Empty() {
		return op.KindAllReduce
	}
	return k
}

// Algorithms are those that run a kind, in wire order.
func Algorithms(k op.Kind) (algorithms []op.Algorithm) {
	for a := op.Auto + 1; a.Valid(); a++ {
		if _, ok := forms[form{formOf(k), a}]; ok {
			algorithms = append(algorithms, a)
		}
	}
	return algorithms
}

// Parts is the number of parts that an operation's data is divided in: 1, or one for each rank.
func Parts(k op.Kind, a op.Algorithm, n int) int {
	switch formOf(k) {
	case op.KindAllToAllV:
		return 0
	case op.KindReduce, op.KindBroadcast, op.KindScan, op.KindExScan:
		return 1
	case op.KindAllReduce:
		if a == op.RecursiveDoubling || a == op.Tree || a == op.Leaders {
			return 1
		}
	}
	return n
}

// wants says whether a rank that is alone has an operand, and whether it wants a result.
func wants(s Spec) (source, target bool) {
	switch s.Kind {
	case op.KindBroadcast: // its only buffer is the source of the root
		return true, false
	case op.KindExScan: // nothing stands before rank 0
		return true, false
	}
	return true, true
}

// Bounds of the rule by size, in bytes of the larger one of a rank's input and output.
const (
	// TreeBytes is the largest operation of more than two ranks that a tree runs by default. It takes
	// the fewest frames, and a frame this small costs the same whatever it holds. Two ranks are done
	// with one exchange.
	TreeBytes = 2 << 10
	// ShortBytes is the largest operation whose number of steps decides by default: above it
	// algorithms that move the fewest bytes are faster. Measured in docs/performance.md.
	ShortBytes = 16 << 10
)

// choice is the rule by size of a kind: up to TreeBytes of more than two ranks, else up to
// ShortBytes, else beyond.
type choice struct{ tiny, short, long op.Algorithm }

var choices = map[op.Kind]choice{
	op.KindAllReduce:     {op.Tree, op.RecursiveDoubling, op.Ring},
	op.KindReduce:        {op.Tree, op.Tree, op.Chain},
	op.KindBroadcast:     {op.Tree, op.Tree, op.Chain},
	op.KindReduceScatter: {op.Direct, op.Direct, op.Ring},
	op.KindAllGather:     {op.Tree, op.Direct, op.Ring},
	op.KindGather:        {op.Tree, op.Tree, op.Direct},
	op.KindScatter:       {op.Tree, op.Tree, op.Direct},
	op.KindAllToAll:      {op.Bruck, op.Bruck, op.Direct},
	op.KindAllToAllV:     {op.Direct, op.Direct, op.Direct},
	op.KindScan:          {op.RecursiveDoubling, op.RecursiveDoubling, op.Chain},
	op.KindExScan:        {op.RecursiveDoubling, op.RecursiveDoubling, op.Chain},
}

// ManyRanks is the largest number of ranks for which a size alone decides. Among more, steps and
// frames cost more than bytes up to sizes that grow with the number of ranks, and an algorithm in
// which all send to all would have each rank connect to all.
const ManyRanks = 16

// A ring takes 2(n-1) steps of at least a frame each, so it pays above so many bytes for each rank.
// Bcube and Bruck's halves send as many bytes in about 2·log2(n) steps, and overlap their steps less:
// they run up to so many, and within bounds, since an allreduce by them takes five times as much scratch.
// Bruck's alltoall moves log2(n)/2 times the bytes in log2(n) steps instead of n-1.
const (
	ringBytesPerRank   = 4 << 10
	halvesBytesPerRank = 8 << 10
	bruckBytesPerRank  = 8 << 10
)

// bounds are the sizes, in bytes, up to which few frames are faster than few steps among many ranks,
// and up to which an allreduce may take five times as much scratch. Where many ranks share a host they
// share its processors and memory.
type bounds struct{ frames, scratch int64 }

var (
	apart   = bounds{TreeBytes, 2 << 20}
	crowded = bounds{ShortBytes, 256 << 10}
)

// Halves is the algorithm of an allreduce, a reduce-scatter or an allgather that takes about log2(n)
// steps for each half of it and sends as few bytes as the ring. Bruck's has more steps where n is no
// power of two. But where n has a large prime factor Bcube's groups would have each rank connect to
// as many.
func Halves(n int) op.Algorithm {
	if dims := Dimensions(n, 2); len(dims) > 0 && dims[len(dims)-1] > ManyRanks {
		return op.Bruck
	}
	return op.Bcube
}

// byHalves reports whether Halves runs an operation: between those of few steps or frames, and the
// ring.
func (b *bounds) byHalves(k op.Kind, bytes, n int64) bool {
	least := int64(ShortBytes)
	switch many := n > ManyRanks; {
	case k == op.KindAllReduce:
	case k == op.KindReduceScatter && many: // nothing else takes few steps
		least = 0
	case k == op.KindAllGather && many:
		least = b.frames
	case k != op.KindReduceScatter && k != op.KindAllGather:
		return false
	}
	return bytes > least && bytes <= min(halvesBytesPerRank*n, b.scratch)
}

// chooseMany is Choose for many ranks.
func (b *bounds) chooseMany(k op.Kind, bytes, n int64) op.Algorithm {
	rule := choices[k]
	switch short := bytes < ringBytesPerRank*n; {
	case k == op.KindReduceScatter || k == op.KindAllToAllV:
		return rule.long
	case k == op.KindAllToAll && bytes <= bruckBytesPerRank*n:
		return op.Bruck
	case k == op.KindAllGather && bytes > ShortBytes:
		return rule.long
	case k == op.KindAllReduce && short && bytes > b.frames:
		return op.RecursiveDoubling
	case short:
		return rule.tiny
	}
	return rule.long
}

// leaderBytes is the largest operation that leaders run by default. Above it the fewest bytes are
// faster: docs/hosts.md has the figures, which cross between 16 and 64 KiB.
const leaderBytes = 32 << 10

// hostBytes is the largest allreduce on one host that doubling runs by default. Memory carries bytes
// fast, and each wait for another rank may wait for a processor: 64 KiB among four ranks on two cores
// took 106 µs by doubling, 134 hierarchically and 165 by the ring.
const hostBytes = 64 << 10

// Between hosts the holders' rings wait for the phases within them, as a ring of all ranks does
// not. They pay where the rails carry clearly less by them, or where the ring's 2(n-1) steps cost
// more than its bytes. Of 16 hosts with four ranks each rails carry 5 % less, and 64 MiB take 135
// ms, by the ring 106; 512 KiB take 1.3 and 1.6, 1 MiB 2.4 and 1.9 (node simulate).
const (
	hostsSaving         = 1.15
	holdersBytesPerRank = 16 << 10
)

// byHost is the rule where ranks share hosts.
var byHost = map[op.Kind]choice{
	op.KindAllReduce:     {op.Leaders, op.Leaders, op.Hierarchical},
	op.KindReduce:        {op.Leaders, op.Leaders, op.Hierarchical},
	op.KindBroadcast:     {op.Leaders, op.Leaders, op.Hierarchical},
	op.KindReduceScatter: {op.Auto, op.Auto, op.Hierarchical},
	op.KindAllGather:     {op.Auto, op.Auto, op.Hierarchical},
}

// choose is the algorithm by host of an operation; Auto: none is better than those by rank. All ranks
// of a host send to each other, so there must not be many.
func (h *Hosts) choose(k op.Kind, bytes int64) op.Algorithm {
	rule, known := byHost[k]
	switch {
	case h == nil || !known || len(h.of) == 2 || h.crowded():
		return op.Auto
	case len(h.ranks) == 1 && k == op.KindAllReduce && bytes > ShortBytes && bytes <= hostBytes:
		return op.RecursiveDoubling
	case len(h.ranks) == 1 && bytes <= ShortBytes:
		return op.Auto
	case bytes <= TreeBytes:
		return rule.tiny
	case bytes <= max(leaderBytes, ringBytesPerRank*int64(len(h.ranks))):
		return rule.short
	case k == op.KindReduce || k == op.KindBroadcast || len(h.ranks) == 1: // a chain either way; no rails
	case bytes > holdersBytesPerRank*int64(len(h.of)) && h.saving() < hostsSaving:
		return op.Auto
	}
	return rule.long
}

// Choose is the algorithm of an operation of that many bytes whose caller leaves it open. It
// depends on nothing that ranks could see differently.
func Choose(k op.Kind, bytes int64, n int, hosts *Hosts) op.Algorithm {
	if a := hosts.choose(formOf(k), bytes); a != op.Auto {
		return a
	}
	b := &apart
	if hosts.crowded() {
		b = &crowded
	}
	if b.byHalves(formOf(k), bytes, int64(n)) {
		return Halves(n)
	}
	if n > ManyRanks {
		return b.chooseMany(formOf(k), bytes, int64(n))
	}
	rule := choices[formOf(k)]
	switch {
	case (k == op.KindGather || k == op.KindScatter) && n <= TreeRadix, k == op.KindAllToAll && n == 2:
		return op.Direct // by another one it would be the same frames
	case bytes <= TreeBytes && n > 2:
		return rule.tiny
	case bytes <= ShortBytes:
		return rule.short
	}
	return rule.long
}
