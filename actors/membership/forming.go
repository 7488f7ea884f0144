package membership

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/polyrail/polyrail/actors/communicator"
	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/cluster"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/view"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/supervise"
)

// nodeActor forms communicators: it feeds the view core with what gossip, peers and
// callers say, and carries out what it decides.
type nodeActor struct {
	node   *node
	core   *view.Core
	rails  []view.Rail // as the core knows them
	gossip *cluster.Gossip

	lastCall uint64
	calls    map[uint64]*communicatorCall
	shrinks  map[string]*communicatorCall // those that shrink, by view.ShrinkName
	forming  map[uint64]*forming          // by wire id
	waiting  []view.Send                  // before gossip is known here
	failed   error                        // the cluster turned this node down
	alarm    *time.Timer
	reminder *time.Timer // nil: not set
}

// forming is a view between Register and Formed.
type forming struct {
	view   *view.View
	group  *communicator.Group
	handle *communicator.Communicator
	cancel context.CancelFunc // ends the waits for its pairs and its barrier
	ctx    context.Context
	// Of the waits for its pairs: each that comes up extends them.
	patience time.Duration
	late     *time.Timer
}

// maxMail bounds the rendezvous messages in the node actor's mailbox.
const maxMail = 4096

// gossipHandler turns gossip's calls into messages.
type gossipHandler struct{ node *node }

func (h *gossipHandler) ClusterEvent(e cluster.Event) { h.node.tell(h.node.pid, gossipEvent(e)) }
func (h *gossipHandler) ClusterMessage(from string, m *messages.Rendezvous) {
	n := h.node
	if n.ofOnlookers(from, m) {
		return
	}
	if n.mail.Add(1) > maxMail { // whoever sends so many repeats what matters
		n.mail.Add(-1)
		if dropped := n.dropped.Add(1); dropped&(dropped-1) == 0 {
			n.log.Warn("rendezvous message dropped: too many wait", "from", from, "count", dropped)
		}
		return
	}
	n.tell(n.pid, &gossipMessage{from, m})
}

func (a *nodeActor) Receive(ctx actor.Context) {
	defer a.survive(ctx)
	switch m := ctx.Message().(type) {
	case gossipStarted:
		a.connectGossip(m.gossip)
	case gossipFailed:
		a.failed = m.err
		waiting := maps.Clone(a.calls)
		a.answerAll(m.err)
		for id, c := range waiting { // or one that is in its barrier forms, and has no owner here
			a.step(view.Cancel{Call: id, Name: c.name, Reason: m.err.Error()})
		}
	case *communicatorCall:
		a.moved()
		a.call(m)
	case *cancelCall:
		a.step(view.Cancel{Call: m.call.id, Name: m.call.name, Reason: m.reason})
	case gossipEvent:
		a.member(cluster.Event(m))
	case *gossipMessage:
		a.node.mail.Add(-1)
		a.receive(m)
	case *reached:
		if m.err == nil {
			a.extend(m.id)
			a.step(view.Reached{ID: m.id, Node: m.node})
		} else {
			a.step(view.Unreachable{ID: m.id, Node: m.node, Reason: m.err.Error()})
		}
	case *barrierDone:
		a.step(view.BarrierDone{ID: m.id, Err: m.err})
	case peerLost:
		a.lost(m)
	case remind:
		a.remind()
	case wake:
		a.moved()
		a.step(view.Tick{})
		a.tellLosses()
	case *actor.Stopping:
		a.end()
	case *actor.Started, *actor.Stopped, *actor.Restarting, *actor.Terminated:
	default:
		supervise.Unknown(ctx, a.node.log)
	}
}

func (a *nodeActor) call(m *communicatorCall) {
	if a.failed != nil {
		m.done <- formed{err: callError(m.title(), a.failed)}
		return
	}
	a.lastCall++
	m.id, m.began = a.lastCall, time.Now()
	a.calls[m.id] = m
	a.watchCalls(waitPatience)
	var random [8]byte
	rand.Read(random[:]) // never fails
	nonce := binary.LittleEndian.Uint64(random[:])
	if m.old == nil {
		a.step(view.Ask{Call: m.id, Name: m.name, Size: m.size, Nonce: nonce,
			Settings: a.node.config.Settings})
		return
	}
	a.shrink(m, nonce)
}

func (a *nodeActor) connectGossip(g *cluster.Gossip) {
	a.gossip = g
	for _, s := range a.waiting {
		a.send(s)
	}
	a.waiting = nil
}

