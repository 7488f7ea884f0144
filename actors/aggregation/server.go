package aggregation

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/reminder"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
)

// DefaultMaxGroups is Config.MaxGroups where that is 0.
const DefaultMaxGroups = 64

// Config is what a Server needs to know.
type Config struct {
	Node        string   // this node's name
	Rails       []string // on which it aggregates
	MemoryLimit int64    // bytes of operands and results of all groups
	MaxGroups   int      // served at a time; 0: DefaultMaxGroups
	// Of one job, a communicator and those that are derived from it: bytes and groups; 0: as many
	// as there are.
	JobBytes  int64
	JobGroups int
}

// Server serves the groups that other nodes ask this one for. All its methods may be called on any
// goroutine that holds no lock of a peer; only Close waits.
type Server struct {
	config   Config
	fabric   *railactors.Fabric
	system   *actor.ActorSystem
	log      *slog.Logger
	send     func(to string, m *messages.Rendezvous)
	rails    map[string]int                    // that it aggregates on: indices in frames, by name
	pid      *actor.PID                        // of the supervisor
	groups   atomic.Pointer[map[uint64]*group] // that are served, by id; replaced, never changed
	requests sync.WaitGroup                    // under way
	closing  sync.Once
	actors   sync.WaitGroup // of groups

	// No lock of a group is taken under mu, and no peer is called.
	mu       sync.Mutex
	closed   bool
	admitted map[uint64]*group // that have memory reserved, by id
	reserved int64             // bytes
	past     past
	told     reminder.Reminders // why groups are refused, and end before they have served
}

