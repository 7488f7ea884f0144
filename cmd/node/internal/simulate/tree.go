package simulate

import (
	"fmt"
	"time"

	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/sharp"
)

// tree is a lane that goes over a rail's aggregation tree: a leaf for each rank, a node for each
// junction. What a lane carries is cut as the runtime cuts it: its part of each block of the flat
// algorithm into fragments.
type tree struct {
	s         *simulation
	rail      int
	config    *Tree
	fragments []int // their lengths
	leaves    []*sharp.Leaf
	above     []place // by rank
	layout    sharp.Layout
	nodes     []*sharp.Node
	up        []place // by node; node -1: it is the root
	done      []bool  // by rank
	out       []sharp.Action
}

// place is where a child hangs: which one it is of which node.
type place struct{ node, child int }

func newTree(s *simulation, rail int, p *plan.Plan) *tree {
	c := s.cluster
	t := &tree{s: s, rail: rail, config: c.Rails[rail].Tree, done: make([]bool, c.ranks())}
	t.cut(p, &p.Lanes[rail])
	t.layout = sharp.Arrange(t.sites())
	t.above = make([]place, c.ranks())
	t.up = make([]place, len(t.layout))
	for i, j := range t.layout {
		t.nodes = append(t.nodes, sharp.NewNode(sharp.NodeConfig{Children: len(j.Children), Window: t.config.Window, Root: j.Parent < 0}))
		if j.Parent < 0 {
			t.up[i] = place{node: -1}
		}
		for child, m := range j.Children {
			if m.Rank >= 0 {
				t.above[m.Rank] = place{i, child}
			} else {
				t.up[m.Node] = place{i, child}
			}
		}
	}
	for range c.ranks() {
		t.leaves = append(t.leaves, sharp.NewLeaf(t.config.Window))
	}
	s.net.nodes[rail] = make([]time.Duration, len(t.layout))
	s.net.nodeOut[rail] = make([]time.Duration, len(t.layout))
	s.net.nodeIn[rail] = make([]time.Duration, len(t.layout))
	return t
}

// sites are the ranks, and nodes that offer: enough for the radix at each leaf switch, and at the
// spine.
func (t *tree) sites() (ranks []sharp.Site, offers []sharp.Offer, radix int) {
	c := t.s.cluster
	leaf := func(host int) string {
		if c.HostsPerLeaf == 0 || c.HostsPerLeaf >= c.Hosts {
			return ""
		}
		return fmt.Sprintf("leaf%d", host/c.HostsPerLeaf)
	}
	at := map[string]int{}
	var paths []string
	for r := range c.ranks() {
		path := leaf(c.host(r))
		ranks = append(ranks, sharp.Site{Node: fmt.Sprintf("r%d", r), Path: path})
		if at[path]++; at[path] == 1 {
			paths = append(paths, path)
		}
	}
	offer := func(path string, members int) {
		for k := range needed(members, t.config.Radix) {
			offers = append(offers, sharp.Offer{Site: sharp.Site{Node: fmt.Sprintf("a%s/%d", path, k), Path: path}})
		}
	}
	for _, path := range paths {
		offer(path, at[path])
	}
	if len(paths) > 1 {
		offer("", len(paths))
	}
	return ranks, offers, t.config.Radix
}

// needed is how many nodes fold so many members by a radix.
func needed(members, radix int) (nodes int) {
	if radix == 0 || members <= radix {
		return 1
	}
	for members > 1 {
		members = (members + radix - 1) / radix
		nodes += members
	}
	return nodes + 1
}

// cut divides the lane's part of each block; one of nothing has an empty fragment.
func (t *tree) cut(p *plan.Plan, l *plan.Lane) {
	for block := range p.Blocks {
		_, length := p.Range(l.First, l.Rounds, block)
		for ; length > 0; length -= t.config.Fragment {
			t.fragments = append(t.fragments, min(length, t.config.Fragment))
		}
	}
	if len(t.fragments) == 0 {
		t.fragments = []int{0}
	}
}

// begin sends a rank's first fragments.
func (t *tree) begin(r int) {
	t.leaves[r].Take(len(t.fragments))
	t.send(r)
}

// send sends what a rank's window allows.
func (t *tree) send(r int) {
	leaf := t.leaves[r]
	for number := leaf.Sent(); leaf.Send(number); number++ {
		bytes := t.fragments[number]
		leaves := t.s.cluster.Ranks.send(t.s.net.processor(r), t.s.now, bytes)
		to := t.above[r]
		t.toNode(&t.s.net.out[t.rail][t.s.cluster.host(r)], to, leaves, &frame{bytes: bytes, number: number, up: true, child: int32(to.child)})
	}
}

// toNode sends a frame up, over the sender's link and the node's.
func (t *tree) toNode(link *time.Duration, to place, leaves leaving, f *frame) {
	t.deliver(link, leaves, f, to.node, true)
}

