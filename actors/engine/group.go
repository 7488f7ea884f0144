package engine

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/peer"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/collective/view"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
)

// maxAhead bounds how many operations other ranks may have begun that were not called
// here yet. They can be ahead only by what they may have in flight.
const maxAhead = 4096

// Group is what the data path knows of one communicator: its members' peers and its open operations
// by seq. Readers consult it directly.
//
// Lock order: mu before that of an Operation; neither is held while a peer, an actor or a caller's
// function is called.
type Group struct {
	engine *Engine
	ID     uint64
	Job    uint64 // the ID of the group that it is derived from, by however many steps, or its own
	Name   string
	First  *table.Table // what it begins with
	Rank   op.Rank
	Size   int
	Nodes  []string           // names by rank
	Hosts  []view.Host        // by rank
	Places *schedule.Hosts    // which ranks share a host; nil: none do
	shared bool               // all ranks share memory
	Peers  []*railactors.Peer // by rank; nil at our own
	ranks  map[*railactors.Peer]op.Rank
	Meshed bool          // every rank is connected to every other one from the start; by default if there are few
	heeded []atomic.Bool // by rank: its end will be heard of here: links.go

	// Hail tells a rank that this one waits for it, which connects the two. Set before the group is
	// registered.
	Hail func(rank op.Rank)
	// Fail breaks the communicator: it tells the other ranks, and calls Break. It may be called on
	// any goroutine that holds no lock of this package or of a peer. Set before the group is
	// registered.
	Fail func(cause error, seq uint64)

	Closing     chan struct{} // closed when Close or Shrink ends it: it takes no more calls
	Ended       chan struct{} // closed when it broke: the first cause is known
	closingOnce sync.Once

	mu       sync.Mutex
	numbered uint64 // operations 1 … numbered have been called here
	open     map[uint64]*Operation
	broken   error              // names the first cause; nil while it works
	cause    error              // the first cause itself …
	since    uint64             // … and its seq
	active   int                // operations and transfers called here and not yet over
	idle     chan struct{}      // closed when active becomes 0; nil while nobody asks
	departed map[op.Rank]uint64 // ranks that have closed, and their last seq
	finished progress
	past     [remembered]pastOperation // by seq: the last ones that ended well
	stalls   *time.Timer               // of the next look at what is in flight; nil: nothing is

	uncredited allowance

	cuts    cuts // the coordinator's, as is …
	unheard int  // … the number of operations in which a rank may only send

	boards *boards // on which operands are shown; nil: none are

	trace atomic.Pointer[Trace] // nil: nothing is recorded
	Meter *Meter                // counts what its operations did; nil: they are not counted

	Transfers *Transfers                       // messages between two ranks
	trees     atomic.Pointer[map[uint64]*Tree] // by group; replaced, never changed

	Table         atomic.Pointer[table.Table] // last committed
	DroppedFrames atomic.Uint64               // that nobody waited for
	Failovers     atomic.Uint64               // how often a rail to a member was lost or came back
	paces         paces                       // of operations

	examining sync.Mutex  // one at a time: the last one knows best
	degraded  atomic.Bool // a rail to a member is down

	landed []atomic.Int64 // by rail, where they are measured: bytes that it has brought
}

// NewGroup makes a group of nodes by rank, which run on hosts. Its peers are attached, and Fail is
// set, before it is used.
func (e *Engine) NewGroup(id uint64, name string, rank op.Rank, nodes []string, hosts []view.Host,
	first *table.Table) *Group {
	shared := view.AllShareMemory(hosts)
	if shared {
		first = first.OneLane()
	}
	g := &Group{
		engine: e, ID: id, Job: id, Name: name, First: first, Rank: rank, Size: len(nodes), Nodes: nodes, Hosts: hosts, shared: shared,
		Places:  schedule.NewHosts(view.Numbers(hosts)),
		Peers:   make([]*railactors.Peer, len(nodes)),
		ranks:   make(map[*railactors.Peer]op.Rank, len(nodes)),
		heeded:  make([]atomic.Bool, len(nodes)),
		Meshed:  len(nodes) <= view.MeshMembers,
		Closing: make(chan struct{}), Ended: make(chan struct{}),
		open: make(map[uint64]*Operation), cuts: newCuts(), uncredited: make(allowance, len(nodes)),
	}
	if g.Measured() {
		g.landed = make([]atomic.Int64, e.Rails)
	}
	g.boards = newBoards(g)
	g.Meter = e.Meters.Of(name)
	g.Transfers = newTransfers(g)
	return g
}

// Attach records the peer of a rank. Before the group is registered.
func (g *Group) Attach(rank op.Rank, p *railactors.Peer) {
	g.Peers[rank] = p
	g.ranks[p] = rank
}

// RankOf is the rank of a peer, if it is a member.
func (g *Group) RankOf(p *railactors.Peer) (rank op.Rank, ok bool) {
	rank, ok = g.ranks[p]
	return rank, ok
}

