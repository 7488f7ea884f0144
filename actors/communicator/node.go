package communicator

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/polyrail/polyrail/actors/balancing"
	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/sharp"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/supervise"
)

// Node is what the communicators of a node share. It is complete before the first of them.
type Node struct {
	Name             string
	OperationTimeout time.Duration // 0: none
	Engine           *engine.Engine
	Balancing        *balancing.Node
	Fabric           *railactors.Fabric
	System           *actor.ActorSystem
	Warm             actor.Dispatcher // for communicator actors
	Inline           actor.Dispatcher // for those on the path of an operation
	Log              *slog.Logger
	Registry         Registry
	SharpRails       []string // by index: the names of rails that may have trees; "": it may not
	TreeFragment     int      // bytes of the longest fragment of a tree that is made here
	TreeResults      sharp.Results
	TreeRadix        int // most children of its nodes; 0: as many as there are
	// Paths are where living nodes stand, as they have said by gossip (sharp.Site).
	Paths func() map[string]string
	// Cast sends a message to a node by gossip, or to all others if it has no name. It may get
	// lost.
	Cast func(to string, m *messages.Rendezvous)

	starts sync.Pool // of startOperation
}

// Registry knows the communicators of a node by their wire ids, and hears what becomes of them. Its
// methods may be called on any goroutine; the last five don't block.
type Registry interface {
	// Register makes a group known: frames and control messages of its id are its own from now on.
	// One that another rank has given up already, or whose node closes, is broken at once.
	Register(g *Group)
	// Unregister forgets a group, and lets go of its peers.
	Unregister(g *Group)
	// Open starts the actors of a registered group, and hands them what came before.
	Open(g *Group) *Communicator

	// Formed: the communicator is its caller's from now on.
	Formed(g *Group)
	// Broken: the communicator, which was formed, has broken.
	Broken(g *Group, cause error)
	// TableChanged: operations are divided by another table from now on.
	TableChanged(g *Group, version uint32)
	// TreeUp: a node makes the large sums that a rail carries, from now on.
	TreeUp(g *Group, rail int, node string)
	// TreeDown: it makes them no more. So many operations that were under way go on without it.
	TreeDown(g *Group, rail int, node, reason string, repaired int)
}

// tell sends a message from outside any actor.
func (n *Node) tell(pid *actor.PID, message any) { n.System.Root.Send(pid, message) }

// newStart is a startOperation that was used before, or a new one.
func (n *Node) newStart() *startOperation {
	if m, ok := n.starts.Get().(*startOperation); ok {
		return m
	}
	return &startOperation{ready: make(chan struct{}, 1)}
}

// recycle is for a call's caller, when the coordinator has answered it: then nobody else looks at
// it.
func (n *Node) recycle(m *startOperation) {
	*m = startOperation{ready: m.ready}
	n.starts.Put(m)
}

// unknown logs a message that an actor has no case for.
func (n *Node) unknown(ctx actor.Context) { supervise.Unknown(ctx, n.Log) }

// Strategy supervises one level of the tree. A child that panics breaks its communicator, since the
// message it was at is lost. It is restarted for the communicators and calls after it.
func (n *Node) Strategy(g *Group) *supervise.Strategy {
	cfg := supervise.DefaultConfig()
	cfg.Report = func(d supervise.Decision) {
		n.Log.Error("actor failed", "decision", d.String())
		g.Fail(fmt.Errorf("%w: %v", fault.ErrInternal, d.Reason), 0)
	}
	return supervise.New(cfg)
}

// Stop ends an actor and what it supervises.
func (n *Node) Stop(pid *actor.PID) {
	if err := n.System.Root.StopFuture(pid).Wait(); err != nil {
		n.Log.Warn("actor did not stop", "actor", pid.GetId(), "error", err)
	}
}
