package membership

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/memory"
)

// Status is what a node is and did until now: what its metrics, its page and node status show.
// Counters begin with the node's start and never decrease. Operations are counted where the node is
// watched (Config.HTTP of the root package).
type Status struct {
	Node        string
	Cluster     string
	Rack        string `json:",omitempty"`
	Incarnation uint64 `json:",string"`
	// Time is that of the clock when the node started, and how long it has run since. So a clock that
	// is set meanwhile changes no rate, and not for how long the node is up.
	Time    time.Time
	Started time.Time
	// Obstacles are why the node is not ready to be used; none: it is.
	Obstacles []string `json:",omitempty"`
	// Certificate is when the node's ends; nil: it has none.
	Certificate *time.Time `json:",omitempty"`

	Members       []MemberStatus
	Rails         []railactors.RailStatus
	Pairs         []railactors.PairStatus `json:",omitempty"`
	Memory        memory.Stats
	Gossip        GossipStatus
	Communicators []CommunicatorStatus `json:",omitempty"`
	Counts        []CommunicatorCounts `json:",omitempty"`
	Failovers     []FailoverStatus     `json:",omitempty"` // by rail
	EventCounts   map[string]uint64    `json:",omitempty"`
	Events        []EventRecord        `json:",omitempty"` // the last ones, the oldest first
	Aggregates    *Aggregator          `json:",omitempty"`
}

// MemberStatus is a living node as gossip knows it.
type MemberStatus struct {
	Node string
	Addr string
	Rack string `json:",omitempty"`
}

// GossipStatus counts messages that gossip has lost or refused.
type GossipStatus struct {
	Undecodable uint64
	Dropped     uint64
	Stale       uint64
	Unsent      uint64
}

// CommunicatorCounts is what the communicators of one name did, those that are closed included.
type CommunicatorCounts struct {
	Name   string
	Formed uint64
	Broken uint64
	Tables uint64         // that came into force
	Counts []engine.Count `json:",omitempty"`
}

// FailoverStatus is what became of a rail's failures.
type FailoverStatus struct {
	Rail      string
	Failovers engine.Distribution // from giving a connection up until its frames had gone to others
	Outages   engine.Distribution // from the loss of a connection until it was made again
}

// EventRecord is an event with its number, as text.
type EventRecord struct {
	ID           uint64 // 1, 2, …
	Time         time.Time
	Kind         string
	Node         string `json:",omitempty"`
	Rail         string `json:",omitempty"`
	Communicator string `json:",omitempty"`
	Rank         int
	Version      uint32           `json:",omitempty"`
	Err          string           `json:",omitempty"`
	Repaired     int              `json:",omitempty"`
	Unacked      int64            `json:",omitempty"`
	Waiting      int64            `json:",omitempty"`
	Resent       int64            `json:",omitempty"`
	To           map[string]int64 `json:",omitempty"`
}

// Detail says how much a Status is to hold.
type Detail int

// The details.
const (
	Brief   Detail = iota // what other nodes ask for: without pairs, distributions and tables
	Counted               // all but what balancers know
	Full                  // all: balancers are asked
)

// Status takes a snapshot. It takes the locks of peers and groups for a moment each, one after the
// other. The context bounds what balancers are asked.
func (n *node) Status(ctx context.Context, detail Detail) Status {
	c := &n.config
	s := Status{Node: c.Node, Cluster: c.Cluster.Cluster, Rack: c.Cluster.Path, Incarnation: c.Incarnation,
		Time: n.started.Add(time.Since(n.started)), Started: n.started, Obstacles: n.Obstacles(), Memory: n.shared.Engine.Pool.Stats(),
		Rails: n.fabric.Rails(), Failovers: n.events.failures.read(), Events: n.events.last(), EventCounts: n.events.counted()}
	if keys := c.Rails.Keys; keys != nil {
		until := keys.Current().Until()
		s.Certificate = &until
	}
	if shm, ok := n.fabric.MemoryStatus(); ok {
		s.Rails = append(s.Rails, shm)
	}
	if g := n.cast.Load(); g != nil {
		for _, m := range g.Members() {
			s.Members = append(s.Members, MemberStatus{m.Node, m.Addr, m.Path})
		}
		s.Gossip = GossipStatus(g.Stats())
	}
	for _, m := range *n.groups.Load() {
		if m.group.Announced() {
			s.Communicators = append(s.Communicators, n.describe(ctx, m, detail))
		}
	}
	slices.SortFunc(s.Communicators, func(a, b CommunicatorStatus) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	if detail == Brief {
		s.Communicators = s.Communicators[:min(len(s.Communicators), maxBriefCommunicators)]
		s.Members, s.Events = nil, s.Events[max(0, len(s.Events)-maxBriefEvents):]
	} else {
		s.Pairs = n.fabric.Pairs()
	}
	for _, m := range n.shared.Engine.Meters.All() {
		k := CommunicatorCounts{Name: m.Name, Formed: m.Formed.Load(), Broken: m.Broken.Load(),
			Tables: m.Tables.Load(), Counts: m.Counts()}
		if detail == Brief {
			for i := range k.Counts {
				k.Counts[i].Took.Buckets = nil
			}
		}
		s.Counts = append(s.Counts, k)
	}
	if len(c.Aggregation.Rails) > 0 {
		s.Aggregates = n.aggregates()
	}
	return s
}

// What a node tells others of itself at most.
const (
	maxBriefCommunicators = 16
	maxBriefEvents        = 16
)

// Obstacles are why the node is not ready to be used: it closes, the cluster was not reached or has
// turned it down, its certificate has ended, another node has its name, or no rail is up.
func (n *node) Obstacles() (all []string) {
	errs := []error{n.ended(), n.fabric.Failed(), n.unbelieved()}
	if g := n.cast.Load(); g != nil {
		errs = append(errs, g.Err(), g.Unjoined(), g.Rival())
	}
	for _, err := range errs {
		if err != nil {
			all = append(all, err.Error())
		}
	}
	up := func(r railactors.RailStatus) bool { return r.Up }
	if !slices.ContainsFunc(n.fabric.Rails(), up) {
		all = append(all, "no rail is up")
	}
	return all
}

// unbelieved is why the others don't believe this node's certificate, if it has one.
func (n *node) unbelieved() error {
	if keys := n.config.Rails.Keys; keys != nil {
		return keys.Current().Fault()
	}
	return nil
}

// Closing is closed when the node's end begins.
func (n *node) Closing() <-chan struct{} { return n.closing }

// aggregates is what this node does for others.
func (n *node) aggregates() *Aggregator {
	r := n.serves.Report(0)
	a := aggregator(n.config.Node, n.config.Cluster.Path, r)
	return &a
}