// Seq is the number of the last operation that was called here.
func (g *Group) Seq() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.numbered
}

// Uneven is this rank's report to those who shrink: its first unfinished and its last finished
// operation.
func (g *Group) Uneven() view.SeqRange {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.finished.uneven()
}

// find returns the operation that a frame of seq belongs to, making a place for what comes
// early. It comes with its mu locked: without, it could be forgotten and be another one by the
// time that it is looked into. nil: the operation is over, or the communicator broken.
func (g *Group) find(seq uint64) (*Operation, error) {
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
		return nil, fmt.Errorf("communicator %q: seq %d is more than %d ahead of ours (%d)", g.Name,
			seq, maxAhead, g.numbered)
	}
	o := g.engine.operations.Get().(*Operation)
	o.reuse(g, seq)
	g.open[seq] = o
	o.mu.Lock()
	return o, nil
}

// Examine looks whether all rails to all members are up.
func (g *Group) Examine() {
	g.examining.Lock()
	defer g.examining.Unlock()
	g.degraded.Store(g.Missing() != 0)
}

// Missing are the rails that don't connect this rank with all others.
func (g *Group) Missing() (down peer.Rails) {
	for _, p := range g.Peers {
		if p != nil {
			down |= p.Missing()
		}
	}
	return down
}

// Number opens the next operation. The coordinator alone calls it, with ascending seqs.
func (g *Group) Number(seq uint64) (*Operation, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.ShutError(); err != nil {
		return nil, err
	}
	if g.broken != nil {
		return nil, g.broken
	}
	if err := g.unreached(seq); err != nil {
		return nil, err
	}
	g.numbered = seq
	o := g.open[seq]
	if o == nil {
		o = g.engine.operations.Get().(*Operation)
		o.reuse(g, seq)
		g.open[seq] = o
	}
	// Under both locks: from here on Launch ends it, whatever breaks the group meanwhile.
	o.mu.Lock()
	o.phase = phaseNumbered
	o.mu.Unlock()
	g.active++
	g.watchStalls()
	return o, nil
}

// remove forgets an operation that has ended.
func (g *Group) remove(o *Operation) {
	g.mu.Lock()
	delete(g.open, o.Seq)
	if o.settled {
		g.finished.add(o.Seq)
		g.remember(o)
	}
	if o.phase != phaseHeard {
		g.deactivate()
	}
	g.mu.Unlock()
}

// deactivate: a call is over. Under mu.
func (g *Group) deactivate() {
	g.active--
	if g.active == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// InFlight is how many operations and messages were called here and are not over.
func (g *Group) InFlight() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.active
}

// Remaining sums what the operations under way have yet to receive and to send.
func (g *Group) Remaining() (in, out int64, running int) {
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
			for _, p := range o.trees {
				i, u := p.remaining()
				in, out = in+i, out+u
			}
		}
		o.mu.Unlock()
	}
	return in, out, running
}

// Land answers a reader: where does this data frame go?
func (g *Group) Land(from *railactors.Peer, rail int, h *wire.Header) (railactors.Landing, error) {
	if h.Group != 0 {
		if t := g.Tree(h.Group); t != nil {
			return t.land(from, rail, h)
		}
		return railactors.Landing{}, nil
	}
	rank, o, err := g.match(from, h)
	if err != nil {
		return railactors.Landing{}, err
	}
	if o == nil {
		g.late(rank, h, false)
		return railactors.Landing{}, nil
	}
	return o.land(rank, from, rail, h)
}

// Granted takes a frame of flow control: a rank has started the operation, and has room.
func (g *Group) Granted(from *railactors.Peer, h *wire.Header) error {
	if h.Group != 0 {
		if t := g.Tree(h.Group); t != nil {
			return t.settledTo(from, h)
		}
		return nil
	}
	rank, o, err := g.match(from, h)
	switch {
	case o != nil:
		o.granted(rank, h)
	case err == nil:
		g.late(rank, h, true)
	}
	return err
}

// Wanted takes a frame of flow control: a rank has eager frames and no credit.
func (g *Group) Wanted(from *railactors.Peer, h *wire.Header) error {
	_, o, err := g.match(from, h)
	if err != nil {
		return err
	}
	if o == nil || o.wanted(from) { // under mu; it unlocks
		from.GrantEager(g.ID, h.Seq) // what nobody waits for is sunk
	}
	return nil
}

// match finds whom a frame is from and what it is about. The operation is locked.
func (g *Group) match(from *railactors.Peer, h *wire.Header) (op.Rank, *Operation, error) {
	rank, ok := g.ranks[from]
	if !ok {
		return 0, nil, fmt.Errorf("node %q is no member of communicator %q", from.Node(), g.Name)
	}
	o, err := g.find(h.Seq)
	return rank, o, err
}
