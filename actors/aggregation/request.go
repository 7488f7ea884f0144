package aggregation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/sharp"
	"github.com/polyrail/polyrail/collective/view"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/railactors"
)

// This file is about how groups come: requests of other nodes, which may be lost, repeated, late or
// overtaken, and may say anything.

// Limits of a request.
const (
	minMembers = 2
	maxMembers = 256  // of a node
	maxSize    = 8192 // of the communicator
)

// Request answers a node that asks for a group. What is granted is reserved at once; the members'
// connections are made in the background.
func (s *Server) Request(from string, m *messages.TreeRequest) {
	g, refusal, answer := s.admit(from, m)
	if g != nil {
		defer s.requests.Done()
		if err := s.begin(g, m); err != nil {
			refusal = err.Error()
		}
	}
	if !answer {
		return
	}
	if refusal != "" {
		level := s.level("refused", m.GetName(), m.GetRail())
		s.log.Log(context.Background(), level, "aggregation group refused",
			"group", groupText(m.GetGroup()), "from", from, "reason", clip(refusal))
	}
	s.send(from, &messages.Rendezvous{Body: &messages.Rendezvous_TreeAnswer{TreeAnswer: &messages.TreeAnswer{
		Group: m.GetGroup(), Refusal: clip(refusal)}}})
}

