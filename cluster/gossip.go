// Package cluster finds the other nodes: it says who lives, by gossip (hashicorp/memberlist),
// and carries the rendezvous messages by which nodes agree on communicators.
//
// It owns gossip's sockets and goroutines. What is agreed on is decided in
// collective/view; rails and pairs are railactors' and unknown here. Gossip is not
// agreement: two nodes may see different members, at any time.
package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/messages"
	"google.golang.org/protobuf/proto"
)

// Handler hears what gossip has to say: from one goroutine, holding no lock. It must not block for
// long, nor call Leave or Close. Events of one node come in their order; an event comes before the
// messages of the member that it announces wherever gossip knew of the member first.
type Handler interface {
	ClusterEvent(Event)
	// ClusterMessage: m is the handler's to keep. The sender is as it calls itself. One message
	// may overtake another.
	ClusterMessage(from string, m *messages.Rendezvous)
}

// Gossip is this node's membership of the cluster. Its methods are safe for concurrent use.
type Gossip struct {
	cfg     Config
	self    Member
	log     *slog.Logger
	handler Handler

	list      *memberlist.Memberlist
	guard     *guard
	ring      *memberlist.Keyring // nil without keys
	roster    *roster
	inbox     *inbox
	outbox    *outbox
	registrar *registrar
	hints     hints // the seeker's own

	started time.Time
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup
	// published ends by unpublish, with Leave or Close: then the entry is removed from the store.
	published context.Context
	unpublish context.CancelFunc
	unlisted  chan struct{} // closed when it was, or that was given up
	removal   context.Context
	giveUp    context.CancelFunc // ends removal

	// The seeker's own:
	itself     []string             // addresses at which this node reached itself
	complained time.Time            // when it was last warned that no seed answers
	unreached  bool                 // it was warned that other hosts can't reach this node
	asked      time.Time            // when a rival was last asked whether it lives
	later      map[string]time.Time // processes of this node's name that are to go, by when they were seen

	poke chan struct{} // wakes the seeker
	// Closed after the first attempt to join with the store's answer, or that joined.
	tried  chan struct{}
	joined chan struct{} // closed when the cluster is reached
	failed chan struct{} // closed when err is set

	mu         sync.Mutex
	err        error // why this node cannot be a member
	refused    map[string]bool
	seeds      []SeedError     // last errors
	mismatches []*VersionError // found while merging, since the last attempt began
	double     string          // where this very process is said to be too; empty: nowhere
	met        time.Time       // when the cluster was reached
	unheard    error           // why the last message that was refused was
	unheardAt  time.Time
	rival      error // a later process of this node's name lives, and neither goes …
	rivalAt    time.Time
	leaving    bool
	closed     bool

	// lifecycle holds a token that Leave and memberlist's shutdown take: what is to be gossiped
	// after the shutdown waits in vain. Not a mutex, because it is held for long: waiters must
	// stand still in virtual time.
	lifecycle chan struct{}

	undecodable, dropped, stale, unsent atomic.Uint64
}

// Stats counts what was lost or refused.
type Stats struct {
	Undecodable uint64 // messages that are none of ours
	Dropped     uint64 // messages in excess of what the handler takes
	Stale       uint64 // messages for, or from, another process of a node
	Unsent      uint64 // messages whose destination could not be reached
}

// Start listens, tries once to reach the seeds, and goes on trying in the background: nodes may
// start in any order. WaitJoined tells when the cluster is reached. The context bounds the start
// only. A Store that does not answer is waited for, until another node is known or JoinTimeout has
// passed.
//
// Errors: an invalid configuration or a name that a living node has (*ConflictError), both
// fault.ErrConfig; a cluster of another version (*VersionError); an address that cannot be bound; a
// Store that could not be used (*StoreError).
func Start(ctx context.Context, cfg Config, h Handler) (*Gossip, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	g := newGossip(cfg, h)
	if err := g.listen(ProtocolVersion); err != nil {
		return nil, err
	}
	g.run()
	if err := g.awaitFirstAttempt(ctx); err != nil {
		g.unlist(ctx)
		g.Close()
		return nil, err
	}
	return g, nil
}

