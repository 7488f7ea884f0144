package polyrail_test

import (
	"context"
	"errors"
	"testing/synctest"
	"time"

	. "github.com/polyrail/polyrail"
)

// matrixState is a state of node 0, its communicator and the others.
type matrixState struct {
	name  string
	adapt func(*Config)
	enter func(s *situation)
	// What each kind of call comes to.
	expect [callKinds]outcome
	// prompt bounds how long a call takes that can't succeed for a known cause; 0: there is none.
	prompt time.Duration
}

var (
	lostNode = either(fails(ErrRankLost, "node2"), fails(ErrAborted, "node2"))
	closes   = either(succeeds, waits)
)

const soon = time.Millisecond

// patient clusters hold a node that says nothing for stopped, not for lost.
func patient(c *Config) { c.RankTimeout, c.RailTimeout = time.Hour, time.Hour }

func (s *situation) sum(i, n int) error {
	return AllReduce(s.t.Context(), s.comms[i], make([]float32, n), Sum)
}

// silence takes a node's rails away without a word.
func (s *situation) silence(node string) {
	s.Rails.Silence(node, "eth0")
	s.Rails.Silence(node, "eth1")
}

// inFlight starts operations on node 0 that nobody else calls.
func (s *situation) inFlight(n int) {
	for range n {
		s.background(0, "an operation", func() error { return s.sum(0, 1000) })
	}
	synctest.Wait()
}

