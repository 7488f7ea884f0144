package communicator

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/reminder"
	"github.com/polyrail/polyrail/collective/sharp"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/railactors"
)

const (
	// What a rank is ahead in a tree, in fragments. It bounds the memory of an aggregation node:
	// (children + 2) × window × fragment, and (children + 4) below the root.
	treeWindow  = 16
	treeConnect = 4 * time.Second
)

// trees is the actor of a communicator's aggregation trees: it connects this rank to their nodes,
// and watches over them. On rank 0 it also has them made, one for each sharp rail.
type trees struct {
	group       *Group
	coordinator *actor.PID
	self        *actor.PID
	leaders     map[int]*treeLeader // by rail; rank 0 only
	open        map[uint64]*openTree
	past        []uint64 // groups that were repaired, the oldest first
	named       []uint64 // groups that a table may still give operations to
	alarm       *time.Timer
	ctx         context.Context // ends with the actor
	cancel      context.CancelFunc
}

type treeLeader struct {
	core *sharp.Leader
	rail string
	all  map[string]*messages.ViewMember // that offered themselves
	told reminder.Reminders              // why there is no tree
}

// level is that of a line that says why there is no tree: attempts go on while there is none.
func (l *treeLeader) level(about string) slog.Level {
	if l.told.Due(about, time.Now()) {
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// openTree is a group that this rank is a member of.
type openTree struct {
	config engine.TreeConfig
	tree   *engine.Tree // nil until it is connected
	lost   bool         // rank 0 was told
	up     bool         // a table has named it
	over   bool         // it was given up …
	reason string       // … because of this
}

func newTrees(g *Group, coordinator *actor.PID) *trees {
	t := &trees{group: g, coordinator: coordinator, open: make(map[uint64]*openTree)}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	if g.Rank != 0 {
		return t
	}
	t.leaders = make(map[int]*treeLeader)
	var ranks []sharp.Site
	paths := g.node.Paths()
	for _, name := range g.Nodes {
		ranks = append(ranks, sharp.Site{Node: name, Path: paths[name]})
	}
	for rail, name := range g.node.SharpRails {
		if name != "" && g.Size > 1 {
			t.leaders[rail] = &treeLeader{core: sharp.NewLeader(ranks, g.node.TreeRadix), rail: name,
				all: make(map[string]*messages.ViewMember)}
		}
	}
	return t
}

// Receive implements actor.Actor.
func (t *trees) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		t.self = ctx.Self()
		t.tick()
	case treesWake:
		t.tick()
	case *Rendezvous:
		t.rendezvous(m)
	case *Control:
		t.control(m)
	case *treeConnected:
		t.connected(m)
	case *TreeDown:
		t.lost(m.Group, m.Reason)
	case *treeQuiet:
		t.quiet(m)
	case tableCommitted:
		t.named = m.named
		t.switched(m.trees)
	case *actor.Stopping, *actor.Restarting: // what failed has broken the communicator
		t.end()
	case *actor.Stopped:
	default:
		t.group.node.unknown(ctx)
	}
}

// tick lets the leaders go on.
func (t *trees) tick() {
	for rail, l := range t.leaders {
		t.lead(rail, l.core.Tick(time.Now(), random(), nil))
	}
}

