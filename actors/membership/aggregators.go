package membership

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/messages"
)

// Aggregator is a node of the cluster and what it aggregates for others.
type Aggregator struct {
	Node  string
	Rack  string   // where it stands
	Rails []string // on which it aggregates; none: on none
	// Limits of all groups and of one job's; 0: none for a job alone.
	MemoryLimit, JobMemory int64 // bytes
	MaxGroups, JobGroups   int
	Groups                 []TreeGroup // by communicator and rail
}

// TreeGroup is an aggregation node's part in the tree of a communicator.
type TreeGroup struct {
	Group         uint64 // the same at all nodes of the tree
	Job           uint64 // the same for a communicator and all that are derived from it
	Communicator  string
	Rail          string
	Parent        string   // the node above; empty at the root
	Children      []string // ranks and nodes, as text
	ReservedBytes int64
	Fragments     uint64 // folded so far
	Bytes         uint64 // of their operands
}

// queries are the questions of this node that are not answered yet.
type queries struct {
	mu   sync.Mutex
	open map[uint64]chan<- report
}

type report struct {
	from string
	body *messages.TreeReport
}

// answered hands a report to whoever has asked. One that nobody waits for is late.
func (q *queries) answered(from string, m *messages.TreeReport) {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case q.open[m.GetId()] <- report{from, m}:
	default:
	}
}

// Aggregators asks all living nodes what they aggregate. When the context ends, or the node closes,
// the error names those that have not answered, and the others' answers are returned with it.
func (n *Node) Aggregators(ctx context.Context) ([]Aggregator, error) {
	err := context.Cause(ctx)
	if n.ended() != nil {
		err = fmt.Errorf("node %q: %w", n.config.Node, fault.ErrClosed)
	}
	if err == nil {
		err = n.gossip.WaitJoined(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("asking what is aggregated: %w", err)
	}
	const askAgain = 200 * time.Millisecond // gossip may lose a question
	var b [8]byte
	rand.Read(b[:]) // never fails
	id := max(1, binary.LittleEndian.Uint64(b[:]))
	reports := make(chan report, 64)
	n.queries.mu.Lock()
	if n.queries.open == nil {
		n.queries.open = make(map[uint64]chan<- report)
	}
	n.queries.open[id] = reports
	n.queries.mu.Unlock()
	defer func() {
		n.queries.mu.Lock()
		delete(n.queries.open, id)
		n.queries.mu.Unlock()
	}()
	answers := map[string]*messages.TreeReport{n.config.Node: n.serves.Report(id)}
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for {
		missing := n.silent(answers)
		if len(missing) == 0 {
			return n.aggregators(answers), nil
		}
		for _, node := range missing {
			n.broadcast(node, &messages.Rendezvous{Body: &messages.Rendezvous_TreeQuery{
				TreeQuery: &messages.TreeQuery{Id: id}}})
		}
		for asking := true; asking; {
			select {
			case r := <-reports:
				answers[r.from] = r.body
				asking = len(n.silent(answers)) > 0
			case <-again.C:
				asking = false
			case <-ctx.Done():
				if missing = n.silent(answers); len(missing) == 0 { // they have left
					return n.aggregators(answers), nil
				}
				return n.aggregators(answers), fmt.Errorf("asking what is aggregated: no answer of %s: %w",
					strings.Join(missing, ", "), context.Cause(ctx))
			case <-n.closing:
				return n.aggregators(answers), fmt.Errorf("asking what is aggregated: node %q: %w", n.config.Node,
					fault.ErrClosed)
			}
		}
	}
}

// silent are the living nodes that have not answered.
func (n *Node) silent(answers map[string]*messages.TreeReport) (missing []string) {
	for _, m := range n.gossip.Members() {
		if answers[m.Node] == nil {
			missing = append(missing, m.Node)
		}
	}
	slices.Sort(missing)
	return missing
}

// aggregators reads what living nodes have answered, by node.
func (n *Node) aggregators(answers map[string]*messages.TreeReport) (all []Aggregator) {
	for _, m := range n.gossip.Members() {
		r := answers[m.Node]
		if r == nil {
			continue
		}
		all = append(all, aggregator(m.Node, m.Path, r))
	}
	slices.SortFunc(all, func(a, b Aggregator) int { return strings.Compare(a.Node, b.Node) })
	return all
}

// aggregator reads what a node has answered.
func aggregator(node, path string, r *messages.TreeReport) Aggregator {
	a := Aggregator{Node: node, Rack: path, Rails: printable(r.GetRails()), MemoryLimit: r.GetMemory(),
		JobMemory: r.GetJobMemory(), MaxGroups: int(r.GetMaxGroups()), JobGroups: int(r.GetJobGroups())}
	for _, g := range r.GetGroups() {
		names := printable([]string{g.GetCommunicator(), g.GetRail(), g.GetParent()})
		a.Groups = append(a.Groups, TreeGroup{Group: g.GetGroup(), Job: g.GetJob(), Communicator: names[0],
			Rail: names[1], Parent: names[2], Children: printable(g.GetMembers()),
			ReservedBytes: g.GetReserved(), Fragments: g.GetFragments(), Bytes: g.GetBytes()})
	}
	return a
}

// printable makes texts of other nodes fit for a terminal.
func printable(texts []string) (clean []string) {
	for _, s := range texts {
		clean = append(clean, strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) {
				return '?'
			}
			return r
		}, s))
	}
	return clean
}
