package polyrail_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/collective/op"
)

// The rule of this file: every public call returns when its context ends, in every state of its
// node, its communicator and the others. When it can't succeed, it returns an error that names the
// cause.
//
// A new call is one line of matrixCalls, and a new state one of matrixStates
// (matrix_states_test.go).

// matrixCall is a public call, as node 0 makes it.
type matrixCall struct {
	name string
	kind callKind
	make func(ctx context.Context, s *situation) error
}

// callKind is what a call needs, and so what it does in a state.
type callKind int

const (
	collective callKind = iota // a usable communicator, and the same call of all ranks
	agreement                  // a usable communicator, and no call of other ranks
	local                      // a communicator that isn't closed
	shrinking                  // a majority that calls it too
	forming                    // a usable node, and the same call of others
	ending                     // nothing: it ends the communicator or the node
	pairwise                   // a usable communicator, and the answer of rank 1
	callKinds
	asking = callKinds // the answers of all living nodes: the same in every state
)

var matrixCalls = []matrixCall{
	{"AllReduce", collective, func(ctx context.Context, s *situation) error { return AllReduce(ctx, s.comm, make([]float32, 10), Sum) }},
	{"AllReduceLarge", collective, func(ctx context.Context, s *situation) error {
		return AllReduce(ctx, s.comm, make([]float32, 300_000), Sum)
	}},
	{"AllReduceInto", collective, func(ctx context.Context, s *situation) error {
		return AllReduceInto(ctx, s.comm, make([]float32, 10), make([]float32, 10), Sum)
	}},
	{"AllReduceBytes", collective, func(ctx context.Context, s *situation) error {
		buf := make([]byte, 10)
		d, err := ParseDType("uint8")
		if err != nil {
			return err
		}
		return AllReduceBytes(ctx, s.comm, buf, buf, d, Max)
	}},
	{"StartAllReduce", collective, func(ctx context.Context, s *situation) error {
		return finish(StartAllReduce(ctx, s.comm, make([]float32, 10), Sum))
	}},
	{"StartAllReduceInto", collective, func(ctx context.Context, s *situation) error {
		return finish(StartAllReduceInto(ctx, s.comm, make([]float32, 10), make([]float32, 10), Sum))
	}},
	{"Wait", collective, func(ctx context.Context, s *situation) error {
		if ctx == nil {
			return (&Work{}).Wait(ctx)
		}
		w, err := StartAllReduce(ctx, s.comm, make([]float32, 10), Sum)
		if err != nil {
			return err
		}
		return w.Wait(ctx)
	}},
	{"AllReduceBatch", collective, func(ctx context.Context, s *situation) error {
		return AllReduceBatch(ctx, s.comm, [][]float32{make([]float32, 10), make([]float32, 5)}, Sum)
	}},
	{"StartAllReduceBatch", collective, func(ctx context.Context, s *situation) error {
		return finish(StartAllReduceBatch(ctx, s.comm,
			[][]float32{make([]float32, 300_000), make([]float32, 5)}, Sum))
	}},
	{"RunBatch", collective, func(ctx context.Context, s *situation) error {
		return s.comm.RunBatch(ctx, Batch{DType: op.Uint8, Op: Max, Buffers: [][]byte{make([]byte, 10)}})
	}},
	{"StartBatch", collective, func(ctx context.Context, s *situation) error {
		return finish(s.comm.StartBatch(ctx,
			Batch{DType: op.Uint8, Op: Max, Buffers: [][]byte{make([]byte, 10)}}))
	}},
	{"WaitAll", collective, func(ctx context.Context, s *situation) error {
		if ctx == nil {
			return WaitAll(ctx)
		}
		w, err := StartAllReduce(ctx, s.comm, make([]float32, 10), Sum)
		if err != nil {
			return err
		}
		return WaitAll(ctx, w, w)
	}},
	{"Run", collective, func(ctx context.Context, s *situation) error { return s.comm.Run(ctx, oneByte()) }},
	{"Start", collective, func(ctx context.Context, s *situation) error { return finish(s.comm.Start(ctx, oneByte())) }},
	{"Reduce", collective, func(ctx context.Context, s *situation) error {
		return Reduce(ctx, s.comm, make([]float32, 10), make([]float32, 10), Sum, 0)
	}},
	{"ReduceScatter", collective, func(ctx context.Context, s *situation) error {
		return ReduceScatter(ctx, s.comm, make([]float32, 10), make([]float32, 30), Sum)
	}},
	{"AllGather", collective, func(ctx context.Context, s *situation) error {
		return AllGather(ctx, s.comm, make([]float32, 30), make([]float32, 10))
	}},
	{"Gather", collective, func(ctx context.Context, s *situation) error {
		return Gather(ctx, s.comm, make([]float32, 30), make([]float32, 10), 0)
	}},
	{"Scatter", collective, func(ctx context.Context, s *situation) error {
		return Scatter(ctx, s.comm, make([]float32, 10), nil, 1)
	}},
	{"Broadcast", collective, func(ctx context.Context, s *situation) error { return Broadcast(ctx, s.comm, make([]float32, 10), 1) }},
	{"AllToAll", collective, func(ctx context.Context, s *situation) error {
		return AllToAll(ctx, s.comm, make([]float32, 30), make([]float32, 30))
	}},
	{"AllToAllV", collective, func(ctx context.Context, s *situation) error {
		return AllToAllV(ctx, s.comm, make([]float32, 6), []int{1, 2, 3}, make([]float32, 6), []int{1, 2, 3})
	}},
	// Rank 0 only sends in these: little of it would go without an answer.
	{"Scan", collective, func(ctx context.Context, s *situation) error {
		return Scan(ctx, s.comm, make([]float32, 300_000), make([]float32, 300_000), Sum)
	}},
	{"ExScan", collective, func(ctx context.Context, s *situation) error {
		return ExScan(ctx, s.comm, make([]float32, 300_000), make([]float32, 300_000), Sum)
	}},
	{"Barrier", collective, func(ctx context.Context, s *situation) error { return s.comm.Barrier(ctx) }},
	{"Dup", collective, func(ctx context.Context, s *situation) error { _, err := s.comm.Dup(ctx); return err }},
	{"Split", collective, func(ctx context.Context, s *situation) error { _, err := s.comm.Split(ctx, 0, 0); return err }},
	{"Sub", collective, func(ctx context.Context, s *situation) error { _, err := s.comm.Sub(ctx, []int{0, 1}); return err }},
	{"Send", pairwise, func(ctx context.Context, s *situation) error {
		return Send(ctx, s.comm, make([]float32, 300_000), 1, 7)
	}},
	{"StartSend", pairwise, func(ctx context.Context, s *situation) error {
		return finishTransfer(StartSend(ctx, s.comm, make([]float32, 300_000), 1, 7))
	}},
	{"Recv", pairwise, func(ctx context.Context, s *situation) error {
		_, err := Recv(ctx, s.comm, make([]float32, 10), 1, 7)
		return err
	}},
	{"StartRecv", pairwise, func(ctx context.Context, s *situation) error {
		return finishTransfer(StartRecv(ctx, s.comm, make([]float32, 10), 1, 7))
	}},
	{"SendRecv", pairwise, func(ctx context.Context, s *situation) error {
		_, err := SendRecv(ctx, s.comm, make([]float32, 10), 1, 7, make([]float32, 10), 1, 7)
		return err
	}},
	{"SetTable", agreement, func(ctx context.Context, s *situation) error { return s.comm.SetTable(ctx, s.comm.Table()) }},
	{"Balance", local, func(ctx context.Context, s *situation) error { _, err := s.comm.Balance(ctx); return err }},
	{"Shrink", shrinking, func(ctx context.Context, s *situation) error { _, _, err := s.comm.Shrink(ctx); return err }},
	{"Communicator", forming, func(ctx context.Context, s *situation) error {
		_, err := s.node.Communicator(ctx, "another", 3)
		return err
	}},
	{"Aggregators", asking, func(ctx context.Context, s *situation) error {
		_, err := s.node.Aggregators(ctx)
		return err
	}},
	{"Status", asking, func(ctx context.Context, s *situation) error { _, err := s.node.Status(ctx); return err }},
	{"Close", ending, func(ctx context.Context, s *situation) error { return s.comm.Close(ctx) }},
	{"Node.Close", ending, func(ctx context.Context, s *situation) error { return s.node.Close(ctx) }},
}