// Destroy ends a group, if it was asked for by the same node.
func (s *Server) Destroy(from string, m *messages.TreeDestroy) {
	if g := s.group(m.GetGroup()); g != nil && g.asker == from {
		g.end(fmt.Errorf("node %q needs it no more", from))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.past.add(asked{m.GetGroup(), from}, "it was destroyed") // its request may come later
}

// admit reserves what a group takes. Without a group the refusal tells why; a request that was
// answered before is answered again in the same way, but not while the first one is worked on.
func (s *Server) admit(from string, m *messages.TreeRequest) (g *group, refusal string, answer bool) {
	key := asked{m.GetGroup(), from}
	err := s.validate(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	if refusal, ok := s.past.find(key); ok {
		return nil, refusal, true
	}
	known := s.admitted[m.GetGroup()]
	if known != nil && known.asker == from {
		return nil, "", s.group(known.id) == known
	}
	if err == nil {
		err = s.room(m)
	}
	switch {
	case s.closed:
		err = s.closedError()
	case known != nil:
		err = errors.New("the group's id is in use")
	}
	if err != nil {
		s.past.add(key, err.Error())
		return nil, err.Error(), true
	}
	g = s.newGroup(from, m)
	s.admitted[g.id] = g
	s.reserved += g.reserved
	s.requests.Add(1)
	return g, "", true
}

// validate says what no group can be made of.
func (s *Server) validate(m *messages.TreeRequest) error {
	n := len(m.GetMembers())
	switch _, aggregates := s.rails[m.GetRail()]; {
	case m.GetGroup() == 0 || m.GetComm() == 0:
		return errors.New("a group and its communicator need ids other than 0")
	case len(m.GetName()) > view.MaxName:
		return fmt.Errorf("the communicator's name has %d bytes, the limit is %d", len(m.GetName()), view.MaxName)
	case !aggregates:
		return fmt.Errorf("node %q doesn't aggregate on rail %q", s.config.Node, short(m.GetRail()))
	case m.GetBcubeBase() < 2:
		return fmt.Errorf("bcube base %d: must be at least 2", m.GetBcubeBase())
	case n < minMembers || n > maxMembers:
		return fmt.Errorf("%d members are not in %d to %d", n, minMembers, maxMembers)
	case len(m.GetRanks()) != 0 && len(m.GetRanks()) != n:
		return fmt.Errorf("ranks of %d members, there are %d", len(m.GetRanks()), n)
	case int(m.GetSize()) < n || m.GetSize() > maxSize:
		return fmt.Errorf("a communicator of %d ranks: needs %d to %d", m.GetSize(), n, maxSize)
	case len(m.GetHosts()) != 0 && (len(m.GetHosts()) != n || int(m.GetSize()) != n):
		return fmt.Errorf("hosts of %d ranks, the tree has %d of %d", len(m.GetHosts()), n, m.GetSize())
	}
	if m.GetResults() > uint32(sharp.Both) {
		return fmt.Errorf("results in way %d", m.GetResults())
	}
	if err := sharp.CheckShape(int(m.GetWindow()), int(m.GetFragmentBytes())); err != nil {
		return err
	}
	return s.validateMembers(m)
}

func (s *Server) validateMembers(r *messages.TreeRequest) error {
	all := r.GetMembers()
	if r.GetParent() != nil {
		all = append(slices.Clip(all), r.GetParent())
	}
	seen := make(map[string]bool, len(all))
	for i, m := range all {
		who, name := nameOf(r, i), m.GetNode()
		tooLong := func(r *messages.ViewRail) bool {
			return len(r.GetName()) > view.MaxRail || len(r.GetAddr()) > view.MaxAddr
		}
		switch {
		case name == "" || len(name) > view.MaxNode:
			return fmt.Errorf("%s: a node's name needs 1 to %d bytes", who, view.MaxNode)
		case seen[name]:
			return fmt.Errorf("%s: it is a member twice", who)
		case name == s.config.Node:
			return fmt.Errorf("%s is the aggregation node itself: delivery within a node is not supported", who)
		case len(m.GetRails()) > view.MaxRails || slices.ContainsFunc(m.GetRails(), tooLong):
			return fmt.Errorf("%s: its rails are beyond the limits", who)
		}
		seen[name] = true
	}
	return nil
}

// nameOf is a child, by its number, or the parent after them, as reasons show them.
func nameOf(m *messages.TreeRequest, i int) string {
	if i == len(m.GetMembers()) {
		return fmt.Sprintf("the parent, node %q", short(m.GetParent().GetNode()))
	}
	rank, node := rankOf(m, i), short(m.GetMembers()[i].GetNode())
	if rank < 0 {
		return fmt.Sprintf("aggregation node %q", node)
	}
	return fmt.Sprintf("rank %d (node %q)", rank, node)
}

// rankOf is a child's rank, or -1 if it aggregates itself.
func rankOf(m *messages.TreeRequest, child int) int {
	if len(m.GetRanks()) > 0 {
		return int(m.GetRanks()[child]) - 1
	}
	return child
}

// room says why there is no room for another group. The caller holds mu.
func (s *Server) room(m *messages.TreeRequest) error {
	need := reservation(m)
	groups, bytes := 1, need // of the job, with it
	for _, g := range s.admitted {
		if g.job == m.GetJob() {
			groups, bytes = groups+1, bytes+g.reserved
		}
	}
	switch {
	case len(s.admitted) >= s.config.MaxGroups:
		return fmt.Errorf("%d groups are served, the limit is %d", len(s.admitted), s.config.MaxGroups)
	case s.reserved+need > s.config.MemoryLimit:
		return fmt.Errorf("it needs %d bytes, the limit of all groups is %d bytes, %d are reserved", need,
			s.config.MemoryLimit, s.reserved)
	case s.config.JobGroups > 0 && groups > s.config.JobGroups:
		return fmt.Errorf("%d groups of its job are served, the quota is %d", groups-1, s.config.JobGroups)
	case s.config.JobBytes > 0 && bytes > s.config.JobBytes:
		return fmt.Errorf("it needs %d bytes, the quota of a job is %d, %d are reserved for its job", need,
			s.config.JobBytes, bytes-need)
	}
	return nil
}

// windows is how many windows a group's memory has at most: of operands one for each child, of
// what is folded two, and below the root two of results.
func windows(m *messages.TreeRequest) int {
	n := len(m.GetMembers()) + 2
	if m.GetParent() != nil {
		n += 2
	}
	return n
}

// reservation is what a group takes at most, in bytes.
func reservation(m *messages.TreeRequest) int64 {
	return int64(windows(m)) * int64(m.GetWindow()) * int64(m.GetFragmentBytes())
}

// newGroup makes a group of a valid request.
func (s *Server) newGroup(from string, m *messages.TreeRequest) *group {
	n, window := len(m.GetMembers()), int(m.GetWindow())
	g := &group{
		server: s, id: m.GetGroup(), comm: m.GetComm(), job: m.GetJob(), name: m.GetName(), asker: from,
		rail: m.GetRail(), railIndex: s.rails[m.GetRail()], base: int(m.GetBcubeBase()),
		size: int(m.GetSize()), deep: m.GetParent() != nil || int(m.GetSize()) != n, free: m.GetFree(),
		names: make([]string, n), ranks: make([]int, n), peers: make([]*railactors.Peer, n),
		children: make(map[*railactors.Peer]int, n), reserved: reservation(m), done: make(chan struct{}),
		fragments: make([]fragment, window), results: make(map[uint64]*result),
		orders:  make(map[orderKey]order),
		buffers: buffers{bytes: int(m.GetFragmentBytes()), limit: windows(m) * window},
	}
	for i := range g.fragments {
		g.fragments[i].operands = make([][]byte, n)
	}
	if numbers := m.GetHosts(); len(numbers) > 0 {
		g.hosts = schedule.NewHosts(numbers)
	}
	for child := range m.GetMembers() {
		g.names[child], g.ranks[child] = nameOf(m, child), rankOf(m, child)
	}
	g.ctx, g.cancel = context.WithCancelCause(context.Background())
	return g
}

// begin connects the members of an admitted group and makes it known. An error undoes the
// admission.
func (s *Server) begin(g *group, m *messages.TreeRequest) error {
	g.core = sharp.NewNode(sharp.NodeConfig{Children: len(g.peers), Window: len(g.fragments),
		Root: m.GetParent() == nil, Results: g.openCaster(m), Casts: g.heardBy()})
	for child, member := range m.GetMembers() {
		p, err := s.fabric.Connect(railactors.RemoteOf(member))
		if err != nil {
			return s.undo(g, fmt.Errorf("%s: %w", g.names[child], err))
		}
		g.peers[child] = p
		g.children[p] = child
	}
	if m.GetParent() != nil {
		p, err := s.fabric.Connect(railactors.RemoteOf(m.GetParent()))
		if err != nil {
			return s.undo(g, fmt.Errorf("%s: %w", nameOf(m, len(g.peers)), err))
		}
		g.parent = p
		g.vigil = &railactors.Vigil{Peer: p, Rail: g.railIndex, Owes: g.owes,
			Down: func(reason string) { g.end(errors.New(reason)) }}
	}
	if !s.register(g) {
		return s.undo(g, s.closedError())
	}
	s.log.Debug("aggregation group made", "group", groupText(g.id), "communicator", g.name,
		"rail", g.rail, "members", strings.Join(g.names, " "), "reserved bytes", g.reserved)
	s.tell(s.pid, &begin{group: g})
	for p := range g.neighbours() { // one that was lost before the group was known
		if err := p.Lost(); err != nil {
			s.PeerGone(p, err)
		}
	}
	return nil
}

// undo ends a group that nobody knows yet.
func (s *Server) undo(g *group, cause error) error {
	s.mu.Lock()
	s.past.add(asked{g.id, g.asker}, cause.Error())
	s.mu.Unlock()
	g.cancel(cause)
	g.release()
	return cause
}

// connectTimeout is how long all members have to be connected.
const connectTimeout = 10 * time.Second

// awaitMembers waits until all members are connected, or the group ends.
func (g *group) awaitMembers() error {
	ctx, cancel := context.WithTimeoutCause(g.ctx, connectTimeout,
		&fault.TimeoutError{What: "connecting the members", After: connectTimeout})
	defer cancel()
	for p := range g.neighbours() {
		if err := p.WaitReady(ctx); err != nil {
			return err
		}
	}
	if g.parent != nil && g.parent.Missing().Has(g.railIndex) {
		return fmt.Errorf("rail %q to node %q is down", g.rail, g.parent.Node())
	}
	return nil
}

// owes reports whether the parent owes results, or the word that they are settled.
func (g *group) owes() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cause == nil && (g.owed > 0 || g.heldTo > g.settledTo)
}

// asked is who asked for which group.
type asked struct {
	group uint64
	from  string
}

// maxPast bounds the requests that are remembered after their group was refused or has ended.
const maxPast = 256

// past keeps how the last ones are to be answered if they come again. Group ids are used once.
type past struct {
	refusals map[asked]string
	order    [maxPast]asked // a ring
	next     int
}

// add keeps the first refusal of a request.
func (p *past) add(key asked, refusal string) {
	if p.refusals == nil {
		p.refusals = make(map[asked]string)
	}
	if _, ok := p.refusals[key]; ok {
		return
	}
	key.from, refusal = strings.Clone(key.from), clip(refusal)
	delete(p.refusals, p.order[p.next])
	p.refusals[key], p.order[p.next] = refusal, key
	p.next = (p.next + 1) % maxPast
}

func (p *past) find(key asked) (refusal string, ok bool) {
	refusal, ok = p.refusals[key]
	return refusal, ok
}

// clip makes a text fit for a message: protobuf refuses one that isn't UTF-8.
func clip(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), view.MaxReason)], "")
}

// short keeps a name of another node's within bounds.
func short(name string) string { return name[:min(len(name), view.MaxName)] }

// groupText is a group's id as logs and reasons show it.
func groupText(id uint64) string { return fmt.Sprintf("%016x", id) }