func (g *Gossip) awaitFirstAttempt(ctx context.Context) error {
	var timeout <-chan time.Time // without a store the attempt is bounded by itself
	if g.cfg.Store != nil {
		timer := time.NewTimer(g.cfg.JoinTimeout)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-g.tried:
		return g.Err()
	case <-timeout:
	case <-ctx.Done():
	}
	over := context.Cause(ctx) // nil after JoinTimeout
	if _, err := g.registrar.found(); err != nil {
		err = &StoreError{Store: g.cfg.Store.String(), After: time.Since(g.started), Err: err}
		if over != nil {
			err = fmt.Errorf("%w: %w", err, over)
		}
		return fmt.Errorf("gossip on %s: %w", g.cfg.Bind, err)
	}
	if over != nil {
		return fmt.Errorf("gossip on %s: %w", g.cfg.Bind, over)
	}
	return nil // the store works, and dead entries take their time
}

func newGossip(cfg Config, h Handler) *Gossip {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Gossip{
		cfg: cfg, log: cfg.Logger, handler: h, started: time.Now(),
		self: Member{Node: cfg.Node, Incarnation: cfg.Incarnation, Path: cfg.Path},
		poke: make(chan struct{}, 1), tried: make(chan struct{}), joined: make(chan struct{}), failed: make(chan struct{}),
		lifecycle: make(chan struct{}, 1), refused: map[string]bool{},
		later: map[string]time.Time{}, unlisted: make(chan struct{}),
	}
}

// run starts the goroutines; they end with Close.
func (g *Gossip) run() {
	g.running.Add(2)
	go g.dispatch()
	go g.seek()
	if g.ring != nil {
		g.running.Go(func() { g.followKeys(g.ring) })
	}
	g.running.Go(func() {
		defer close(g.unlisted)
		if g.cfg.Store != nil {
			g.registrar.run(g.published, g.removal)
		}
	})
}

// listen brings memberlist up, speaking the given version.
func (g *Gossip) listen(version uint32) error {
	g.self.Version = version
	conf, err := g.cfg.memberlist()
	if err != nil {
		return fmt.Errorf("gossip cannot listen on %s: %w", g.cfg.Bind, err)
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.published, g.unpublish = context.WithCancel(g.ctx)
	g.removal, g.giveUp = context.WithCancel(context.Background())
	g.inbox = newInbox()
	g.roster = newRoster(g.self, g.inbox.wake)
	g.outbox = newOutbox(g.deliver, g.lost)
	if guard, ok := conf.Transport.(*guard); ok {
		g.guard = guard
		guard.levels.keep(g.roster.processes)
	}
	d := &delegate{g, g.self}
	conf.Delegate, conf.Events, conf.Alive, conf.Merge, conf.Conflict = d, d, d, d, d
	list, err := memberlist.Create(conf)
	if err != nil {
		g.cancel()
		if conf.Transport != nil {
			conf.Transport.Shutdown()
		}
		return fmt.Errorf("gossip cannot listen on %s: %w", g.cfg.Bind, err)
	}
	g.list, g.ring = list, conf.Keyring
	g.self.Addr = list.LocalNode().Address()
	g.roster.mu.Lock()
	g.roster.self.Addr = g.self.Addr
	g.roster.mu.Unlock()
	g.registrar = newRegistrar(g)
	return nil
}

// Addr is where others reach this node's gossip: ADDR:PORT, usable in their Join.
func (g *Gossip) Addr() string { return g.self.Addr }

// Members lists the living members that the handler was told of, and this node, by name.
func (g *Gossip) Members() []Member { return g.roster.members() }

// Stats counts what was lost or refused so far.
func (g *Gossip) Stats() Stats {
	return Stats{g.undecodable.Load(), g.dropped.Load(), g.stale.Load(), g.unsent.Load()}
}

// Err is why this node cannot be a member (*ConflictError, *VersionError), or nil.
// Once set, the node has left the cluster.
func (g *Gossip) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Failed is closed when Err is set.
func (g *Gossip) Failed() <-chan struct{} { return g.failed }

// WaitJoined waits until another node is known, or there is no seed but this node. Otherwise it
// returns Err's error, a *JoinError that names the seeds once JoinTimeout has passed
// since the start, or what ended the context. The search goes on in any case.
func (g *Gossip) WaitJoined(ctx context.Context) error {
	if g.Unjoined() == nil {
		return nil // however long ago
	}
	timeout := time.NewTimer(time.Until(g.started.Add(g.cfg.JoinTimeout)))
	defer timeout.Stop()
	select {
	case <-g.joined:
		return nil
	case <-g.failed:
		return g.Err()
	case <-timeout.C:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", g.joinError(), context.Cause(ctx))
	case <-g.ctx.Done():
		return fault.ErrClosed
	}
	return g.joinError()
}

// Unjoined is nil once another node was reached, or if there is no seed but this node. Before that
// it is a *JoinError, which names the seeds that don't answer.
func (g *Gossip) Unjoined() error {
	select {
	case <-g.joined:
		return nil
	default:
		return g.joinError()
	}
}

func (g *Gossip) joinError() *JoinError {
	g.mu.Lock()
	defer g.mu.Unlock()
	return &JoinError{After: time.Since(g.started), Seeds: g.seeds}
}

// fail ends this node's membership.
func (g *Gossip) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = err
		close(g.failed)
	}
}