// oneByte is an operation that any number of ranks can run.
func oneByte() Operation {
	buf := make([]byte, 1)
	return Operation{Kind: KindAllReduce, DType: op.Uint8, Op: Max, Dst: buf, Src: buf}
}

// finishTransfer is a StartSend or StartRecv whose context is to end it without Wait.
func finishTransfer(t *Transfer, err error) error {
	if err != nil {
		return err
	}
	<-t.Done()
	return t.Err()
}

// finish is a Start whose context is to end the operation without Wait.
func finish(w *Work, err error) error {
	if err != nil {
		return err
	}
	<-w.Done()
	return w.Err()
}

const (
	callLimit = 2 * time.Second
	callSlack = 300 * time.Millisecond // until the runtime has let go of buffers
	// restLimit bounds what the others still do when node 0 has ended: a rank timeout and a second.
	restLimit = 3 * time.Second
)

// situation is a cluster of three in some state, as node 0 meets it.
type situation struct {
	*bed
	node   *Node
	comms  []*Communicator
	comm   *Communicator // node 0's
	others []*background
	closed []int // nodes that were closed
}

// background is a call that goes on while the state lasts. It has no deadline of its own.
type background struct {
	node int
	what string
	done chan struct{}
	err  error
}

func (s *situation) background(node int, what string, f func() error) {
	b := &background{node: node, what: fmt.Sprintf("%s of node %d", what, node), done: make(chan struct{})}
	s.others = append(s.others, b)
	go func() {
		b.err = f()
		close(b.done)
	}()
}

