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
	open map[uint64]*query
}

// query is one question, under the mutex of queries as long as it is open.
type query struct {
	awaited  map[string]bool // living nodes that have not answered
	answers  map[string]*messages.TreeReport
	complete chan struct{} // of capacity 1: the last one has
}

// answered keeps a report for whoever has asked. One that nobody waits for is late.
func (q *queries) answered(from string, m *messages.TreeReport) {
	q.mu.Lock()
	defer q.mu.Unlock()
	asked := q.open[m.GetId()]
	if asked == nil || !asked.awaited[from] {
		return
	}
	delete(asked.awaited, from)
	asked.answers[from] = m
	if len(asked.awaited) == 0 {
		select {
		case asked.complete <- struct{}{}:
		default:
		}
	}
}

// ask opens a question.
func (q *queries) ask(id uint64, asked *query) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open == nil {
		q.open = make(map[uint64]*query)
	}
	q.open[id] = asked
}

// end closes it: its answers change no more.
func (q *queries) end(id uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.open, id)
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
	var b [8]byte
	rand.Read(b[:]) // never fails
	id := max(1, binary.LittleEndian.Uint64(b[:]))
	q := &query{answers: map[string]*messages.TreeReport{n.config.Node: n.serves.Report(id)}, complete: make(chan struct{}, 1)}
	n.queries.ask(id, q)
	err = n.pursue(ctx, id, q)
	n.queries.end(id)
	if err != nil {
		err = fmt.Errorf("asking what is aggregated: %w", err)
	}
	return n.aggregators(q.answers), err
}

// askAgain is the pause between two questions: gossip may lose one.
const askAgain = 200 * time.Millisecond

// pursue asks until all living nodes have answered.
func (n *Node) pursue(ctx context.Context, id uint64, q *query) error {
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for {
		missing := n.silent(q)
		if len(missing) == 0 {
			return nil
		}
		for _, node := range missing {
			n.broadcast(node, &messages.Rendezvous{Body: &messages.Rendezvous_TreeQuery{
				TreeQuery: &messages.TreeQuery{Id: id}}})
		}
		select {
		case <-q.complete:
		case <-again.C:
		case <-ctx.Done():
			if missing = n.silent(q); len(missing) == 0 { // they have left
				return nil
			}
			return fmt.Errorf("no answer of %s: %w", fault.List(missing, fault.MaxListed), context.Cause(ctx))
		case <-n.closing:
			return fmt.Errorf("node %q: %w", n.config.Node, fault.ErrClosed)
		}
	}
}

// silent are the living nodes that have not answered: those that are waited for from now on.
func (n *Node) silent(q *query) (missing []string) {
	members := n.gossip.Members() // by name
	n.queries.mu.Lock()
	defer n.queries.mu.Unlock()
	q.awaited = make(map[string]bool)
	for _, m := range members {
		if q.answers[m.Node] == nil {
			q.awaited[m.Node] = true
			missing = append(missing, m.Node)
		}
	}
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
