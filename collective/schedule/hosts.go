package schedule

import (
	"slices"

	"github.com/polyrail/polyrail/collective/op"
)

// Hosts says which ranks share a host. It is immutable. nil stands for ranks that share none.
type Hosts struct {
	ranks [][]op.Rank // by host, ascending; hosts in the order of their lowest ranks
	of    []place     // by rank
	most  int         // ranks of a host
}

// place is where a rank is: its host, and its number among the ranks there.
type place struct{ host, index int }

// NewHosts makes one of a number for each rank: ranks with the same number share a host. It is nil
// where no two ranks do.
func NewHosts[T int | uint32](numbers []T) *Hosts {
	h := &Hosts{of: make([]place, len(numbers))}
	known := make(map[T]int)
	for r, number := range numbers {
		host, ok := known[number]
		if !ok {
			host = len(h.ranks)
			known[number], h.ranks = host, append(h.ranks, nil)
		}
		h.of[r] = place{host, len(h.ranks[host])}
		h.ranks[host] = append(h.ranks[host], op.Rank(r))
		h.most = max(h.most, len(h.ranks[host]))
	}
	if len(h.ranks) == len(numbers) {
		return nil
	}
	return h
}

// Numbers are what NewHosts makes the same of; nil where ranks share none.
func (h *Hosts) Numbers() (numbers []uint32) {
	if h == nil {
		return nil
	}
	for _, p := range h.of {
		numbers = append(numbers, uint32(p.host))
	}
	return numbers
}

// crowded reports whether a host has so many ranks that its processors and memory are the bound.
func (h *Hosts) crowded() bool { return h != nil && h.most > ManyRanks }

// saving is how many times as much a host's rails carry with a ring of the ranks in order as with
// rings of holders between the hosts. A ring leaves a host as often as its ranks are placed apart.
func (h *Hosts) saving() float64 {
	n, hosts := len(h.of), len(h.ranks)
	leaves := make([]int, hosts)
	for r, p := range h.of {
		if h.of[(r+1)%n].host != p.host {
			leaves[p.host]++
		}
	}
	ring := float64(slices.Max(leaves)) * float64(n-1) / float64(n)
	return ring * float64(hosts) / float64(hosts-1)
}

// among is h, or what nil stands for among n ranks.
func (h *Hosts) among(n int) *Hosts {
	if h != nil {
		return h
	}
	h = &Hosts{of: make([]place, n), ranks: make([][]op.Rank, n), most: 1}
	for r := range n {
		h.of[r], h.ranks[r] = place{host: r}, []op.Rank{op.Rank(r)}
	}
	return h
}

// holder is the rank of a host that has to do with the block of rank owner.
func (h *Hosts) holder(host int, owner op.Rank) op.Rank {
	here := h.ranks[host]
	return here[h.of[owner].index%len(here)]
}

// held is how many blocks of another host's ranks (or its own) the first rank of a host holds. No
// other rank of the host holds more.
func (h *Hosts) held(host, other int) int {
	p := len(h.ranks[host])
	return (len(h.ranks[other]) + p - 1) / p
}

// tour is all hosts from that of the root on, each with its ranks ascending. The root's begins with
// the root.
func (h *Hosts) tour(root op.Rank) (hosts [][]op.Rank) {
	first := h.of[root]
	hosts = slices.Concat(h.ranks[first.host:], h.ranks[:first.host])
	hosts[0] = slices.Concat(hosts[0][first.index:], hosts[0][:first.index])
	return hosts
}

// line is the chain of a reduce or broadcast by host, by distance from the root: it passes through
// all ranks of one host before it goes on to the next one. A broadcast does so from the root on. A
// reduce has the root's host last, since it begins with distance 1 and ends with 0.
func (h *Hosts) line(k op.Kind, root op.Rank) []op.Rank {
	hosts := h.tour(root)
	if k == op.KindBroadcast {
		return slices.Concat(hosts...)
	}
	here := hosts[0]
	return slices.Concat(here[:1], slices.Concat(hosts[1:]...), here[1:])
}

// In algorithms by host what crosses the network is what the hosts need, however many ranks are on
// each: 2(h-1)/h of the buffer of an allreduce among h hosts, which is the bound for all rails of a
// host together. A ring of all n ranks sends 2(n-1)/n, and more frames. They follow the phases of
// MVAPICH2-X (reduce within the host, between hosts, and back), but every rank takes part in all of
// them, each for its own blocks: so every core adds, and every connection carries.

