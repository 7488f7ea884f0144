package actors

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/peer"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/collective/view"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
)

// maxAhead bounds how many operations other ranks may have begun that were not called
// here yet. They can be ahead only by what they may have in flight.
const maxAhead = 4096

// group is what the data path knows of one communicator: its members' peers and its
// open operations by seq. Readers consult it directly.
//
// Lock order: group.mu before operation.mu; neither is held while a peer, an actor or
// a caller's function is called.
type group struct {
	node  *node
	id    uint64
	name  string
	first *table.Table // what it begins with
	rank  op.Rank
	size  int

	peers []*railactors.Peer // by rank; nil at our own
	nodes []string           // names by rank
	procs []uint64           // incarnations by rank; set before the group is registered
	ranks map[*railactors.Peer]op.Rank
	ending

	mu       sync.Mutex
	numbered uint64 // operations 1 … numbered have been called here
	open     map[uint64]*operation
	broken   error              // names the first cause; nil while it works
	cause    error              // the first cause itself …
	since    uint64             // … and its seq
	active   int                // operations and transfers called here and not yet over
	idle     chan struct{}      // closed when active becomes 0; nil while nobody asks
	departed map[op.Rank]uint64 // ranks that have closed, and their last seq
	finished progress
	past     [remembered]pastOperation // by seq: the last ones that ended well
	stalls   *time.Timer               // of the next look at what is in flight; nil: nothing is
	attempts []*view.View              // to shrink it: barriers entered in vain

	transfers *transfers // messages between two ranks

	table  atomic.Pointer[table.Table] // last committed
	tuner  tuner
	spin   atomic.Int64  // how long a caller polls, in ns; 0: not at all
	sunk   atomic.Uint64 // frames that nobody waited for
	formed atomic.Bool   // its members agreed on it: what happens to it is told

	held      atomic.Int64  // how long calls have waited for a table to be agreed on, in ns
	disturbed atomic.Uint64 // how often a rail to a member was lost or came back
	examining sync.Mutex    // one at a time: the last one knows best
	maimed    atomic.Bool   // a rail to a member is down
}

func newGroup(n *node, id uint64, name string, rank op.Rank, nodes []string) *group {
	g := &group{
		node: n, id: id, name: name, first: n.first, rank: rank, size: len(nodes), nodes: nodes,
		peers: make([]*railactors.Peer, len(nodes)),
		ranks: make(map[*railactors.Peer]op.Rank, len(nodes)),
		open:  make(map[uint64]*operation), ending: newEnding(),
	}
	g.transfers = newTransfers(g)
	g.spin.Store(int64(n.config.WaitSpin))
	return g
}

// attach records the peer of a rank. Before the group is registered.
func (g *group) attach(rank op.Rank, p *railactors.Peer) {
	g.peers[rank] = p
	g.ranks[p] = rank
}

// find returns the operation that a frame of seq belongs to, making a place for what comes
// early. It comes with its mu locked: without, it could be forgotten and be another one by the
// time that it is looked into. nil: the operation is over, or the communicator broken.
func (g *group) find(seq uint64) (*operation, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if o := g.open[seq]; o != nil {
		o.mu.Lock()
		if o.retired || o.cause != nil {
			o.mu.Unlock()
			return nil, nil
		}
		return o, nil
	}
	if seq <= g.numbered || g.broken != nil {
		return nil, nil
	}
	if seq > g.numbered+maxAhead {
		return nil, fmt.Errorf("communicator %q: seq %d is more than %d ahead of ours (%d)", g.name, seq, maxAhead, g.numbered)
	}
	o := g.node.operations.Get().(*operation)
	o.reuse(g, seq)
	g.open[seq] = o
	o.mu.Lock()
	return o, nil
}

// isFormed tells the node's subscribers of a communicator that is its caller's from now on.
func (g *group) isFormed() {
	g.formed.Store(true)
	g.examine()
	g.node.events.emit(Event{Kind: CommunicatorFormed, Communicator: g.name, Rank: int(g.rank)})
}

// examine looks whether all rails to all members are up.
func (g *group) examine() {
	g.examining.Lock()
	defer g.examining.Unlock()
	g.maimed.Store(g.missing() != 0)
}

// missing are the rails that don't connect this rank with all others.
func (g *group) missing() (down peer.Rails) {
	for _, p := range g.peers {
		if p != nil {
			down |= p.Missing()
		}
	}
	return down
}