// lead carries out what a rail's leader has decided, and sets the clock for what follows.
func (t *trees) lead(rail int, actions []sharp.LeaderAction) {
	for i := range actions {
		t.do(rail, t.leaders[rail], &actions[i])
	}
	if t.alarm != nil {
		t.alarm.Stop()
	}
	var first time.Time
	for _, l := range t.leaders {
		if at, ok := l.core.Wake(); ok && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if !first.IsZero() {
		n, self := t.group.node, t.self
		t.alarm = time.AfterFunc(time.Until(first), func() { n.tell(self, treesWake{}) })
	}
}

// do carries out one action.
func (t *trees) do(rail int, l *treeLeader, a *sharp.LeaderAction) {
	g, n := t.group, t.group.node
	switch a.Kind {
	case sharp.Seek:
		l.all = make(map[string]*messages.ViewMember)
		n.Cast("", &messages.Rendezvous{Body: &messages.Rendezvous_TreeSeek{
			TreeSeek: &messages.TreeSeek{Rail: l.rail}}})
	case sharp.Ask:
		n.Cast(a.Node, &messages.Rendezvous{Body: &messages.Rendezvous_TreeRequest{
			TreeRequest: t.request(l, a.Node)}})
	case sharp.Open:
		_, layout := l.core.Group()
		n.Log.Debug("tree offered", "communicator", g.Name, "rail", l.rail, "tree", layout.String())
		for rank := range g.Size {
			t.rank(op.Rank(rank), &messages.Control{Body: &messages.Control_TreeOpen{TreeOpen: &messages.TreeOpen{
				Group: a.Group, Rail: l.rail, Window: treeWindow, FragmentBytes: uint32(n.TreeFragment),
				Results: uint32(n.TreeResults), Node: l.all[layout[layout.Above(rank)].Node], Deep: layout.Deep()}}})
		}
	case sharp.Propose:
		if a.Group != 0 {
			l.told.Forget()
			n.Log.Info("tree made", "communicator", g.Name, "rail", l.rail)
		}
		n.tell(t.coordinator, proposeTree{rail, a.Group})
	case sharp.Lose:
		n.Log.Log(t.ctx, l.level("tree given up"), "tree given up", "communicator", g.Name,
			"rail", l.rail, "reason", a.Reason)
		t.everybody(&messages.Control{Body: &messages.Control_TreeLost{TreeLost: &messages.TreeLost{
			Group: a.Group, Reason: WireText(a.Reason), Fence: true}}})
	case sharp.Repair:
		t.everybody(&messages.Control{Body: &messages.Control_TreeRepair{TreeRepair: &messages.TreeRepair{
			Group: a.Group, From: a.From}}})
	case sharp.Relinquish:
		n.Cast(a.Node, &messages.Rendezvous{Body: &messages.Rendezvous_TreeDestroy{
			TreeDestroy: &messages.TreeDestroy{Group: a.Group}}})
	}
}

// request asks a node to serve its part of the group that is being made.
func (t *trees) request(l *treeLeader, node string) *messages.TreeRequest {
	g := t.group
	group, layout := l.core.Group()
	j := layout[slices.IndexFunc(layout, func(j sharp.Junction) bool { return j.Node == node })]
	m := &messages.TreeRequest{Group: group, Comm: g.ID, Name: WireText(g.Name), Rail: l.rail,
		Window: treeWindow, FragmentBytes: uint32(g.node.TreeFragment), Size: uint32(g.Size),
		BcubeBase: uint32(g.node.Engine.Config.BcubeBase), Free: g.node.Engine.Config.Free,
		Job: g.Job, Results: uint32(g.node.TreeResults)}
	for _, child := range j.Children {
		if child.Rank < 0 {
			m.Members = append(m.Members, l.all[layout[child.Node].Node])
		} else {
			m.Members = append(m.Members, t.memberOf(child.Rank))
		}
		m.Ranks = append(m.Ranks, uint32(child.Rank+1))
	}
	if len(layout) == 1 {
		m.Hosts = g.Places.Numbers()
	}
	if j.Parent >= 0 {
		m.Parent = l.all[layout[j.Parent].Node]
	}
	return m
}

// memberOf is how others reach a rank's node.
func (t *trees) memberOf(rank int) *messages.ViewMember {
	g := t.group
	addresses := g.node.Fabric.Addresses()
	if p := g.Peers[rank]; p != nil {
		addresses = p.Addresses()
	}
	return &messages.ViewMember{Node: g.Nodes[rank], Incarnation: g.Procs[rank],
		Rails: railactors.RailsOf(addresses)}
}

// everybody sends a message to all ranks, this one included.
func (t *trees) everybody(m *messages.Control) {
	t.group.controlAll(m)
	t.group.node.tell(t.self, &Control{From: t.group.Rank, Body: m})
}

// rank sends a message to a rank, which may be this one.
func (t *trees) rank(rank op.Rank, m *messages.Control) {
	if t.group.Rank == rank {
		t.group.node.tell(t.self, &Control{From: rank, Body: m})
		return
	}
	t.group.control(rank, m)
}

// rendezvous takes what a node says that aggregates.
func (t *trees) rendezvous(m *Rendezvous) {
	for rail, l := range t.leaders {
		switch b := m.Message.GetBody().(type) {
		case *messages.Rendezvous_TreeOffer:
			if b.TreeOffer.GetRail() == l.rail && len(l.all) < maxOffers {
				l.all[m.From] = &messages.ViewMember{Node: m.From,
					Incarnation: m.Message.GetIncarnation(), Rails: b.TreeOffer.GetRails()}
				l.core.Offer(sharp.Offer{Site: sharp.Site{Node: m.From, Path: t.group.node.Paths()[m.From]},
					Groups: int(b.TreeOffer.GetGroups())})
			}
		case *messages.Rendezvous_TreeAnswer:
			if refusal := b.TreeAnswer.GetRefusal(); refusal != "" {
				t.group.node.Log.Log(t.ctx, l.level("refused by "+m.From), "tree refused",
					"communicator", t.group.Name, "rail", l.rail, "peer", m.From, "reason", WireText(refusal))
			}
			t.lead(rail, l.core.Answer(time.Now(), m.From, b.TreeAnswer.GetGroup(),
				b.TreeAnswer.GetRefusal(), random(), nil))
		}
	}
}

// maxOffers bounds the nodes that are chosen from.
const maxOffers = 64

// follow does what rank 0 says, and reports whether a message of its is an order.
func (t *trees) follow(m *messages.Control) bool {
	switch b := m.GetBody().(type) {
	case *messages.Control_TreeOpen:
		t.connect(b.TreeOpen)
	case *messages.Control_TreeRepair:
		t.repair(b.TreeRepair)
	case *messages.Control_TreeLost:
		if !b.TreeLost.GetFence() {
			return false
		}
		t.fence(b.TreeLost.GetGroup(), WireText(b.TreeLost.GetReason()))
	default:
		return false
	}
	return true
}

// control takes what another rank says: rank 0's leaders hear of it.
func (t *trees) control(m *Control) {
	if leave := m.Body.GetLeave(); leave != nil {
		t.departed(m.From, leave.GetLast())
		return
	}
	if m.From == 0 && t.follow(m.Body) {
		return
	}
	now := time.Now()
	var answer func(l *sharp.Leader) []sharp.LeaderAction
	switch b := m.Body.GetBody().(type) {
	case *messages.Control_TreeReady:
		answer = func(l *sharp.Leader) []sharp.LeaderAction {
			return l.Ready(now, int(m.From), b.TreeReady.GetGroup(), b.TreeReady.GetObstacle(), nil)
		}
	case *messages.Control_TreeLost:
		answer = func(l *sharp.Leader) []sharp.LeaderAction {
			return l.Lost(now, b.TreeLost.GetGroup(), b.TreeLost.GetReason(), nil)
		}
	case *messages.Control_TreeFenced:
		answer = func(l *sharp.Leader) []sharp.LeaderAction {
			return l.Fenced(now, int(m.From), b.TreeFenced.GetGroup(), b.TreeFenced.GetSettled(), nil)
		}
	}
	if answer == nil {
		return
	}
	for rail, l := range t.leaders {
		t.lead(rail, answer(l.core))
	}
}

func random() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return max(1, binary.LittleEndian.Uint64(b[:]))
}
