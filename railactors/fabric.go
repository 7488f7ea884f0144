// Package railactors moves frames between nodes over all their rails: rails and their
// devices, pairs (a connection to one peer on one rail), peers (what is sent to, owed to and
// known of a remote node) and the failover between them (docs/decisions/002, 007, 011, 014).
//
// A Fabric is one node's part. Peer.Send takes frames; Inbound, the operations' side, is
// asked where an arriving frame's payload belongs and hears of messages and losses. The
// package doesn't know what an operation is. Decisions are made by collective/peer, bytes are moved by
// railactors/transport; the actors here own lifecycles: attempts to connect, heartbeats, restarts.
package railactors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/polyrail/polyrail/collective/peer"
	"github.com/polyrail/polyrail/collective/reminder"
	"github.com/polyrail/polyrail/railactors/board"
	"github.com/polyrail/polyrail/railactors/dispatch"
	"github.com/polyrail/polyrail/railactors/transport"
)

// Fabric is one node's rails and its dealings with other nodes over them.
type Fabric struct {
	cfg    Config
	in     Inbound
	sys    *actor.ActorSystem
	log    *slog.Logger
	start  time.Time
	rails  []*rail // ascending by name: the same index everywhere in the cluster; MemoryRail, if any, follows
	memory int     // index of MemoryRail; -1: none
	warm   *dispatch.Warm
	root   *actor.PID // rail supervisor
	office *actor.PID // the peer actors' parent
	group  sync.WaitGroup
	done   chan struct{}   // closed when Close begins to tear down
	ctx    context.Context // ends with done
	cancel context.CancelFunc

	busy     atomic.Int64   // peers that are sent to
	lastMet  atomic.Int64   // when a peer was first connected, since start
	epochs   atomic.Int64   // of actors
	children sync.WaitGroup // peer and pair actors that run
	quiet    quietRails
	turned   turnedDown
	board    *board.Board    // nil: nothing is shown
	knocks   <-chan struct{} // of who shows something

	mu       sync.Mutex
	sessions uint64
	peers    map[string]*Peer   // the latest of each node
	all      map[*Peer]struct{} // that haven't finished
	awaited  map[string]*awaiting
	late     []int           // rails whose devices came, or moved, after the start
	losses   map[string]loss // the last one of each node
	held     int
	heldOf   map[string]int              // by address
	shaking  map[transport.Conn]struct{} // in a handshake
	closed   bool                        // no more peers
	failed   error                       // why it connects nobody any more; nil: it does
	down     bool                        // no more goroutines
}

// Start opens the rails' devices and starts their actors. In hears of everything that
// arrives. The error names rail and device.
func Start(sys *actor.ActorSystem, cfg Config, in Inbound) (*Fabric, error) {
	cfg = cfg.withDefaults()
	f := &Fabric{cfg: cfg, in: in, sys: sys, log: cfg.Logger, start: time.Now().Add(-1), memory: -1, done: make(chan struct{}),
		peers: make(map[string]*Peer), all: make(map[*Peer]struct{}),
		awaited: make(map[string]*awaiting), heldOf: make(map[string]int), losses: make(map[string]loss),
		shaking: make(map[transport.Conn]struct{})}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	byName := slices.SortedFunc(slices.Values(cfg.Rails),
		func(a, b RailConfig) int { return cmp.Compare(a.Name, b.Name) })
	if err := f.openDevices(byName); err != nil {
		f.closeDevices()
		f.cancel()
		return nil, err
	}
	f.openMemory()
	if err := f.startActors(); err != nil {
		f.closeDevices()
		f.cancel()
		return nil, err
	}
	for i := range f.rails {
		f.group.Go(func() { f.serve(i) })
	}
	if f.board != nil {
		f.group.Go(f.hearKnocks)
	}
	return f, nil
}

func (f *Fabric) closeDevices() {
	for _, r := range f.rails {
		d := r.device()
		if d == nil {
			continue
		}
		if err := d.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			f.log.Warn("closing a device", "rail", r.name, "error", err)
		}
	}
}

// now is the time since the fabric's start. It is never 0.
func (f *Fabric) now() time.Duration { return time.Since(f.start) }

// RailIndex finds a rail by name; -1 if there is none.
func (f *Fabric) RailIndex(name string) int {
	return slices.IndexFunc(f.rails, func(r *rail) bool { return r.name == name })
}