// number opens the next operation. The coordinator alone calls it, with ascending seqs.
func (g *group) number(seq uint64) (*operation, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.shutError(); err != nil {
		return nil, err
	}
	if g.broken != nil {
		return nil, g.broken
	}
	for rank, last := range g.departed {
		if seq > last {
			return nil, g.departure(rank, last)
		}
	}
	g.numbered = seq
	o := g.open[seq]
	if o == nil {
		o = g.node.operations.Get().(*operation)
		o.reuse(g, seq)
		g.open[seq] = o
	}
	// Under both locks: from here on launch ends it, whatever breaks the group meanwhile.
	o.mu.Lock()
	o.phase = phaseNumbered
	o.mu.Unlock()
	g.active++
	g.watchStalls()
	return o, nil
}

// remove forgets an operation that has ended.
func (g *group) remove(o *operation) {
	well := o.work != nil && o.work.succeeded()
	g.mu.Lock()
	delete(g.open, o.seq)
	if well {
		g.finished.add(o.seq)
		g.remember(o)
	}
	if o.phase != phaseHeard {
		g.deactivate()
	}
	g.mu.Unlock()
}

// deactivate: a call is over. Under mu.
func (g *group) deactivate() {
	g.active--
	if g.active == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// fail breaks the group with its first cause, which later calls return, and gives the operations to
// end; first is false if it was broken before.
func (g *group) fail(seq uint64, cause error) (open []pending, first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.broken != nil {
		return nil, false
	}
	g.broken = fmt.Errorf("communicator %q: %w since seq %d: %w", g.name, fault.ErrBroken, seq, cause)
	g.cause, g.since = cause, seq
	close(g.ended)
	for seq, o := range g.open {
		open = append(open, pending{o, seq})
	}
	return open, true
}

// pending is an operation and the seq that it had when it was looked up.
type pending struct {
	operation *operation
	seq       uint64
}

// err is the cause that broke the group, or nil.
func (g *group) err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.broken
}

// quiet returns a channel that is closed when no operation that was called here is open.
func (g *group) quiet() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	done := make(chan struct{})
	if g.active == 0 {
		close(done)
		return done
	}
	if g.idle != nil {
		return g.idle
	}
	g.idle = done
	return done
}

// remaining sums what the operations under way have yet to receive and to send.
func (g *group) remaining() (in, out int64, running int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, o := range g.open {
		o.mu.Lock()
		if o.phase == phaseRunning && o.cause == nil && !o.retired {
			running++
			for lane := range o.parts {
				if p := &o.parts[lane]; p.active {
					i, u := p.task.Remaining()
					in, out = in+i, out+u
				}
			}
		}
		o.mu.Unlock()
	}
	return in, out, running
}

// land answers a reader: where does this data frame go?
func (g *group) land(from *railactors.Peer, h *wire.Header) (railactors.Landing, error) {
	rank, o, err := g.match(from, h)
	if err != nil {
		return railactors.Landing{}, err
	}
	if o == nil {
		g.late(rank, h, false)
		return railactors.Landing{}, nil
	}
	return o.land(rank, from, h)
}

// granted and wanted take the frames of flow control.
func (g *group) granted(from *railactors.Peer, h *wire.Header) error {
	rank, o, err := g.match(from, h)
	switch {
	case o != nil:
		o.granted(rank, h)
	case err == nil:
		g.late(rank, h, true)
	}
	return err
}

func (g *group) wanted(from *railactors.Peer, h *wire.Header) error {
	_, o, err := g.match(from, h)
	if err != nil {
		return err
	}
	if o == nil || o.wanted(from) { // under mu; it unlocks
		from.GrantEager(g.id, h.Seq) // what nobody waits for is sunk
	}
	return nil
}

// match finds whom a frame is from and what it is about. The operation is locked.
func (g *group) match(from *railactors.Peer, h *wire.Header) (op.Rank, *operation, error) {
	rank, ok := g.ranks[from]
	if !ok {
		return 0, nil, fmt.Errorf("node %q is no member of communicator %q", from.Node(), g.name)
	}
	o, err := g.find(h.Seq)
	return rank, o, err
}

// control sends a message about this communicator to one rank; a lost peer is no error here: its loss is
// reported on its own. One that can't be sent to a living peer would be waited for in vain, so the
// communicator breaks. Timings alone may be left out.
func (g *group) control(to op.Rank, m *messages.Control) {
	m.Comm = g.id
	err := g.peers[to].SendControl(m)
	switch {
	case err == nil:
	case g.peers[to].Lost() != nil:
		g.node.log.Debug("control message not sent", "communicator", g.name, "to", g.nodes[to], "error", err)
	case m.GetWindows() != nil:
		g.node.log.Warn("timings not sent", "communicator", g.name, "to", g.nodes[to], "error", err)
	default:
		g.node.breakGroup(g, fmt.Errorf("control message to rank %d: %w", to, err), 0, true)
	}
}

// controlAll sends it to every other rank.
func (g *group) controlAll(m *messages.Control) {
	for rank, p := range g.peers {
		if p != nil {
			g.control(op.Rank(rank), m)
		}
	}
}
