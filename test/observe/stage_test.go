package observe

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/actors/membership"
	looked "github.com/polyrail/polyrail/actors/observe"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/memory"
)

// stage is a cluster that does not exist: what a page shows of as many nodes as one likes, in
// states that are hard to bring about at a given moment. It advances when it is looked at.
type stage struct {
	nodes int
	scene string // rest, load, cut, loss or tree

	mu     sync.Mutex
	began  time.Time
	rng    *rand.Rand
	status []membership.Status // by node
	at     time.Time           // of the last advance
	closed chan struct{}
}

func newStage(nodes int, scene string) *stage {
	s := &stage{nodes: nodes, scene: scene, rng: rand.New(rand.NewPCG(1, 2)), closed: make(chan struct{})}
	s.began = time.Now().Add(-90 * time.Minute)
	s.at = time.Now()
	for i := range nodes {
		s.status = append(s.status, s.node(i))
	}
	return s
}

func (s *stage) node(i int) membership.Status {
	name := fmt.Sprintf("host-%02d", i)
	k := membership.Status{Node: name, Cluster: "lab", Rack: fmt.Sprintf("row1/rack%d", i/8), Incarnation: uint64(i + 1),
		Started: s.began, Memory: memory.Stats{Limit: 1 << 30, InUse: int64(40+i) << 20, Kept: 80 << 20, Gets: 1}}
	for r, rate := range []string{"fast", "slow"} {
		k.Rails = append(k.Rails, railactors.RailStatus{Name: rate, Protocol: "tcp", Chosen: fmt.Sprintf("eth%d 10.%d.0.%d", r+1, r, i+1),
			Addr: fmt.Sprintf("10.%d.0.%d:40000", r, i+1), Up: true})
	}
	comm := membership.CommunicatorStatus{ID: 7, Name: "train", Rank: i, Size: s.nodes, Seq: 4711, Version: 12, Origin: "measured"}
	for n := range s.nodes {
		comm.Nodes = append(comm.Nodes, fmt.Sprintf("host-%02d", n))
	}
	for _, c := range []membership.ClassStatus{
		{MaxBytes: 8, Algorithm: "tree", Shares: []float64{1, 0}, Reason: "rail fast alone is fastest; settled after 6 windows", Now: 14 * time.Microsecond},
		{MaxBytes: 32 << 10, Algorithm: "recursive-doubling", Shares: []float64{1, 0}, Reason: "rail fast alone is fastest; settled after 3 windows", Now: 310 * time.Microsecond},
		{MaxBytes: 1 << 20, Algorithm: "ring", Shares: []float64{.79, .21}, Reason: "1.24 × the speed of rail fast alone; settled after 5 windows", Now: 13 * time.Millisecond},
		{MaxBytes: 16 << 20, Algorithm: "ring", Shares: []float64{.8, .2}, Reason: "1.25 × the speed of rail fast alone; settling, 2 windows", Now: 204 * time.Millisecond},
	} {
		c.Family = "allreduce"
		comm.Classes = append(comm.Classes, c)
	}
	if s.scene == "tree" {
		comm.Trees = []membership.TreeStatus{{Rail: "fast", Node: "switch-0"}}
	}
	k.Communicators = []membership.CommunicatorStatus{comm}
	k.Counts = []membership.CommunicatorCounts{{Name: "train", Formed: 1, Counts: []engine.Count{
		{Kind: "allreduce", MaxBytes: 256, Took: engine.Distribution{Buckets: make([]uint64, 12)}},
		{Kind: "allreduce", MaxBytes: 16 << 20, Took: engine.Distribution{Buckets: make([]uint64, 20)}},
		{Kind: "barrier", MaxBytes: 0, Took: engine.Distribution{Buckets: make([]uint64, 10)}}}}}
	s.tell(&k, s.began, membership.EventRecord{Kind: "communicator formed", Communicator: "train", Rank: i})
	return k
}

func (s *stage) tell(k *membership.Status, at time.Time, e membership.EventRecord) {
	e.Time, e.ID = at, uint64(len(k.Events)+1)
	k.Events = append(k.Events, e)
}

// advance lets time pass up to now.
func (s *stage) advance() {
	now := time.Now()
	passed := now.Sub(s.at).Seconds()
	s.at = now
	phase := int(now.Sub(s.began).Seconds()) % 40 // of a cut: down from 10 to 25
	for i := range s.status {
		k := &s.status[i]
		k.Time = now
		if s.scene == "rest" || s.scene == "loss" {
			continue
		}
		for r := range k.Rails {
			rate := []float64{31e6, 7.6e6}[r] * (0.9 + 0.2*s.rng.Float64())
			gone := s.scene == "cut" && r == 1 && phase >= 10 && phase < 25
			down := gone && i == 1
			if down || gone && s.nodes == 2 {
				rate = 0
			}
			if k.Rails[r].Up == down {
				s.cut(i, down, now)
			}
			k.Rails[r].Up = !down
			k.Rails[r].BytesSent += uint64(rate * passed)
			k.Rails[r].BytesReceived += uint64(0.97 * rate * passed)
		}
		counts := k.Counts[0].Counts
		for c, add := range []int{900, 5, 5} {
			n := uint64(float64(add)*passed + s.rng.Float64())
			counts[c].Took.Count += n
			counts[c].Bytes += n * uint64(max(counts[c].MaxBytes, 0))
			b := counts[c].Took.Buckets
			b[len(b)-2] += n * 9 / 10
			b[len(b)-1] += n - n*9/10
		}
		k.Communicators[0].Seq += uint64(900 * passed)
	}
}