// within is the set of the rails that connect nodes of one host.
func (f *Fabric) within() (s peer.Rails) {
	if f.memory >= 0 {
		s.Add(f.memory)
	}
	return s
}

// reach is the set of the rails over which a node with these addresses can be reached, now or later.
func (f *Fabric) reach(addrs []string) (s peer.Rails) {
	for i := range f.rails {
		if i != f.memory || addrs[i] != "" {
			s.Add(i)
		}
	}
	return s
}

// Lanes is how many rails connect all nodes: those of the configuration. They come first.
func (f *Fabric) Lanes() int {
	if f.memory >= 0 {
		return f.memory
	}
	return len(f.rails)
}

// MemoryAddr is where nodes of this host reach this one on MemoryRail; empty: they don't.
func (f *Fabric) MemoryAddr() string {
	if f.memory < 0 {
		return ""
	}
	return f.rails[f.memory].addr()
}

// RailName is the name of the rail with an index.
func (f *Fabric) RailName(i int) string { return f.rails[i].name }

// listen accepts a rail's connections. It lives as long as the device, above whatever restarts.
func (f *Fabric) listen(i int, device transport.Device) {
	r := f.rails[i]
	var said reminder.Reminders
	for failures := 0; ; {
		conn, err := device.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if said.Due(err.Error(), time.Now()) {
				f.log.Warn("rail can't accept", "rail", r.name, "error", err)
			}
			failures++
			select {
			case <-time.After(backoff(failures)):
			case <-f.done:
				return
			}
			continue
		}
		failures = 0
		if err := deadline(conn, time.Now().Add(f.cfg.RankTimeout)); err != nil {
			conn.Close()
			continue
		}
		r.entrance.enter(conn)
		if !f.shake(conn, func() { f.admit(i, conn) }) {
			r.entrance.leave(conn)
			conn.Close()
		}
	}
}

// shake runs a handshake on a goroutine of its own; Close ends it. False if Close came first.
func (f *Fabric) shake(conn transport.Conn, handshake func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return false
	}
	f.shaking[conn] = struct{}{}
	f.group.Go(func() {
		handshake()
		f.mu.Lock()
		delete(f.shaking, conn)
		f.mu.Unlock()
	})
	return true
}

// spawn runs fn on a goroutine that Close waits for. False if Close came first.
func (f *Fabric) spawn(fn func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return false
	}
	f.group.Go(fn)
	return true
}

// adopt counts a peer's or pair's actor that is about to be spawned: Close waits for its end. False
// if Close came first.
func (f *Fabric) adopt() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return false
	}
	f.children.Add(1)
	return true
}

// snapshot lists the peers that haven't finished.
func (f *Fabric) snapshot() []*Peer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.all))
}

// Revoke takes memory back: queued frames of this owner are dropped and released with
// ErrRevoked, written ones are released and not sent again, landings of this receiver
// are torn. It doesn't wait. What a goroutine holds at the moment is released when that lets go: a
// read at once; a write after at most 0.15 s, or its connection is closed. Owner is the
// FrameOwner's and the Receiver's own pointer. What is sent later isn't affected.
func (f *Fabric) Revoke(owner any) {
	if owner == nil {
		return
	}
	for _, p := range f.snapshot() {
		p.revoke(owner)
	}
}

// Close says farewell to all peers when everything that was sent is acknowledged, or at the
// end of ctx, and stops everything: actors, goroutines, connections, devices. The
// error names the nodes to which something was still on its way.
func (f *Fabric) Close(ctx context.Context) error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	f.mu.Unlock()
	peers := f.snapshot()
	for _, p := range peers {
		p.leave()
		p.look()
	}
	var faults []error
	for _, p := range peers {
		select {
		case <-p.ended:
		case <-ctx.Done():
			if !p.idle() {
				faults = append(faults, fmt.Errorf("node %q: closed with frames unacknowledged: %w", p.node, context.Cause(ctx)))
			}
			p.end(p.closedError(), false)
		}
	}
	for _, p := range peers {
		<-p.ended // nobody holds memory for longer than a callback takes
	}
	close(f.done)
	f.cancel()
	f.closeDevices() // after cancel: see came
	f.mu.Lock()
	f.down = true
	for conn := range f.shaking {
		conn.Close()
	}
	f.mu.Unlock()
	// Each peer has told its actors to stop. Their parents must hear the end of them
	// first, or they would send them another stop.
	f.children.Wait()
	f.stopActors()
	f.group.Wait()
	f.warm.Close()
	return errors.Join(faults...)
}