// member tells the core who lives.
func (a *nodeActor) member(e cluster.Event) {
	if e.Member.Node == a.node.config.Node {
		return
	}
	a.node.log.Info("member", "peer", e.Member.Node, "event", e.Kind.String(), "address", e.Member.Addr)
	if e.Kind == cluster.Joined {
		a.step(view.MemberUp{Node: e.Member.Node, Incarnation: e.Member.Incarnation})
		return
	}
	a.step(view.MemberDown{Node: e.Member.Node, Incarnation: e.Member.Incarnation, Failed: e.Kind == cluster.Failed})
	a.tellLosses()
}

func (a *nodeActor) receive(m *gossipMessage) {
	if a.node.ofTrees(m.from, m.message) {
		return
	}
	message, incarnation, err := cluster.ViewMessage(m.message)
	if err != nil {
		a.node.log.Warn("rendezvous message refused", "from", m.from, "error", err)
		return
	}
	if announced, ok := message.(*view.Announce); ok && a.strange(announced) {
		a.step(view.Stranger{From: m.from, Name: announced.Name})
		return
	}
	a.step(view.Received{From: m.from, Incarnation: incarnation, Message: message})
}

// lost tells the core of the loss, first for those who shrink: the next view is to be without the
// node; then for every view being formed with the lost node in it.
func (a *nodeActor) lost(m peerLost) {
	a.tellLosses()
	for id, f := range a.forming {
		if f.view.Rank(m.node) >= 0 {
			a.step(view.Unreachable{ID: id, Node: m.node, Reason: m.err.Error()})
		}
	}
}

// step feeds the core and carries out its answer.
func (a *nodeActor) step(e view.Event) {
	if a.node.ended() != nil {
		return
	}
	for _, action := range a.core.Step(e, time.Now()) {
		a.do(action)
	}
	if a.alarm != nil {
		a.alarm.Stop()
	}
	if at, ok := a.core.Wake(); ok {
		n := a.node
		a.alarm = time.AfterFunc(time.Until(at), func() { n.tell(n.pid, wake{}) })
	}
}

func (a *nodeActor) do(action view.Action) {
	switch m := action.(type) {
	case view.Send:
		a.send(m)
	case view.Register:
		a.register(m.View)
	case view.Connect:
		a.connect(a.forming[m.View.ID], m.Ranks)
	case view.Barrier:
		a.barrier(a.forming[m.View.ID])
	case view.Unregister:
		a.unregister(m)
	case view.Formed:
		a.formed(m)
	case view.Failed:
		a.callFailed(m)
	default:
		a.node.log.Error("unknown action of the view core", "type", fmt.Sprintf("%T", m))
	}
}

func (a *nodeActor) send(m view.Send) {
	if a.gossip == nil {
		a.waiting = append(a.waiting, m)
		return
	}
	if err := a.gossip.Send(m.To, cluster.RendezvousOf(m.Message, a.node.config.Incarnation)); err != nil {
		a.node.log.Debug("rendezvous message not sent", "to", m.To, "error", err) // the core repeats what matters
	}
}

func (a *nodeActor) register(v *view.View) {
	rank := v.Rank(a.node.config.Node)
	nodes, procs := make([]string, len(v.Members)), make([]uint64, len(v.Members))
	hosts := make([]view.Host, len(v.Members))
	for i, m := range v.Members {
		nodes[i], procs[i], hosts[i] = m.Node, m.Incarnation, m.Host
	}
	name := v.Name
	if call := a.shrinks[v.Name]; call != nil {
		name = call.old.Name
	}
	ctx, cancel := context.WithCancel(context.Background())
	g := a.node.shared.NewGroup(v.ID, name, op.Rank(rank), nodes, hosts, a.node.first)
	g.Procs = procs
	a.forming[v.ID] = &forming{view: v, group: g, ctx: ctx, cancel: cancel}
}

// connect asks for the pairs to the members with these ranks, and makes the others known. The group
// is registered once their peers exist, before this node accepts, and so before anybody sends
// anything under its id.
func (a *nodeActor) connect(f *forming, ranks []int) {
	n := a.node
	var failed *reached
	f.group.Meshed = len(ranks) == f.group.Size-1
	for rank, m := range f.view.Members {
		if op.Rank(rank) == f.group.Rank {
			continue
		}
		introduce := n.fabric.Introduce
		if _, linked := slices.BinarySearch(ranks, rank); linked {
			introduce = n.fabric.Connect
			f.group.Linked(op.Rank(rank))
		}
		peer, err := introduce(remoteOf(&m, &f.view.Members[f.group.Rank]))
		if err != nil {
			failed = &reached{f.view.ID, m.Node, err}
			continue // what stands in another one's way is to be gone by the next attempt, too
		}
		f.group.Attach(op.Rank(rank), peer)
	}
	n.Register(f.group)
	if failed != nil {
		n.tell(n.pid, failed)
		return
	}
	// Before the core's own patience ends, which knows no rails.
	f.patience = n.config.View.ConnectOf(f.group.Size) * 9 / 10
	ctx, late := context.WithCancelCause(f.ctx)
	f.late = time.AfterFunc(f.patience, func() {
		late(&fault.TimeoutError{What: "connecting two nodes", After: f.patience})
	})
	for _, rank := range ranks {
		p := f.group.Peers[rank]
		go func() { // ends with f.ctx
			n.tell(n.pid, &reached{f.view.ID, p.Node(), p.WaitReady(ctx)})
		}()
	}
}