// within runs f and returns its error and how long it took. A call that doesn't return can't be
// left behind in a bubble.
func (s *situation) within(limit time.Duration, what string, f func() error) (took time.Duration, err error) {
	start, done := time.Now(), make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err = <-done:
	case <-time.After(limit + time.Minute):
		panic(fmt.Sprintf("%s: %s has not returned after %v\n%s", s.t.Name(), what, time.Since(start), s.log))
	}
	if took = time.Since(start); took > limit {
		s.t.Errorf("%s returned after %v, at most %v are allowed: %v", what, took, limit, err)
	}
	return took, err
}

// turnedDown makes the call without a context and with one that is over: neither may have an
// effect.
func (s *situation) turnedDown(c *matrixCall, prompt time.Duration) {
	seq, broken := s.comm.Seq(), s.comm.Err()
	_, err := s.within(prompt, c.name+" without a context", func() error { return c.make(nil, s) })
	if !errors.Is(err, ErrArgument) {
		s.t.Errorf("%s without a context: %v", c.name, err)
	}
	if c.kind == ending {
		return
	}
	why := errors.New("over before")
	ctx, cancel := context.WithCancelCause(s.t.Context())
	cancel(why)
	_, err = s.within(prompt, c.name+" with a context that is over", func() error { return c.make(ctx, s) })
	if err == nil ||
		broken == nil && s.node == s.Nodes[0] && !errors.Is(err, why) && !errors.Is(err, ErrClosed) {
		s.t.Errorf("%s with a context that is over: %v, want its cause", c.name, err)
	}
	if now := s.comm.Err(); s.comm.Seq() != seq || (now == nil) != (broken == nil) {
		s.t.Errorf("%s with a context that is over went from seq %d to %d, and from %v to %v",
			c.name, seq, s.comm.Seq(), broken, now)
	}
}

// outcome is what a call may come to in a state.
type outcome func(err error) bool

func succeeds(err error) bool { return err == nil }

// waits: the context ended the call.
func waits(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// fails: the error matches all, and its text has all the names.
func fails(sentinel error, names ...string) outcome {
	return func(err error) bool {
		return err != nil && errors.Is(err, sentinel) && !slices.ContainsFunc(names,
			func(n string) bool { return !strings.Contains(err.Error(), n) })
	}
}

func either(some ...outcome) outcome {
	return func(err error) bool { return slices.ContainsFunc(some, func(o outcome) bool { return o(err) }) }
}

// matrixCell makes one call in one state, and then lets node 0 go: nobody may wait for it.
func matrixCell(t *testing.T, st *matrixState, c *matrixCall) {
	inBed(t, 3, 2, st.adapt, func(b *bed) {
		s := &situation{bed: b, node: b.Nodes[0], comms: b.form("train")}
		s.comm = s.comms[0]
		st.enter(s)
		synctest.Wait()
		s.turnedDown(c, 0)
		ctx, cancel := context.WithTimeout(b.t.Context(), callLimit)
		defer cancel()
		took, err := s.within(callLimit+callSlack, c.name, func() error { return c.make(ctx, s) })
		want := either(succeeds, waits, fails(ErrClosed))
		if c.kind != asking {
			want = st.expect[c.kind]
		}
		if !want(err) {
			t.Errorf("%s ended after %v with %v", c.name, took, err)
		}
		mayWait := c.kind == shrinking || c.kind == forming || c.kind == ending || c.kind == asking
		if took > st.prompt && st.prompt > 0 && !mayWait {
			t.Errorf("%s took %v to end with %v, whose cause was known", c.name, took, err)
		}
		s.leave(0)
		for _, other := range s.others {
			_, err := s.within(restLimit, other.what, func() error { <-other.done; return other.err })
			if other.node != 0 && err != nil && !strings.Contains(err.Error(), `"node`) {
				t.Errorf("%s ended with %v, which names nobody", other.what, err)
			}
		}
		for _, name := range []string{"node0", "node1", "node2"} {
			for _, device := range []string{"eth0", "eth1"} {
				b.Rails.Heal(name, device)
			}
		}
		for _, i := range s.closed {
			b.Nodes[i] = nil // it has been closed, with whatever error
		}
		if t.Failed() {
			t.Logf("log:\n%s", b.log)
		}
	})
}

// leave closes a node.
func (s *situation) leave(i int) {
	ctx, cancel := context.WithTimeout(s.t.Context(), callLimit)
	defer cancel()
	_, _ = s.within(callLimit+2*time.Second, "closing a node", func() error { return s.Nodes[i].Close(ctx) })
	s.closed = append(s.closed, i)
}

func TestEveryCallInEveryStateReturns(t *testing.T) {
	for i := range matrixStates {
		st := &matrixStates[i]
		t.Run(strings.ReplaceAll(st.name, " ", "-"), func(t *testing.T) {
			for k := range matrixCalls {
				if testing.Short() && (i+k)%3 != 0 {
					continue // each call in some states, and each state with some calls
				}
				t.Run(matrixCalls[k].name, func(t *testing.T) { matrixCell(t, st, &matrixCalls[k]) })
			}
		})
	}
}
