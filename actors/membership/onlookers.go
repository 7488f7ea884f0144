package membership

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/polyrail/polyrail/messages"
)

// This file brings what other nodes are and did to those who look at this one. Nodes are asked by
// gossip: one that shows itself to nobody answers too. Nothing is asked while nobody looks.

const (
	maxReportBytes = 64 << 10
	// reportFresh is how long an answer serves all who ask: a node that is asked by many, or by one
	// in a loop, describes itself five times a second.
	reportFresh = 200 * time.Millisecond
)

// onlookers are what is known of other nodes, and this node's last answer.
type onlookers struct {
	mu      sync.Mutex
	id      uint64          // of the last questions …
	awaited map[string]bool // … and whom they went to
	seen    map[string]Neighbour
	asked   time.Time // by another node, for …
	last    []byte    // … this
}

// Neighbour is another node as it answered last.
type Neighbour struct {
	Status
	Heard time.Time // of the answer, by this node's clock
}

// AskOthers asks all other living nodes what they are and did. It doesn't wait for the answers.
func (n *node) AskOthers() {
	var b [8]byte
	rand.Read(b[:]) // never fails
	id := binary.LittleEndian.Uint64(b[:])
	awaited := make(map[string]bool)
	if g := n.cast.Load(); g != nil {
		for _, m := range g.Members() {
			awaited[m.Node] = true
		}
	}
	n.onlookers.mu.Lock()
	n.onlookers.id, n.onlookers.awaited = id, awaited
	n.onlookers.mu.Unlock()
	n.broadcast("", &messages.Rendezvous{Body: &messages.Rendezvous_StatusQuery{
		StatusQuery: &messages.StatusQuery{Id: id}}})
}

// Others are the other living nodes as they answered last, by name; those that have never answered
// have a name only.
func (n *node) Others() (all []Neighbour) {
	g := n.cast.Load()
	if g == nil {
		return nil
	}
	living := g.Members()
	n.onlookers.mu.Lock()
	defer n.onlookers.mu.Unlock()
	seen := make(map[string]Neighbour, len(living)) // without those that are gone
	for _, m := range living {
		if m.Node == n.config.Node {
			continue
		}
		k, ok := n.onlookers.seen[m.Node]
		if !ok || k.Incarnation != m.Incarnation {
			k = Neighbour{Status: Status{Node: m.Node, Rack: m.Path, Incarnation: m.Incarnation}}
		}
		seen[m.Node] = k
		all = append(all, k)
	}
	n.onlookers.seen = seen
	slices.SortFunc(all, func(a, b Neighbour) int { return cmp.Compare(a.Node, b.Node) })
	return all
}

// ofOnlookers takes a message for those who look on, and reports whether it is one.
func (n *node) ofOnlookers(from string, m *messages.Rendezvous) bool {
	switch b := m.GetBody().(type) {
	case *messages.Rendezvous_StatusQuery:
		if text := n.brief(); text != nil {
			n.broadcast(from, &messages.Rendezvous{Body: &messages.Rendezvous_StatusReport{
				StatusReport: &messages.StatusReport{Id: b.StatusQuery.GetId(), Status: text}}})
		}
	case *messages.Rendezvous_StatusReport:
		n.reported(from, m.GetIncarnation(), b.StatusReport)
	default:
		return false
	}
	return true
}

// brief is this node's answer: nil if it can't be told.
func (n *node) brief() []byte {
	o := &n.onlookers
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last != nil && time.Since(o.asked) < reportFresh {
		return o.last
	}
	s := n.Status(context.Background(), Brief)
	text, err := json.Marshal(s)
	if err == nil && len(text) > maxReportBytes {
		s.Events, s.Counts, s.Aggregates = nil, nil, nil
		text, err = json.Marshal(s)
	}
	if err != nil || len(text) > maxReportBytes {
		n.log.Debug("no answer to an onlooker", "bytes", len(text), "error", err)
		text = nil
	}
	o.asked, o.last = time.Now(), text
	return text
}

// reported notes what another node has answered. It speaks for itself only.
func (n *node) reported(from string, incarnation uint64, m *messages.StatusReport) {
	o := &n.onlookers
	o.mu.Lock()
	defer o.mu.Unlock()
	if m.GetId() != o.id || !o.awaited[from] || len(m.GetStatus()) > maxReportBytes {
		return // nobody waits for it, or it is late
	}
	k := Neighbour{Heard: time.Now()}
	if json.Unmarshal(m.GetStatus(), &k.Status) != nil {
		return
	}
	// A short text can stand for much memory. Of an earlier build it lacks fields.
	if text, err := json.Marshal(&k.Status); err != nil || len(text) > 2*maxReportBytes {
		return
	}
	k.Node, k.Incarnation = from, incarnation
	if o.seen == nil {
		o.seen = make(map[string]Neighbour)
	}
	o.seen[from] = k // Others drops those that are gone
}