func (t *tree) in(node int) *time.Duration {
	if t.config.Ports {
		return nil
	}
	return &t.s.net.nodeIn[t.rail][node]
}

// deliver passes a frame over a link, or a port of its own, to who's.
func (t *tree) deliver(out *time.Duration, leaves leaving, f *frame, who int, node bool) {
	l := &t.s.cluster.Rails[t.rail].Link
	leaves = leave(out, leaves, onWire(f.bytes, l.Rate), l.Burst)
	way := l.Startup + t.s.cluster.Switch
	t.s.result.Frames++
	t.s.result.Carried += int64(f.bytes)
	t.s.queue.add(event{at: leaves.first + way, kind: reaching, lane: int32(t.rail), node: node, who: int32(who), a: int64(leaves.last + way), f: f})
}

// enter takes a frame from a link, or a port.
func (t *tree) enter(in *time.Duration, e event) {
	l := &t.s.cluster.Rails[t.rail].Link
	there, coming := enter(in, t.s.now, time.Duration(e.a), onWire(e.f.bytes, l.Rate), l.Burst)
	e.at, e.kind, e.a = there, wired, int64(coming)
	t.s.queue.add(e)
}

func (t *tree) handle(e event) {
	if e.node {
		t.node(e)
	} else {
		t.rank(e)
	}
}

// rank is a response.
func (t *tree) rank(e event) {
	r := int(e.who)
	if e.kind == reaching {
		t.enter(&t.s.net.in[t.rail][t.s.cluster.host(r)], e)
		return
	}
	if e.kind == wired {
		e.at = t.s.cluster.Ranks.receive(t.s.net.processor(r), t.s.now, e.f.bytes, time.Duration(e.a))
		e.kind = arrived
		t.s.queue.add(e)
		return
	}
	leaf := t.leaves[r]
	leaf.Arrived(e.f.number)
	leaf.Placed(leaf.Received())
	if leaf.Received() == uint64(len(t.fragments)) && !t.done[r] {
		t.done[r] = true
		t.s.ended()
		return
	}
	t.send(r)
}

// node is a request of a child, or a result of the node above.
func (t *tree) node(e event) {
	i := int(e.who)
	n := t.nodes[i]
	t.out = t.out[:0]
	switch e.kind {
	case reaching:
		t.enter(t.in(i), e)
		return
	case wired:
		e.at = t.config.Node.receive(t.s.net.nodeProcessor(t.rail, i), t.s.now, e.f.bytes, time.Duration(e.a))
		e.kind = arrived
		t.s.queue.add(e)
		return
	case arrived:
		if !e.f.up {
			t.out = n.Returned(e.f.number, t.out)
			break
		}
		if t.s.err = n.Place(int(e.f.child), e.f.number, sharp.Request{Bytes: e.f.bytes}); t.s.err != nil {
			return
		}
		t.out = n.Arrived(int(e.f.child), e.f.number, t.out)
	case folded:
		t.out = n.Folded(uint64(e.a), t.out)
	case released:
		t.out = n.Released(uint64(e.a), t.out)
	}
	t.carry(i, t.out)
}

// carry carries out what a node answers.
func (t *tree) carry(i int, actions []sharp.Action) {
	p, net := &t.config.Node, t.s.net
	again := func(at time.Duration, kind eventKind, number uint64) {
		t.s.queue.add(event{at: at, kind: kind, lane: int32(t.rail), node: true, who: int32(i), a: int64(number)})
	}
	for _, a := range append([]sharp.Action(nil), actions...) {
		bytes := t.fragments[a.Number]
		switch a.Kind {
		case sharp.Fold:
			takes := over(bytes*(len(t.layout[i].Children)-1), p.Fold)
			again(work(net.nodeProcessor(t.rail, i), t.s.now, takes), folded, a.Number)
		case sharp.Forward:
			leaves := p.send(net.nodeProcessor(t.rail, i), t.s.now, bytes)
			to := t.up[i]
			t.toNode(&net.nodeOut[t.rail][i], to, leaves, &frame{bytes: bytes, number: a.Number, up: true, child: int32(to.child)})
			again(leaves.last, released, a.Number)
		case sharp.Respond:
			leaves := p.send(net.nodeProcessor(t.rail, i), t.s.now, bytes)
			t.respond(i, a.Child, leaves, &frame{bytes: bytes, number: a.Number})
			again(leaves.last, released, a.Number)
		}
	}
}

// respond sends a result to a child.
func (t *tree) respond(i, child int, leaves leaving, f *frame) {
	link := &t.s.net.nodeOut[t.rail][i]
	if t.config.Ports {
		link = nil
	}
	if m := t.layout[i].Children[child]; m.Rank >= 0 {
		t.deliver(link, leaves, f, m.Rank, false)
	} else {
		t.deliver(link, leaves, f, m.Node, true)
	}
}
