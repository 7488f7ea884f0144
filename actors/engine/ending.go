package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
)

// This file is about how a group ends. That the other ranks hear of it is the work of the layers
// above.

// Break ends all operations and transfers of a group with its first cause, which later calls
// return. tell is called after that is noted and before anything ends. Later calls of Break do
// nothing.
func (g *Group) Break(cause error, seq uint64, tell func()) {
	open, first := g.fail(seq, cause)
	if !first {
		return
	}
	tell()
	for _, p := range open {
		p.operation.abort(g, p.seq, cause)
	}
	g.Transfers.Break(cause)
}

// fail breaks the group with its first cause, and gives the operations to end; first is false if it
// was broken before.
func (g *Group) fail(seq uint64, cause error) (open []pending, first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.broken != nil {
		return nil, false
	}
	since := "" // it broke between operations
	if seq > 0 {
		since = fmt.Sprintf(" since seq %d", seq)
	}
	g.broken = fmt.Errorf("communicator %q: %w%s: %w", g.Name, fault.ErrBroken, since, cause)
	g.cause, g.since = cause, seq
	close(g.Ended)
	for seq, o := range g.open {
		open = append(open, pending{o, seq})
	}
	return open, true
}

// pending is an operation and the seq that it had when it was looked up.
type pending struct {
	operation *Operation
	seq       uint64
}

// Err is the error of calls since the group broke, or nil.
func (g *Group) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.broken
}

// Cause is the first cause itself, after its seq; nil while the group works.
func (g *Group) Cause() (seq uint64, cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.since, g.cause
}

// Shut makes the group take no more calls. It reports whether this is the first time.
func (g *Group) Shut() (first bool) {
	g.mu.Lock() // with Number: what was numbered before is waited for
	defer g.mu.Unlock()
	g.closingOnce.Do(func() { first = true; close(g.Closing) })
	return first
}

// ShutError is why the group takes no more calls though it isn't broken, or nil.
func (g *Group) ShutError() error {
	select {
	case <-g.Closing:
		return g.ClosedError()
	default:
	}
	if err := g.engine.Closed(); err != nil {
		return fmt.Errorf("communicator %q: %w", g.Name, err)
	}
	return nil
}

// ClosedError is what calls on a closed communicator return.
func (g *Group) ClosedError() error {
	return fmt.Errorf("communicator %q: %w", g.Name, fault.ErrClosed)
}

// Has reports whether a rank is of this node here. An error may name a rank of another communicator.
func (g *Group) Has(rank op.Rank, node string) bool {
	return node != "" && g.nodeOf(rank) == node
}

// Named is a cause that the rails give, which know of nodes alone, with the rank of a lost node.
func (g *Group) Named(cause error) error {
	lost := (*fault.RankLostError)(nil)
	if !errors.As(cause, &lost) {
		return cause
	}
	rank := slices.Index(g.Nodes, lost.Node)
	return &fault.RankLostError{Rank: op.Rank(rank), Node: lost.Node, Reason: lost.Reason}
}

// nodeOf is a rank's name; "" where the communicator has no such rank.
func (g *Group) nodeOf(rank op.Rank) string {
	if rank < 0 || int(rank) >= g.Size {
		return ""
	}
	return g.Nodes[rank]
}

// Usable is why the group takes no more calls, or nil.
func (g *Group) Usable() error {
	if err := g.ShutError(); err != nil {
		return err
	}
	return g.Err()
}

// Over is the error of a call whose context was over before it, or nil.
func (g *Group) Over(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("communicator %q: %w", g.Name, context.Cause(ctx))
}

// Depart notes that a rank closes the communicator after seq last. An error is the cause to break
// the group with: an operation above that was called here, and can't finish.
func (g *Group) Depart(rank op.Rank, last uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.departed == nil {
		g.departed = make(map[op.Rank]uint64)
	}
	g.departed[rank] = last
	if g.numbered > last {
		return g.departure(rank, last)
	}
	return nil
}

// HasDeparted reports whether a rank has closed the communicator.
func (g *Group) HasDeparted(rank op.Rank) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.departed[rank]
	return ok
}

// Unreached is why no operation of this seq can finish, or nil: a rank has closed the communicator
// before it.
func (g *Group) Unreached(seq uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.unreached(seq)
}

func (g *Group) unreached(seq uint64) error {
	for rank, last := range g.departed {
		if seq > last {
			return g.departure(rank, last)
		}
	}
	return nil
}

func (g *Group) departure(rank op.Rank, last uint64) error {
	return &fault.AbortError{Rank: rank, Node: g.Nodes[rank], Code: fault.CodeClosed,
		Reason: fmt.Sprintf("it closed the communicator after seq %d", last)}
}

// Quiet returns a channel that is closed when no operation or transfer that was called here is
// open.
func (g *Group) Quiet() <-chan struct{} {
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

// letGo is how long the rails may hold memory of what was ended: see railactors.Fabric.Revoke.
const letGo = 500 * time.Millisecond

// Grace is for a caller whose context is over, and who has ended what was in flight: it lasts until
// the rails have let go of memory. A user's operator alone may hold some for longer.
func Grace(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), letGo)
}

// Hushed waits for Quiet, and reports whether it came before the end of the context.
func (g *Group) Hushed(ctx context.Context) bool { return Came(ctx, g.Quiet()) }

// Came waits until a channel is closed, and reports whether that came before the end of the context. It
// did where both have come.
func Came(ctx context.Context, what <-chan struct{}) bool {
	select {
	case <-what:
		return true
	case <-ctx.Done():
	}
	select {
	case <-what:
		return true
	default:
		return false
	}
}

// HoldsMemory is the error of a call that gives up before Quiet.
func (g *Group) HoldsMemory(cause error) error {
	return fmt.Errorf("communicator %q: operations still hold memory, as where a user-defined operator "+
		"has not returned: %w", g.Name, cause)
}

// operationError puts an operation's name on a cause, once.
func (g *Group) operationError(seq uint64, d op.Descriptor, cause error) error {
	return &fault.OperationError{Communicator: g.Name, Seq: seq, Operation: d, Cause: cause}
}