// hierarchicalAllReduce has the owner's block added up within each host by one rank, its holder
// there; the sums of the hosts go round a ring of the holders, from the host after the owner's to
// the owner, as do final values from there on; and each holder gives the final value to the
// other ranks of its host. The order of the sum is that of the hosts, in each from the rank after the
// holder to the holder. So of one host, and of hosts with one rank, it is that of the ring.
//
// It takes 2(h-1) steps between hosts and two within. Each host sends 2(h-1)/h of the buffer to the
// next one, where hosts have equally many ranks; otherwise owners are not evenly divided over hosts,
// and the link between two small ones has up to 2.
func (b *builder) hierarchicalAllReduce() {
	way := b.byHost()
	for o := range b.p.N {
		way.to(op.Rank(o))
		way.spread(way.gather(b.part(o, true, true)))
	}
	b.p.Steps = way.steps()
}

// hierarchicalReduceScatter is the first half of hierarchicalAllReduce: h-1 steps between hosts and
// one within, (h-1)/h of the input sent by each host.
func (b *builder) hierarchicalReduceScatter() {
	way := b.byHost()
	for o := range b.p.N {
		way.to(op.Rank(o))
		way.gather(b.ownResult(o))
	}
	b.p.Steps = way.steps()
}

// hierarchicalAllGather is the second half of hierarchicalAllReduce: h-1 steps between hosts and
// one within, (h-1)/h of the output received by each host.
func (b *builder) hierarchicalAllGather() {
	way := b.byHost()
	for o := range b.p.N {
		way.to(op.Rank(o))
		own := b.ownOperand(o, true)
		way.spread(own)
		if o == int(b.p.Rank) {
			b.copyFinal(own)
		}
	}
	b.p.Steps = way.steps()
}

// hostWay is how a block goes between and within hosts, as this rank sees it.
type hostWay struct {
	*builder
	hosts *Hosts
	count int // of hosts
	most  int // ranks of a host
	me    place
	// Of the block at hand: its holder here, before and after, and the position of this host on the
	// way to the owner's: 0 … count-1.
	holder, before, after op.Rank
	at                    int
}

func (b *builder) byHost() *hostWay {
	h := b.p.Hosts.among(b.p.N)
	return &hostWay{builder: b, hosts: h, count: len(h.ranks), most: h.most, me: h.of[b.p.Rank]}
}

// to turns to the block of an owner.
func (w *hostWay) to(owner op.Rank) {
	n, here := w.count, w.me.host
	w.at = (here - w.hosts.of[owner].host - 1 + 2*n) % n
	w.holder = w.hosts.holder(here, owner)
	w.before = w.hosts.holder((here+n-1)%n, owner)
	w.after = w.hosts.holder((here+1)%n, owner)
}

// Steps: within a host those of hosts that come first on the way come first; then those of the ring;
// then the one within hosts at the end.
func (w *hostWay) within(distance int) int { return w.at*w.most + distance }
func (w *hostWay) between(step int) int    { return w.count*w.most + step }
func (w *hostWay) last() int               { return w.between(2 * (w.count - 1)) }
func (w *hostWay) steps() int              { return w.last() + 1 }

// gather adds the block up, on its way to the owner. Its value is the final one there, and elsewhere
// of no use.
func (w *hostWay) gather(own Value) Value {
	here := w.hosts.ranks[w.me.host]
	holder := w.hosts.of[w.holder].index
	if w.holder != w.p.Rank {
		w.send(w.within((w.me.index-holder+len(here))%len(here)), w.holder, own)
		return own
	}
	var args []Value
	for i := 1; i < len(here); i++ {
		args = append(args, w.recv(w.within(i), here[(holder+i)%len(here)]))
	}
	args = append(args, own)
	sum := own
	switch {
	case w.count == 1:
		return w.reduceFinal(args...)
	case len(args) > 1:
		sum = w.reduceEach(args)
	}
	if w.at > 0 {
		got := w.recv(w.between(w.at-1), w.before)
		if w.at == w.count-1 {
			return w.reduceFinal(got, sum)
		}
		sum = w.reduce(got, got, sum)
	}
	w.send(w.between(w.at), w.after, sum)
	return sum
}

// spread carries the final value of a block from its owner to all.
func (w *hostWay) spread(final Value) {
	here := w.hosts.ranks[w.me.host]
	if w.holder != w.p.Rank {
		w.recvFinal(w.last(), w.holder)
		return
	}
	owns := w.at == w.count-1
	if !owns {
		final = w.recvFinal(w.between(w.count-1+w.at), w.before)
	}
	switch {
	case w.count == 1:
	case owns:
		w.send(w.between(w.count-1), w.after, final)
	case w.at < w.count-2:
		w.send(w.between(w.count+w.at), w.after, final)
	}
	for i := 1; i < len(here); i++ {
		w.send(w.last(), here[(w.me.index+i)%len(here)], final)
	}
}