var matrixStates = []matrixState{
	{
		name:   "idle",
		enter:  func(*situation) {},
		expect: [...]outcome{waits, succeeds, succeeds, waits, waits, succeeds, waits},
	},
	{
		name: "forming",
		enter: func(s *situation) {
			s.background(0, "the forming", func() error { return s.formAnother(0) })
		},
		expect: [...]outcome{waits, succeeds, succeeds, waits, either(waits, fails(ErrView)),
			succeeds, waits},
	},
	{
		name: "others in operation",
		enter: func(s *situation) {
			for _, i := range []int{1, 2} {
				s.background(i, "the operation", func() error { return s.sum(i, 10) })
			}
		},
		expect: [...]outcome{either(succeeds, fails(ErrMismatch, "node")), succeeds, succeeds,
			waits, waits, succeeds, waits},
	},
	{
		name:   "in operation",
		enter:  func(s *situation) { s.inFlight(1) },
		expect: [...]outcome{waits, succeeds, succeeds, waits, waits, closes, waits},
	},
	{
		name:  "table agreement held",
		adapt: patient,
		enter: func(s *situation) {
			s.silence("node2")
			s.background(0, "a new table",
				func() error { return s.comm.SetTable(s.t.Context(), s.comm.Table()) })
			synctest.Wait()
			started := make(chan struct{}, 8)
			s.background(0, "the operations", func() error {
				for {
					if _, err := StartAllReduce(s.t.Context(), s.comm, make([]float32, 10), Sum); err != nil {
						return err
					}
					started <- struct{}{}
				}
			})
			synctest.Wait()
			if len(started) == cap(started) {
				s.t.Fatal("nothing is held")
			}
		},
		expect: [...]outcome{waits, waits, succeeds, waits, waits, closes, waits},
	},
	{
		name:   "slots full",
		adapt:  func(c *Config) { c.MaxInFlight = 2 },
		enter:  func(s *situation) { s.inFlight(3) },
		expect: [...]outcome{waits, succeeds, succeeds, waits, waits, closes, waits},
	},
	{
		name: "broken",
		enter: func(s *situation) {
			ctx, cancel := context.WithCancelCause(s.t.Context())
			s.background(1, "the canceled operation",
				func() error { return AllReduce(ctx, s.comms[1], make([]float32, 10), Sum) })
			synctest.Wait()
			cancel(errors.New(`"node1" has had enough`))
		},
		expect: [...]outcome{fails(ErrBroken, "node1", "enough"), fails(ErrBroken, "node1"),
			succeeds, waits, waits, succeeds, fails(ErrBroken, "node1")},
		prompt: soon,
	},
	{
		name: "closing",
		enter: func(s *situation) {
			s.inFlight(1)
			s.background(0, "the close", func() error { return s.comm.Close(s.t.Context()) })
		},
		expect: [...]outcome{fails(ErrClosed), fails(ErrClosed), fails(ErrClosed), fails(ErrClosed),
			waits, closes, fails(ErrClosed)},
		prompt: soon,
	},
	{
		name: "closed",
		enter: func(s *situation) {
			if _, err := s.within(soon, "closing", func() error {
				return s.comm.Close(s.t.Context())
			}); err != nil {
				s.t.Fatal(err)
			}
		},
		expect: [...]outcome{fails(ErrClosed), fails(ErrClosed), fails(ErrClosed), fails(ErrClosed),
			waits, succeeds, fails(ErrClosed)},
		prompt: soon,
	},
	{
		name: "closed by another rank",
		enter: func(s *situation) {
			if err := s.comms[1].Close(s.t.Context()); err != nil {
				s.t.Fatal(err)
			}
		},
		expect: [...]outcome{fails(ErrClosed, "node1"), either(succeeds, waits), succeeds, waits,
			waits, succeeds, fails(ErrClosed, "node1")},
		prompt: callLimit + callSlack,
	},
	{
		name:  "node closing",
		adapt: patient,
		enter: func(s *situation) {
			s.silence("node2")
			ctx, cancel := context.WithTimeout(s.t.Context(), 4*time.Second)
			s.background(0, "the end", func() error { defer cancel(); _ = s.node.Close(ctx); return nil })
			<-time.After(soon)
		},
		expect: [...]outcome{fails(ErrClosed), fails(ErrClosed), fails(ErrClosed), fails(ErrClosed),
			fails(ErrClosed, "node0"), either(closes, fails(ErrClosed)), fails(ErrClosed)},
		prompt: soon,
	},
	{
		name:  "node closed",
		enter: func(s *situation) { s.leave(0) },
		expect: [...]outcome{fails(ErrClosed), fails(ErrClosed), fails(ErrClosed), fails(ErrClosed),
			fails(ErrClosed, "node0"), either(succeeds, fails(ErrClosed)), fails(ErrClosed)},
		prompt: soon,
	},
	{
		name: "another node closed while ranks wait",
		enter: func(s *situation) {
			for _, i := range []int{0, 2} {
				s.background(i, "the operation", func() error { return s.sum(i, 10) })
			}
			synctest.Wait()
			s.leave(1)
		},
		expect: [...]outcome{fails(ErrAborted, "node1"), fails(ErrAborted, "node1"), succeeds,
			waits, waits, succeeds, fails(ErrAborted, "node1")},
		prompt: soon,
	},
	{
		name:  "another node closed",
		enter: func(s *situation) { s.leave(1) },
		expect: [...]outcome{fails(ErrAborted, "node1"), fails(ErrAborted, "node1"), succeeds,
			waits, waits, succeeds, fails(ErrAborted, "node1")},
		prompt: soon,
	},
	{
		name: "rank lost",
		enter: func(s *situation) {
			s.background(1, "the operation", func() error { return s.sum(1, 10) })
			s.Kill(2)
			<-time.After(time.Second)
		},
		expect: [...]outcome{lostNode, lostNode, succeeds, waits, waits, succeeds, lostNode},
		prompt: soon,
	},
	{
		name:  "rank stopped",
		enter: func(s *situation) { s.silence("node2") },
		expect: [...]outcome{either(waits, lostNode), either(waits, lostNode), succeeds,
			anyEndOfShrink, waits, closes, either(waits, lostNode)},
	},
	{
		name:   "a rail down",
		enter:  func(s *situation) { s.Rails.Cut("node1", "eth0") },
		expect: [...]outcome{waits, succeeds, succeeds, waits, waits, succeeds, waits},
	},
}

// anyEndOfShrink: the loss is found while the others are waited for.
var anyEndOfShrink = either(waits, fails(ErrView))

func (s *situation) formAnother(i int) error {
	_, err := s.Nodes[i].Communicator(s.t.Context(), "another", 3)
	return err
}