// cut tells of a rail of node i that goes or comes, on all nodes.
func (s *stage) cut(i int, down bool, now time.Time) {
	for n := range s.status {
		k := &s.status[n]
		k.Communicators[0].Degraded = down
		to := s.status[i].Node
		if n == i {
			to = s.status[0].Node
		}
		if down {
			s.tell(k, now, membership.EventRecord{Kind: "rail down", Rail: "slow", Node: to, Unacked: 1 << 20,
				Err: "nothing was confirmed for 200ms"})
			s.tell(k, now, membership.EventRecord{Kind: "rail moved", Rail: "slow", Node: to, Resent: 640 << 10, Waiting: 2 << 20,
				To: map[string]int64{"fast": 2<<20 + 640<<10}})
			k.Rails[1].Resent += 10
			k.Rails[1].ResentBytes += 640 << 10
			k.Failovers = []membership.FailoverStatus{{Rail: "slow", Failovers: engine.Distribution{Count: 1, Sum: 3 * time.Millisecond}}}
		} else {
			s.tell(k, now, membership.EventRecord{Kind: "rail up", Rail: "slow", Node: to})
		}
		if len(k.Events) > 12 {
			k.Events = k.Events[len(k.Events)-12:]
		}
	}
}

// Status implements looked.Source: the first node is looked at.
func (s *stage) Status(context.Context, membership.Detail) membership.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	k := s.status[0]
	k.Events = append([]membership.EventRecord(nil), k.Events...)
	k.Rails = append([]railactors.RailStatus(nil), k.Rails...)
	k.Counts = append([]membership.CommunicatorCounts(nil), k.Counts...)
	for i := 1; i < s.nodes; i++ {
		o := &s.status[i]
		k.Members = append(k.Members, membership.MemberStatus{Node: o.Node, Addr: o.Rails[0].Addr})
		for r := range o.Rails {
			p := railactors.PairStatus{Node: o.Node, Rail: o.Rails[r].Name, Up: o.Rails[r].Up, Rate: []float64{31.2e6, 7.8e6}[r]}
			if s.scene != "rest" && p.Up {
				p.InFlight = 400 << 10
			}
			k.Pairs = append(k.Pairs, p)
		}
	}
	if s.scene == "loss" {
		err := fmt.Sprintf("communicator \"train\": communicator is broken since seq 4711: rank %d (node \"host-%02d\") is lost: its listeners refuse", s.nodes-1, s.nodes-1)
		k.Communicators = append([]membership.CommunicatorStatus(nil), k.Communicators...)
		k.Communicators[0].Err = err
		at := s.began.Add(89 * time.Minute)
		k.Events = append(k.Events, membership.EventRecord{ID: 90, Time: at, Kind: "rank lost", Communicator: "train", Rank: s.nodes - 1,
			Node: fmt.Sprintf("host-%02d", s.nodes-1), Err: "its listeners refuse"},
			membership.EventRecord{ID: 91, Time: at, Kind: "communicator broken", Communicator: "train", Err: err})
	}
	if s.scene == "tree" {
		k.Events = append(k.Events, membership.EventRecord{ID: 80, Time: s.began.Add(time.Second), Kind: "tree up", Rail: "fast", Node: "switch-0", Communicator: "train"})
	}
	return k
}

// Others implements looked.Source.
func (s *stage) Others() (all []membership.Neighbour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 1; i < s.nodes; i++ {
		k := membership.Neighbour{Status: s.status[i], Heard: time.Now()}
		k.Events = append([]membership.EventRecord(nil), k.Events...)
		if s.scene == "loss" && i == s.nodes-1 {
			k.Heard = s.began.Add(89 * time.Minute)
		}
		all = append(all, k)
	}
	if s.scene == "tree" {
		all = append(all, membership.Neighbour{Heard: time.Now(), Status: membership.Status{Node: "switch-0", Rack: "row1",
			Rails:      []railactors.RailStatus{{Name: "fast", Up: true, BytesSent: s.status[0].Rails[0].BytesSent * 4}},
			Aggregates: &membership.Aggregator{Groups: make([]membership.TreeGroup, 1)}}})
	}
	return all
}

// Obstacles implements looked.Source.
func (s *stage) Obstacles() []string { return nil }

// AskOthers implements looked.Source.
func (s *stage) AskOthers() {}

// Subscribe implements looked.Source.
func (s *stage) Subscribe() (<-chan membership.Event, func()) {
	return make(chan membership.Event), func() {}
}

// Closing implements looked.Source.
func (s *stage) Closing() <-chan struct{} { return s.closed }

// raise serves a stage.
func raise(t *testing.T, addr string, s *stage) *looked.Server {
	t.Helper()
	l, err := looked.Listen(looked.Config{Addr: addr, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	server := l.Serve(s)
	t.Cleanup(func() {
		close(s.closed)
		if err := server.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	return server
}

var showing = flag.String("show", "", "ADDR:PORT,NODES,SCENE to serve a page of a cluster that doesn't exist, until a signal")

// TestShow serves the page for people who work on it:
//
//	go test ./test/observe -run TestShow -v -timeout 1h -show 127.0.0.1:9400,64,cut
func TestShow(t *testing.T) {
	if *showing == "" {
		t.Skip("SKIPPED: -show ADDR:PORT,NODES,SCENE serves a page")
	}
	parts := strings.Split(*showing, ",")
	nodes := 0
	if _, err := fmt.Sscan(parts[1], &nodes); err != nil || len(parts) != 3 {
		t.Fatalf("-show %q: %v", *showing, err)
	}
	server := raise(t, parts[0], newStage(nodes, parts[2]))
	t.Logf("http://%s", server.Addr())
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt)
	defer stop()
	<-ctx.Done()
}