// hierarchicalReduce and hierarchicalBroadcast are the chains whose line passes through one host
// after the other: h-1 of its n-1 links are between hosts. A chain by rank may have all of them there.
func (b *builder) hierarchicalReduce() {
	b.line = b.p.Hosts.among(b.p.N).line(op.KindReduce, b.p.Root)
	b.reduceChain()
}

func (b *builder) hierarchicalBroadcast() {
	b.line = b.p.Hosts.among(b.p.N).line(op.KindBroadcast, b.p.Root)
	b.broadcastChain()
}

// hierarchicalCost is that of hierarchicalAllReduce and its halves.
func hierarchicalCost(s Spec) Cost {
	h := s.Hosts.among(s.N)
	hosts, most := len(h.ranks), 0 // most: frames of a rank
	c := Cost{Widest: 1}
	several := func(host int) int { return min(len(h.ranks[(host+hosts)%hosts]), 2) - 1 }
	for g := range h.ranks {
		p, held := len(h.ranks[g]), 0
		for other := range h.ranks {
			held += h.held(g, other)
		}
		// Of a ring, what begins here is not received, and what ends here is not sent.
		begins, ends := h.held(g, (g+hosts-1)%hosts), h.held(g, (g+1)%hosts)
		up, slots := s.N-1, held*p-begins // sent, received
		down, got := held*p-ends, s.N-1
		if hosts == 1 {
			up, slots, down, got = s.N-held, held*(p-1), held*(p-1), s.N-held
		}
		first, last := several(g+1), several(g-1)
		switch s.Kind {
		case op.KindReduceScatter:
			c.Slots, most = max(c.Slots, slots), max(most, up, slots)
			c.Stages = max(c.Stages, hosts-1+first)
		case op.KindAllGather:
			most = max(most, down, got)
			c.Stages = max(c.Stages, hosts-1+last)
		default:
			c.Slots, most = max(c.Slots, slots), max(most, up+down, slots+got)
			c.Stages = max(c.Stages, 2*(hosts-1)+first+last)
		}
	}
	c.Volume = float64(most) / float64(s.N)
	return c
}

// A tree by host has one rank of each host in the tree of the network, its leader: the lowest one, or
// the root. Those of a host are below it in a tree of their own. 2(h-1) of the 2(n-1) frames of an
// allreduce cross the network.

// leaderLinks are links of the tree by host.
func (b *builder) leaderLinks() (levels [][]child, parent op.Rank, up *child) {
	h := b.p.Hosts.among(b.p.N)
	hosts := h.tour(b.p.Root)
	me := h.of[b.p.Rank]
	host := (me.host - h.of[b.p.Root].host + len(hosts)) % len(hosts)
	here := hosts[host]
	d := slices.Index(here, b.p.Rank)
	levels, parent, up = links(len(here), d, 0, func(d int) op.Rank { return here[d] })
	if up != nil {
		return levels, parent, up
	}
	between, parent, up := links(len(hosts), host, treeSteps(h.most), func(d int) op.Rank { return hosts[d][0] })
	return append(levels, between...), parent, up
}

// leaderCost is that of the tree by host.
func leaderCost(s Spec) (c Cost) {
	h := s.Hosts.among(s.N)
	anyRank := func(int) op.Rank { return 0 } // who it is doesn't matter
	for d, here := range h.tour(s.Root) {
		children, depth := 0, treeDepth(len(here))
		within, _, _ := links(len(here), 0, 0, anyRank)
		between, _, up := links(len(h.ranks), d, 0, anyRank)
		for _, level := range append(within, between...) {
			children += len(level)
		}
		for rest := d; rest > 0; rest /= TreeRadix {
			depth += min(rest%TreeRadix, 1)
		}
		frames := children
		if up != nil && s.Kind != op.KindReduce && s.Kind != op.KindBroadcast {
			frames++
		}
		c.Slots, c.Stages = max(c.Slots, children), max(c.Stages, depth)
		c.Volume = max(c.Volume, float64(frames), 1)
	}
	c.Widest = 1
	switch s.Kind {
	case op.KindReduce:
	case op.KindBroadcast:
		c.Slots = 0
	default:
		c.Stages *= 2
	}
	return c
}
