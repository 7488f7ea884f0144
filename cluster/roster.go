package cluster

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"time"
)

// EventKind says what became of a member.
type EventKind uint8

// The kinds of event.
const (
	Joined EventKind = 1 + iota
	Left             // it said so
	Failed           // it does not answer
)

func (k EventKind) String() string {
	switch k {
	case Joined:
		return "joined"
	case Left:
		return "left"
	case Failed:
		return "failed"
	}
	return "invalid"
}

// Event is news of a member.
type Event struct {
	Kind   EventKind
	Member Member
}

const (
	maxLost    = 64               // failed members that are searched for
	lostMemory = 10 * time.Minute // and for how long
)

// roster knows which processes live, by memberlist, and which the handler was told of. There is one
// reported process per node at a time: a second one of the same name waits until the
// first is gone, because until then nobody can tell a restart from a conflict.
type roster struct {
	self Member

	mu       sync.Mutex
	living   map[string]map[uint64]Member // node → incarnation → process; this node's own excluded
	reported map[string]Member            // by node
	farewell map[string]bool              // processes that said goodbye since nodes were settled
	lost     map[string]lostMember        // failed and not back, by node
	doubted  map[string]doubted           // given up by memberlist and not by us yet, by process
	dirty    map[string]bool              // nodes to be settled
	signal   func()                       // tells the dispatcher; must not block
}

type lostMember struct {
	addr  string
	since time.Time
}

func newRoster(self Member, signal func()) *roster {
	return &roster{
		self: self, signal: signal,
		living: map[string]map[uint64]Member{}, reported: map[string]Member{},
		farewell: map[string]bool{}, lost: map[string]lostMember{}, dirty: map[string]bool{},
		doubted: map[string]doubted{},
	}
}

// up notes a living process. Called under memberlist's lock.
func (r *roster) up(m Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.process() == r.self.process() {
		return
	}
	if r.living[m.Node] == nil {
		r.living[m.Node] = map[uint64]Member{}
	}
	r.living[m.Node][m.Incarnation] = m
	delete(r.doubted, m.process())
	r.dirty[m.Node] = true
	r.signal()
}

// down notes that memberlist gave a process up. Called under memberlist's lock.
func (r *roster) down(m Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if grace := r.grace(); grace > 0 {
		r.doubted[m.process()] = doubted{m, time.Now().Add(grace)}
		time.AfterFunc(grace, r.signal)
		return
	}
	r.drop(m)
}

// drop forgets a process that failed. The caller holds mu.
func (r *roster) drop(m Member) {
	delete(r.doubted, m.process())
	r.remove(m)
}

// goodbye notes that a process said it leaves. Called under memberlist's lock.
func (r *roster) goodbye(m Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.living[m.Node][m.Incarnation]; !ok {
		return
	}
	r.farewell[m.process()] = true
	r.remove(m)
}

// doubted is a process that memberlist gave up. Its own word to the contrary may be on the way.
type doubted struct {
	member Member
	until  time.Time
}

// Among so many nodes a failure found by gossip's probes is told after a grace. The probes' patience
// suits a few nodes that answer at once. Among many some are always late, and a wrong "failed" ends
// what they take part in. The grace is what memberlist's values for a LAN would take longer.
const (
	graceUnit = 4 * time.Second // times the decimal logarithm of the number of nodes
)

// grace is how long a failure is doubted. The caller holds mu.
func (r *roster) grace() time.Duration {
	n := len(r.living)
	if n < ManyNodes {
		return 0
	}
	return time.Duration(math.Log10(float64(n)) * float64(graceUnit))
}

// undoubt drops the processes that have not come back in time. The caller holds mu.
func (r *roster) undoubt(now time.Time) {
	for _, d := range r.doubted {
		if !d.until.After(now) {
			r.drop(d.member)
		}
	}
}

func (r *roster) remove(m Member) {
	delete(r.living[m.Node], m.Incarnation)
	if len(r.living[m.Node]) == 0 {
		delete(r.living, m.Node)
	}
	r.dirty[m.Node] = true
	r.signal()
}