// level is that of a line about a group that serves nobody: others ask for the next one at once.
func (s *Server) level(about, communicator, rail string) slog.Level {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told.Due(about+" "+rail+" "+communicator, time.Now()) {
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// New starts the server of a node. A rail of the configuration that the fabric lacks is left out.
// send carries rendezvous messages to other nodes; it must not block, and may lose them.
func New(c Config, fabric *railactors.Fabric, system *actor.ActorSystem, log *slog.Logger,
	send func(to string, m *messages.Rendezvous)) *Server {
	c.MaxGroups = cmp.Or(c.MaxGroups, DefaultMaxGroups)
	s := &Server{config: c, fabric: fabric, system: system, log: log, send: send,
		rails: make(map[string]int), admitted: make(map[uint64]*group)}
	s.groups.Store(&map[uint64]*group{})
	for i, r := range fabric.Rails() {
		if slices.Contains(c.Rails, r.Name) {
			s.rails[r.Name] = i
		}
	}
	s.pid = system.Root.SpawnPrefix(s.supervisorProps(), "aggregation")
	return s
}

// Seek answers a node that looks for aggregation nodes of a rail.
func (s *Server) Seek(from string, m *messages.TreeSeek) {
	if _, ok := s.rails[m.GetRail()]; !ok {
		return
	}
	offer := &messages.TreeOffer{Rail: m.GetRail(), Groups: uint32(len(*s.groups.Load())),
		Rails: railactors.RailsOf(s.fabric.Addresses())}
	s.send(from, &messages.Rendezvous{Body: &messages.Rendezvous_TreeOffer{TreeOffer: offer}})
}

func (s *Server) group(id uint64) *group { return (*s.groups.Load())[id] }

// Land answers a reader: where does this operand go? Frames of a group that isn't served are
// dropped: it may have ended while they were on their way. Their sender is told: it may not have
// heard of the end, and would wait for the sum.
func (s *Server) Land(from *railactors.Peer, _ int, h *wire.Header) (railactors.Landing, error) {
	if g := s.group(h.Group); g != nil {
		return g.land(from, h)
	}
	if err := from.SendControl(revoked(h.Comm, h.Group, "the group isn't served here", false)); err != nil {
		s.log.Debug("operand of an unknown aggregation group dropped", "group", groupText(h.Group),
			"from", from.Node(), "error", err)
	}
	return railactors.Landing{}, nil
}

// Takes reports whether a frame is for this server: of a group's child, or of its parent here.
func (s *Server) Takes(h *wire.Header) bool {
	return h.Group != 0 && (h.Step != wire.TreeDown || s.group(h.Group) != nil)
}

// Granted takes a notice of flow control: how many responses a child has, or everybody.
func (s *Server) Granted(from *railactors.Peer, h *wire.Header) error {
	if g := s.group(h.Group); g != nil {
		return g.told(from, h)
	}
	return nil
}

// Revoked ends a group that a neighbour serves no more, or that a rank has given up, and reports
// whether it is one of this server's.
func (s *Server) Revoked(from *railactors.Peer, m *messages.TreeRevoked) bool {
	g := s.group(m.GetGroup())
	if g == nil {
		return false
	}
	child, below := g.children[from]
	if !below && from != g.parent {
		return true
	}
	does := "serves"
	if below && g.ranks[child] >= 0 {
		does = "uses"
	}
	text := fmt.Sprintf("node %q %s it no more: %s", from.Node(), does, clip(m.GetReason()))
	if m.GetMismatch() {
		g.end(&disagreement{clip(m.GetReason())})
	} else {
		g.end(errors.New(text))
	}
	return true
}

// RailDown ends the groups whose parent can't be reached over their rail any more. Children that
// can't reach this node end theirs themselves.
func (s *Server) RailDown(node, rail string, err error) {
	for _, g := range *s.groups.Load() {
		if g.parent != nil && g.parent.Node() == node && g.rail == rail {
			g.end(fmt.Errorf("rail %q to node %q is down: %w", rail, node, err))
		}
	}
}

// PeerGone ends the groups that a node was a neighbour in: nothing is heard of it any more.
func (s *Server) PeerGone(p *railactors.Peer, err error) {
	for _, g := range *s.groups.Load() {
		if child, ok := g.children[p]; ok {
			g.end(fmt.Errorf("%s is gone: %w", g.names[child], err))
		} else if p == g.parent {
			g.end(fmt.Errorf("the parent, node %q, is gone: %w", p.Node(), err))
		}
	}
}

// GroupStatus is what a group is and did.
type GroupStatus struct {
	Group         uint64 // its id
	Job           uint64 // the communicator that its own is derived from, or that one itself
	Communicator  string
	Rail          string
	Parent        string   // node; empty at the root
	Members       []string // its children; the slice is shared
	ReservedBytes int64    // of operands and results, at most
	Fragments     uint64   // folded
	FoldedBytes   uint64   // of the operands of these
}

// Groups lists the groups that are served, by communicator and rail.
func (s *Server) Groups() []GroupStatus {
	var all []GroupStatus
	for _, g := range *s.groups.Load() {
		all = append(all, g.status())
	}
	slices.SortFunc(all, func(a, b GroupStatus) int {
		return cmp.Or(cmp.Compare(a.Communicator, b.Communicator), cmp.Compare(a.Rail, b.Rail),
			cmp.Compare(a.Group, b.Group))
	})
	return all
}

// Report answers a node that asks what is aggregated here.
func (s *Server) Report(id uint64) *messages.TreeReport {
	r := &messages.TreeReport{Id: id, Rails: slices.Sorted(maps.Keys(s.rails)), Memory: s.config.MemoryLimit,
		MaxGroups: uint32(s.config.MaxGroups), JobMemory: s.config.JobBytes, JobGroups: uint32(s.config.JobGroups)}
	for _, g := range s.Groups() {
		r.Groups = append(r.Groups, &messages.TreeGroup{Group: g.Group, Job: g.Job, Communicator: g.Communicator,
			Rail: g.Rail, Parent: g.Parent, Members: g.Members, Reserved: g.ReservedBytes,
			Fragments: g.Fragments, Bytes: g.FoldedBytes})
	}
	return r
}

// Close ends all groups, tells their members, and returns when nothing of them is left. The fabric
// is closed after it.
func (s *Server) Close() { s.closing.Do(s.close) }

func (s *Server) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.requests.Wait() // no group is added any more
	for _, g := range *s.groups.Load() {
		g.end(s.closedError())
	}
	s.mu.Lock()
	left := slices.Collect(maps.Values(s.admitted))
	s.mu.Unlock()
	for _, g := range left {
		<-g.done
	}
	s.actors.Wait() // their parent would send them another stop
	if err := s.system.Root.StopFuture(s.pid).Wait(); err != nil {
		s.log.Warn("actor did not stop", "actor", s.pid.GetId(), "error", err)
	}
}

func (s *Server) closedError() error {
	return fmt.Errorf("node %q: %w", s.config.Node, fault.ErrClosed)
}

// register makes a group's frames known. False if the server closes.
func (s *Server) register(g *group) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.replaceLocked(func(groups map[uint64]*group) { groups[g.id] = g })
	return true
}

// unregister drops what still comes for a group, and refuses to make it again.
func (s *Server) unregister(g *group, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replaceLocked(func(groups map[uint64]*group) { delete(groups, g.id) })
	s.past.add(asked{g.id, g.asker}, fmt.Sprintf("it has ended: %v", cause))
}

func (s *Server) replaceLocked(change func(map[uint64]*group)) {
	groups := maps.Clone(*s.groups.Load())
	change(groups)
	s.groups.Store(&groups)
}

// release gives a group's reservation back.
func (s *Server) release(g *group) {
	s.mu.Lock()
	delete(s.admitted, g.id)
	s.reserved -= g.reserved
	s.mu.Unlock()
}
