package redisstore

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/polyrail/polyrail/cluster"
	"github.com/polyrail/polyrail/messages"
)

// waitLimit ends a test that waits for an event in vain.
const waitLimit = 30 * time.Second

// ear keeps what a node hears and logs.
type ear struct {
	mu      sync.Mutex
	lines   []string
	changed chan struct{} // closed and replaced with every line
}

func (e *ear) add(line string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lines = append(e.lines, line)
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *ear) ClusterEvent(ev cluster.Event) {
	e.add(fmt.Sprintf("%s %v", ev.Member.Node, ev.Kind))
}
func (e *ear) ClusterMessage(_ string, _ *messages.Rendezvous) {}
func (e *ear) Write(p []byte) (int, error) {
	e.add(string(bytes.TrimSpace(p)))
	return len(p), nil
}

// expect waits for a line that holds the text, and forgets the lines up to it.
func (e *ear) expect(t *testing.T, text string) {
	t.Helper()
	limit := time.NewTimer(waitLimit)
	defer limit.Stop()
	for {
		e.mu.Lock()
		for i, line := range e.lines {
			if strings.Contains(line, text) {
				e.lines = append(e.lines[:i:i], e.lines[i+1:]...)
				e.mu.Unlock()
				return
			}
		}
		changed := e.changed
		e.mu.Unlock()
		select {
		case <-changed:
		case <-limit.C:
			t.Fatalf("not heard: %s; heard\n%s", text, strings.Join(e.lines, "\n"))
		}
	}
}

type node struct {
	*cluster.Gossip
	*ear
}

func startNode(t *testing.T, s *server, name string, incarnation uint64) node {
	t.Helper()
	e := &ear{changed: make(chan struct{})}
	c := cluster.DefaultConfig()
	c.Node, c.Incarnation, c.Bind, c.Store = name, incarnation, "127.0.0.1:0", s.store()
	c.EntryTTL = 6 * time.Second // renewed every 2 s
	c.Logger = slog.New(slog.NewTextHandler(e, nil))
	g, err := cluster.Start(t.Context(), c, e)
	if err != nil {
		t.Error(err)
		return node{}
	}
	t.Cleanup(func() { g.Close() })
	return node{g, e}
}

func TestNodesMeetThroughRedisAndOutliveIt(t *testing.T) {
	server := startServer(t)
	nodes := make([]node, 4)
	var starts sync.WaitGroup
	for i := range nodes { // at once: nobody is the first
		starts.Go(func() { nodes[i] = startNode(t, server, fmt.Sprintf("n%d", i), 7) })
	}
	starts.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for i, n := range nodes {
		for j := range nodes {
			if i != j {
				n.expect(t, fmt.Sprintf("n%d joined", j))
			}
		}
	}
	server.kill()
	for _, n := range nodes {
		n.expect(t, "cannot be used")
		if got := len(n.Members()); got != len(nodes) {
			t.Errorf("without the store there are %d members", got)
		}
	}
	server = startServerAt(t, server.addr) // empty
	if server == nil {
		t.Skip("SKIPPED: another process took the port of the server that was killed")
	}
	for _, n := range nodes {
		n.expect(t, "can be used again")
	}
	late := startNode(t, server, "late", 7)
	for i, n := range nodes {
		n.expect(t, "late joined")
		late.expect(t, fmt.Sprintf("n%d joined", i))
	}

	// One goes without a word, and is back on another port while its entry is still there.
	gone := cluster.Entry{Cluster: "polyrail", Node: "n0", Incarnation: 7, Addr: nodes[0].Addr()}
	if err := nodes[0].Close(); err != nil {
		t.Error(err)
	}
	put(t, server.store(), gone)
	again := startNode(t, server, "n0", 8)
	for i, n := range nodes[1:] {
		n.expect(t, "n0 joined")
		again.expect(t, fmt.Sprintf("n%d joined", i+1))
	}
	if err := again.Leave(t.Context()); err != nil {
		t.Error(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	values, err := server.store().List(t.Context(), "polyrail", time.Minute)
	for _, v := range values {
		if e, _ := cluster.DecodeEntry(v); e.Process() == "n0#8" {
			t.Errorf("what left is still listed: %+v", e)
		}
	}
	if err != nil {
		t.Error(err)
	}
}