// extend has the other pairs of a view waited for as long again, since one has come up.
func (a *nodeActor) extend(id uint64) {
	if f := a.forming[id]; f != nil && f.late != nil && f.late.Stop() {
		f.late.Reset(f.patience)
	}
}

// drop ends what a view waits for.
func (f *forming) drop() {
	f.cancel()
	if f.late != nil {
		f.late.Stop()
	}
}

// remoteOf is how a member is reached from another one.
func remoteOf(m, from *view.Member) railactors.Remote {
	r := railactors.Remote{Node: m.Node, Incarnation: m.Incarnation}
	if m.Host.SharesMemory(from.Host) {
		r.Memory = m.Host.Memory
	}
	for _, rail := range m.Rails {
		r.Rails = append(r.Rails, railactors.RailAddress{Name: rail.Name, Addr: rail.Addr})
	}
	return r
}

// A committing barrier is bounded: a member that never enters it must not hold the others.
const (
	barrierTimeout   = 10 * time.Second
	barrierPerMember = 20 * time.Millisecond // the way of the commit to all of them
)

// barrier runs the committing barrier over the pairs, as the communicator's first operation.
func (a *nodeActor) barrier(f *forming) {
	n, id := a.node, f.view.ID
	f.handle = n.Open(f.group)
	timeout := barrierTimeout + time.Duration(f.group.Size)*barrierPerMember
	go func() { // ends with f.ctx
		ctx, cancel := context.WithTimeoutCause(f.ctx, timeout,
			&fault.TimeoutError{What: "the barrier that commits the view", After: timeout})
		defer cancel()
		work, err := f.handle.Start(ctx, &engine.Request{Kind: op.KindView, Salt: f.view.Digest(), Internal: true})
		if err == nil {
			err = work.Wait(ctx)
		}
		n.tell(n.pid, &barrierDone{id, err})
	}()
}

func (a *nodeActor) unregister(m view.Unregister) {
	f := a.forming[m.View.ID]
	if f == nil {
		return
	}
	delete(a.forming, m.View.ID)
	n := a.node
	n.log.Info("view given up", "communicator", f.group.Name, "ballot", m.View.Ballot, "reason", m.Reason)
	if f.handle == nil {
		f.drop()
		n.Unregister(f.group)
		return
	}
	// Others may hold it for formed: breaking it tells them.
	f.group.End(&fault.ViewError{Name: f.group.Name, Reason: m.Reason}, 1, m.Entered)
	f.drop()
	go func() { // ends when the barrier has: it was just broken
		<-f.group.Quiet()
		n.Unregister(f.group)
		n.shared.Stop(f.handle.PID)
	}()
}

func (a *nodeActor) formed(m view.Formed) {
	f := a.forming[m.View.ID]
	delete(a.forming, m.View.ID)
	f.drop()
	for _, p := range f.group.Peers {
		if p != nil {
			p.Agreed()
		}
	}
	a.node.log.Info("communicator formed", "name", f.group.Name, "rank", f.group.Rank,
		"size", f.group.Size, "ballot", m.View.Ballot)
	f.group.Announce()
	a.answer(m.Call, formed{communicator: f.handle, uneven: m.View.Uneven})
}

func (a *nodeActor) answer(call uint64, f formed) {
	if c := a.calls[call]; c != nil {
		delete(a.calls, call)
		if a.shrinks[c.name] == c {
			delete(a.shrinks, c.name)
		}
		c.done <- f
	}
}

// end answers every caller when the node closes.
func (a *nodeActor) end() {
	for _, t := range []*time.Timer{a.alarm, a.reminder} {
		if t != nil {
			t.Stop()
		}
	}
	for _, f := range a.forming {
		f.drop()
		a.node.Unregister(f.group)
	}
	a.answerAll(a.node.closedError())
}

// answerAll ends every call that waits.
func (a *nodeActor) answerAll(cause error) {
	for id, c := range a.calls {
		a.answer(id, formed{err: callError(c.title(), cause)})
	}
}