// settle returns the events that are due, in order. What went back and forth meanwhile is left out.
func (r *roster) settle(now time.Time) []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.undoubt(now)
	nodes := slices.Sorted(maps.Keys(r.dirty))
	clear(r.dirty)
	var events []Event
	for _, node := range nodes {
		if node == r.self.Node {
			continue // rivals are no members
		}
		events = append(events, r.settleNode(node, now)...)
	}
	clear(r.farewell)
	return events
}

func (r *roster) settleNode(node string, now time.Time) []Event {
	var events []Event
	old, known := r.reported[node]
	if known {
		if _, ok := r.living[node][old.Incarnation]; ok && !r.replaced(old) {
			return nil
		}
		delete(r.reported, node)
		kind := Failed
		if r.farewell[old.process()] {
			kind = Left
		} else {
			r.miss(old, now)
		}
		events = append(events, Event{kind, old})
	}
	if next, ok := r.latest(node); ok {
		r.reported[node] = next
		delete(r.lost, node)
		events = append(events, Event{Joined, next})
	}
	return events
}

// replaced reports whether a later process of the node has this one's address, which
// proves this one dead before the probes do.
func (r *roster) replaced(old Member) bool {
	for incarnation, m := range r.living[old.Node] {
		if incarnation > old.Incarnation && m.Addr == old.Addr {
			return true
		}
	}
	return false
}

func (r *roster) latest(node string) (m Member, ok bool) {
	for _, p := range r.living[node] {
		if !ok || p.Incarnation > m.Incarnation {
			m, ok = p, true
		}
	}
	return m, ok
}

func (r *roster) miss(m Member, now time.Time) {
	for node, l := range r.lost {
		if now.Sub(l.since) > lostMemory {
			delete(r.lost, node)
		}
	}
	if len(r.lost) < maxLost {
		r.lost[m.Node] = lostMember{m.Addr, now}
	}
}

// members lists the living processes and this one, by node: those that were reported, and those
// that are about to be.
func (r *roster) members() []Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := append(make([]Member, 0, 1+len(r.reported)), r.self)
	for node, m := range r.reported {
		if !r.dirty[node] {
			all = append(all, m)
		}
	}
	for node := range r.dirty {
		if m, ok := r.latest(node); ok && node != r.self.Node {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b Member) int { return cmp.Compare(a.Node, b.Node) })
	return all
}

// member returns the reported process of a node.
func (r *roster) member(node string) (Member, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, ok := r.reported[node]
	return m, ok
}

// rivals lists other processes under this node's own name.
func (r *roster) rivals() []Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.living[r.self.Node]))
}

// alone reports whether no other process is known.
func (r *roster) alone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.living) == 0
}

// processes are the names of the living processes, of this one, and of the members that the handler
// was told of.
func (r *roster) processes() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := map[string]bool{r.self.process(): true}
	for _, m := range r.reported {
		names[m.process()] = true
	}
	for _, processes := range r.living {
		for _, m := range processes {
			names[m.process()] = true
		}
	}
	return names
}

// addresses are those of the living processes, this one included.
func (r *roster) addresses() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	lives := map[string]bool{r.self.Addr: true}
	for _, processes := range r.living {
		for _, m := range processes {
			lives[m.Addr] = true
		}
	}
	return lives
}

// missing lists the addresses of seeds and lost members that belong to no living process.
func (r *roster) missing(seeds []string, now time.Time) []string {
	lives := r.addresses()
	r.mu.Lock()
	defer r.mu.Unlock()
	var addrs []string
	add := func(addr string) {
		if !lives[addr] && !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	for _, s := range seeds {
		add(s)
	}
	for _, node := range slices.Sorted(maps.Keys(r.lost)) {
		if l := r.lost[node]; now.Sub(l.since) <= lostMemory {
			add(l.addr)
		}
	}
	return addrs
}