// Send queues a message to a member, for a reliable stream of its own. It may still get lost: the
// member may fail, or be unreachable. m is not changed. The error names a node that is no member,
// or matches fault.ErrLimit when too many messages wait for it.
func (g *Gossip) Send(node string, m *messages.Rendezvous) error {
	to, ok := g.roster.member(node)
	if !ok {
		return fmt.Errorf("node %q is not a member of cluster %q", node, g.cfg.Cluster)
	}
	return g.sendTo(to, m)
}

func (g *Gossip) sendTo(to Member, m *messages.Rendezvous) error {
	envelope := &messages.Rendezvous{
		From: g.self.Node, Incarnation: g.self.Incarnation, ToIncarnation: to.Incarnation, Body: m.Body,
	}
	b, err := proto.Marshal(envelope)
	if err == nil {
		b, err = g.signed(to, b)
	}
	if err != nil {
		return fmt.Errorf("message to node %q: %w", to.Node, err)
	}
	return g.outbox.put(to, b)
}

func (g *Gossip) deliver(to Member, message []byte) error {
	n, err := to.node()
	if err != nil {
		return err
	}
	return g.list.SendReliable(n, message)
}

func (g *Gossip) lost(to Member, n int, err error) {
	g.unsent.Add(uint64(n))
	g.log.Debug("rendezvous messages not delivered", "to", to.Node, "address", to.Addr, "messages", n, "error", err)
}

// Leave announces that this node goes, so that the others see it Left and not Failed. Nothing can
// be sent afterwards; Close is still to be called. A context without a deadline is given
// LeaveTimeout.
func (g *Gossip) Leave(ctx context.Context) error {
	g.mu.Lock()
	if g.leaving || g.closed {
		g.mu.Unlock()
		return nil
	}
	g.leaving = true
	g.mu.Unlock()
	g.unpublish() // it is done while the farewell is said
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(g.cfg.LeaveTimeout)
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	err := g.outbox.flush(ctx)
	if e := g.announceLeave(deadline); err == nil {
		err = e
	}
	g.unlist(ctx)
	if err != nil {
		return fmt.Errorf("node %q leaves cluster %q: %w", g.self.Node, g.cfg.Cluster, err)
	}
	return nil
}

// unlist has this process's entry removed from the store, and waits for that or for the context.
func (g *Gossip) unlist(ctx context.Context) {
	g.unpublish()
	select {
	case <-g.unlisted:
	case <-ctx.Done():
	}
	g.giveUp()
}

// announceLeave gossips this node's metadata, which says that it leaves, and returns once they have
// been sent. memberlist's own Leave would overtake them, and looks like a failure to the others.
func (g *Gossip) announceLeave(deadline time.Time) error {
	g.lifecycle <- struct{}{}
	defer func() { <-g.lifecycle }()
	for g.ctx.Err() == nil {
		left := time.Until(deadline)
		if left <= 0 {
			break
		}
		// It does not hear of the end if it begins to wait too late: then it starts over.
		if g.list.UpdateNode(max(left/2, time.Millisecond)) == nil {
			return nil
		}
	}
	return context.DeadlineExceeded
}

// Close ends gossip at once; without a Leave before, the others see this node Failed. The
// handler hears nothing after Close returned.
func (g *Gossip) Close() error {
	g.mu.Lock()
	closed := g.closed
	g.closed = true
	g.mu.Unlock()
	g.cancel()
	var err error
	if !closed {
		g.lifecycle <- struct{}{}
		err = g.list.Shutdown()
		<-g.lifecycle
	}
	g.outbox.close()
	g.running.Wait()
	return err
}
