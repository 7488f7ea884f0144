package membership

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/polyrail/polyrail/actors/communicator"
	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/collective/table"
)

// CommunicatorStatus is a communicator of a node that is not closed.
type CommunicatorStatus struct {
	ID       uint64 `json:",string"` // on the wire
	Name     string
	Rank     int
	Size     int
	Nodes    []string `json:",omitempty"` // by rank
	Seq      uint64   // of the last operation
	InFlight int
	Err      string `json:",omitempty"` // what broke it
	Degraded bool   // a rail to a member is down
	Version  uint32
	// Classes are the table by which operations are divided, ascending, and why; Origin says where
	// it comes from.
	Origin  string        `json:",omitempty"`
	Classes []ClassStatus `json:",omitempty"`
	Trees   []TreeStatus  `json:",omitempty"`
}

// ClassStatus is how operations of a size class are divided.
type ClassStatus struct {
	Family    string
	MaxBytes  int64 // 0: all larger ones
	Algorithm string
	Shares    []float64 // by rail, parts of 1
	// Reason is why, as far as this node knows: rank 0 decides.
	Reason string `json:",omitempty"`
	// By the balancer's model, on rank 0: what an operation takes, and on the best rail alone.
	Now   time.Duration `json:",omitempty"`
	Alone time.Duration `json:",omitempty"`
}

// TreeStatus is an aggregation tree that a rail has.
type TreeStatus struct {
	Rail string
	Node string // that this rank sends to
}

// describe tells of one communicator.
func (n *node) describe(ctx context.Context, m *member, detail Detail) CommunicatorStatus {
	g := m.group
	s := CommunicatorStatus{ID: g.ID, Name: g.Name, Rank: int(g.Rank), Size: g.Size, Seq: g.Seq(),
		InFlight: g.InFlight(), Degraded: g.Missing() != 0}
	if err := g.Err(); err != nil {
		s.Err = err.Error()
	}
	t := g.Table.Load()
	if t != nil {
		s.Version = t.Version
	}
	if t == nil {
		return s
	}
	for _, id := range t.Trees { // those that were given up are remembered for a while
		if tree := g.Tree(id); tree != nil {
			s.Trees = append(s.Trees, TreeStatus{n.fabric.RailName(tree.Rail), tree.Node.Node()})
		}
	}
	if detail == Brief {
		return s
	}
	s.Nodes = g.Nodes
	n.explain(ctx, g, t, &s, detail)
	return s
}

// explain tells how operations are divided, and why.
func (n *node) explain(ctx context.Context, g *communicator.Group, t *table.Table, s *CommunicatorStatus,
	detail Detail) {
	s.Origin = fmt.Sprintf("decided by rank 0 (node %s)", g.Nodes[0])
	if !g.Measured() {
		s.Origin = "configured"
	}
	if detail == Full && g.Rank == 0 && g.Measured() && g.Err() == nil {
		r, err := g.Balance.Report(ctx)
		switch {
		case err != nil:
		case r.Static:
			s.Origin = "set by a caller"
		case len(r.Classes) > 0:
			s.Origin = "measured"
			s.Classes = n.classes(table.AllReduces, r.Classes)
			for _, f := range r.Others {
				s.Classes = append(s.Classes, n.classes(f.Family, f.Classes)...)
			}
			return
		}
	}
	for i := range t.Entries {
		e := &t.Entries[i]
		sum := 0.0
		for _, w := range e.Weights {
			sum += float64(w)
		}
		c := ClassStatus{Family: e.Family.String(), MaxBytes: e.MaxBytes, Algorithm: e.Algorithm.String(),
			Reason: s.Origin}
		for _, w := range e.Weights {
			c.Shares = append(c.Shares, float64(w)/max(sum, 1))
		}
		s.Classes = append(s.Classes, c)
	}
}

// classes are size classes as rank 0's balancer knows them.
func (n *node) classes(f table.Family, classes []balance.ClassReport) (all []ClassStatus) {
	for i := range classes {
		c := &classes[i]
		all = append(all, ClassStatus{Family: f.String(), MaxBytes: c.Class.MaxBytes(),
			Algorithm: c.Algorithm.String(), Shares: c.Shares, Reason: reason(c, n.fabric.RailName), Now: c.Now, Alone: c.Alone})
	}
	return all
}

// reason says in words why a class is divided as it is.
func reason(c *balance.ClassReport, rail func(index int) string) string {
	var words []string
	carrier := slices.IndexFunc(c.Shares, func(share float64) bool { return share > 0 })
	switch {
	case c.Hot():
		words = append(words, fmt.Sprintf("%.2f × the speed of rail %s alone", float64(c.Alone)/float64(max(c.Now, 1)), rail(c.BestRail)))
	case carrier == c.BestRail:
		words = append(words, fmt.Sprintf("rail %s alone is fastest", rail(carrier)))
	default: // the difference is too small, or too new, to change a table
		words = append(words, fmt.Sprintf("rail %s alone, rail %s may be faster", rail(carrier), rail(c.BestRail)))
	}
	if c.Treed {
		words = append(words, "over its tree")
	}
	switch {
	case c.Sets == 0:
		words = append(words, "by the probe")
	case c.Settled:
		words = append(words, fmt.Sprintf("settled after %d windows", c.Sets))
	default:
		words = append(words, fmt.Sprintf("settling, %d windows", c.Sets))
	}
	return strings.Join(words, "; ")
}
