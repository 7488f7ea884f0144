package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/polyrail/polyrail"
)

// pair is two nodes on loopback, and a communicator of both.
type pair struct {
	Bridge
	nodes, comms [2]Handle
}

func newPair(t *testing.T, extra string) *pair {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	p := &pair{}
	join := ""
	for i := range p.nodes {
		text := fmt.Sprintf("name=%c\nbind=127.0.0.1:0\nrail=r=tcp:127.0.0.1\nprobe=off\nlog-level=error\n%s%s",
			'a'+i, join, extra)
		o, err := p.OpenNode(text, Call{})
		if err != nil {
			t.Fatal(err)
		}
		p.nodes[i] = o.Handle
		n, err := p.Node(o.Handle)
		if err != nil {
			t.Fatal(err)
		}
		join = "join=" + n.GossipAddr() + "\n"
	}
	works := [2]Handle{}
	for i, n := range p.nodes {
		works[i] = started(t)(p.Form(n, "pair", 2, Call{Started: true}))
	}
	for i, w := range works {
		r, ended, err := p.Wait(w, -1)
		if !ended || err != nil {
			t.Fatal(ended, err)
		}
		p.comms[i] = r.Handle
	}
	t.Cleanup(func() {
		for _, n := range p.nodes {
			if _, err := p.CloseNode(n, Call{}); err != nil {
				t.Error(err)
			}
		}
	})
	return p
}

// started is the handle of a call that goes on.
func started(t *testing.T) func(Outcome, error) Handle {
	return func(o Outcome, err error) Handle {
		t.Helper()
		if err != nil || o.Work == 0 {
			t.Fatal(o, err)
		}
		return o.Work
	}
}

func sum(buf []byte) polyrail.Operation {
	uint8Type, err := polyrail.ParseDType("uint8")
	if err != nil {
		panic(err)
	}
	return polyrail.Operation{Kind: polyrail.KindAllReduce, DType: uint8Type, Op: polyrail.Sum, Dst: buf, Src: buf}
}

func TestCallsThatAreOnlyStartedNeverBlockAndKeepTheirOrder(t *testing.T) {
	p := newPair(t, "max-in-flight=2")
	queue, err := p.OpenQueue()
	if err != nil {
		t.Fatal(err)
	}
	// Rank 0 starts more than the runtime takes, and a barrier among them, before rank 1 starts any.
	const n = 12
	var bufs [2][n][]byte
	for rank, comm := range p.comms {
		for i := range n {
			if i == n/2 {
				started(t)(p.Barrier(comm, Call{Started: true, Queue: queue, Tag: 1000}))
			}
			bufs[rank][i] = []byte(strings.Repeat(string(rune(i+1)), 1<<10))
			started(t)(p.Collective(comm, sum(bufs[rank][i]), Call{Started: true, Queue: queue, Tag: uint64(i)}))
		}
	}
	left := 2 * (n + 1)
	for left > 0 {
		ended := make([]Completion, 5)
		k, err := p.TakeCompletions(queue, ended)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range ended[:k] {
			if _, ended, err := p.Wait(c.Work, 0); !ended || err != nil || c.Err != nil {
				t.Fatal(c, ended, err)
			}
		}
		left -= k
	}
	for i := range n {
		for rank := range bufs {
			if got, want := bufs[rank][i][77], byte(2*(i+1)); got != want {
				t.Errorf("operation %d on rank %d: %d, want %d", i, rank, got, want)
			}
		}
	}
	if err := p.CloseQueue(queue); err != nil {
		t.Error(err)
	}
	if held := p.Held(); held != 4 {
		t.Errorf("%d handles are left, want those of 2 nodes and 2 communicators", held)
	}
}

// both makes a call on both ranks at once.
func (p *pair) both(t *testing.T, call func(rank int, comm Handle) (Outcome, error)) (outcomes [2]Outcome) {
	t.Helper()
	var errs [2]error
	var calls sync.WaitGroup
	for rank, comm := range p.comms {
		calls.Go(func() { outcomes[rank], errs[rank] = call(rank, comm) })
	}
	calls.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return outcomes
}

var patient = Call{Started: true, Patience: time.Minute}

func TestACallThatEndsInTimeTakesNoHandle(t *testing.T) {
	p := newPair(t, "")
	before := p.last
	p.both(t, func(_ int, comm Handle) (Outcome, error) {
		var seq uint64
		for range 3 * 16 { // more than there may be in flight
			buf := []byte{1}
			o, err := p.Collective(comm, sum(buf), patient)
			if err != nil || buf[0] != 2 || o.Seq <= seq {
				return o, fmt.Errorf("after seq %d: %+v, buffer %v: %w", seq, o, buf, err)
			}
			seq = o.Seq
		}
		return Outcome{}, nil
	})
	p.both(t, func(rank int, comm Handle) (Outcome, error) {
		if rank == 0 {
			return p.Send(comm, []byte("x"), sum(nil).DType, 1, 7, patient)
		}
		o, err := p.Recv(comm, make([]byte, 2), sum(nil).DType, 0, 7, patient)
		if o.Count != 1 || o.Tag != 7 {
			t.Errorf("received %+v", o)
		}
		return o, err
	})
	if p.last != before {
		t.Errorf("%d handles were given to calls that ended in time", p.last-before)
	}
}

func TestACallThatOutlastsPatienceGetsAHandle(t *testing.T) {
	p := newPair(t, "")
	buf := []byte{1}
	w := started(t)(p.Collective(p.comms[0], sum(buf), Call{Started: true, Patience: 1}))
	if _, ended, err := p.Wait(w, 0); ended || err != nil {
		t.Errorf("ended %v though the other rank did nothing: %v", ended, err)
	}
	if _, err := p.Collective(p.comms[1], sum([]byte{2}), patient); err != nil {
		t.Error(err)
	}
	if r, ended, err := p.Wait(w, -1); !ended || err != nil || buf[0] != 3 || r.Seq == 0 {
		t.Errorf("%+v, ended %v, buffer %v: %v", r, ended, buf, err)
	}
}

func TestAQueueTellsOfCallsThatOutlastPatienceOnly(t *testing.T) {
	p := newPair(t, "")
	queue, err := p.OpenQueue()
	if err != nil {
		t.Fatal(err)
	}
	told := func() []Completion {
		ended := make([]Completion, 3)
		n, err := p.TakeCompletions(queue, ended)
		if err != nil {
			t.Fatal(err)
		}
		return ended[:n]
	}
	both := Call{Started: true, Patience: time.Minute, Queue: queue, Tag: 1}
	p.both(t, func(rank int, comm Handle) (Outcome, error) { return p.Collective(comm, sum([]byte{1}), both) })
	for rank, o := range p.both(t, func(rank int, comm Handle) (Outcome, error) { return p.Dup(comm, both) }) {
		if o.Work != 0 || o.Handle == 0 {
			t.Errorf("rank %d: a Dup that ended in time: %+v", rank, o)
		}
	}
	if c := told(); len(c) != 0 {
		t.Errorf("told of %v, which ended in time", c)
	}
	buf := []byte{1}
	w := started(t)(p.Collective(p.comms[0], sum(buf), Call{Started: true, Patience: 1, Queue: queue, Tag: 2}))
	if _, err := p.Collective(p.comms[1], sum([]byte{2}), patient); err != nil {
		t.Error(err)
	}
	if r, ended, err := p.Wait(w, -1); !ended || err != nil || buf[0] != 3 {
		t.Errorf("%+v, ended %v, buffer %v: %v", r, ended, buf, err)
	}
	if c := told(); len(c) != 1 || c[0].Work != w || c[0].Tag != 2 {
		t.Errorf("told of %v, want of the call that went on", c)
	}
	if err := p.CloseQueue(queue); err != nil {
		t.Error(err)
	}
	if _, err := p.Collective(p.comms[0], sum(buf), both); !errors.Is(err, ErrHandle) {
		t.Errorf("a call with a queue that was closed: %v", err)
	}
	if o, err := p.Send(p.comms[0], buf, sum(nil).DType, 1, 0, both); !errors.Is(err, ErrHandle) {
		t.Errorf("a message with a queue that was closed: %v, %v", o, err)
	}
}

// Its memory is in use until the end, and nobody could be told of that.
func TestACallForWhichNoHandleIsLeftWaitsForItsEnd(t *testing.T) {
	p := newPair(t, "")
	for p.Held() < maxHandles {
		if _, err := p.put(p); err != nil {
			t.Fatal(err)
		}
	}
	p.both(t, func(rank int, comm Handle) (Outcome, error) {
		buf := bytes.Repeat([]byte{1}, 4<<20) // nobody polls for so much
		o, err := p.Collective(comm, sum(buf), Call{Started: true, Patience: 1})
		if o.Work != 0 || !bytes.Equal(buf, bytes.Repeat([]byte{2}, len(buf))) {
			t.Errorf("rank %d: %+v, or the sum is wrong", rank, o)
		}
		return o, err
	})
	if _, err := p.Collective(p.comms[0], sum([]byte{1}), Call{Started: true}); !errors.Is(err, polyrail.ErrLimit) {
		t.Errorf("a call that needs a handle: %v", err)
	}
}

func TestACanceledCallInLineBreaksItsCommunicator(t *testing.T) {
	p := newPair(t, "max-in-flight=1")
	a := make([]byte, 1<<20)
	first := started(t)(p.Collective(p.comms[0], sum(a), Call{Started: true}))
	second := started(t)(p.Barrier(p.comms[0], Call{Started: true}))
	if err := p.Cancel(second); err != nil {
		t.Fatal(err)
	}
	for _, w := range []Handle{first, second} {
		if _, ended, err := p.Wait(w, -1); !ended || !errors.Is(err, context.Canceled) {
			t.Errorf("ended %v: %v", ended, err)
		}
	}
	_, err := p.Collective(p.comms[1], sum(a), Call{})
	if !errors.Is(err, polyrail.ErrAborted) {
		t.Errorf("the other rank: %v", err)
	}
}

func TestCloseWaitsForCallsInLine(t *testing.T) {
	p := newPair(t, "max-in-flight=1")
	var works []Handle
	for range 16 {
		works = append(works, started(t)(p.Collective(p.comms[0], sum([]byte{1}), Call{Started: true})))
	}
	works = append(works, started(t)(p.CloseComm(p.comms[0], Call{Started: true})))
	for range 16 {
		if _, err := p.Collective(p.comms[1], sum([]byte{2}), patient); err != nil {
			t.Fatal(err)
		}
	}
	for i, w := range works {
		if _, ended, err := p.Wait(w, -1); !ended || err != nil {
			t.Errorf("call %d ended %v: %v", i, ended, err)
		}
	}
}

func TestACloseThatIsCanceledEndsCallsInLine(t *testing.T) {
	p := newPair(t, "max-in-flight=1")
	var works []Handle
	for range 3 {
		works = append(works, started(t)(p.Collective(p.comms[0], sum([]byte{1}), Call{Started: true})))
	}
	works = append(works, started(t)(p.CloseComm(p.comms[0], Call{Started: true})))
	if err := p.Cancel(works[3]); err != nil {
		t.Fatal(err)
	}
	for i, w := range works {
		if _, ended, err := p.Wait(w, -1); !ended || err == nil {
			t.Errorf("call %d ended %v: %v", i, ended, err)
		}
	}
}

func TestACommunicatorThatCannotBeMadeIsAnError(t *testing.T) {
	p := newPair(t, "")
	if err := p.Abort(p.comms[0]); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(Handle, Call) (Outcome, error){
		"dup":   p.Dup,
		"sub":   func(h Handle, c Call) (Outcome, error) { return p.Sub(h, []int{0}, c) },
		"split": func(h Handle, c Call) (Outcome, error) { return p.Split(h, 0, 0, c) },
	} {
		if o, err := call(p.comms[0], patient); !errors.Is(err, context.Canceled) {
			t.Errorf("%s of a communicator that was aborted: %+v, %v", name, o, err)
		}
	}
}

func TestHandlesAreNeverTakenForOthers(t *testing.T) {
	var b Bridge
	q, err := b.OpenQueue()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Barrier(q, Call{}); !errors.Is(err, ErrHandle) || !strings.Contains(err.Error(), "a queue, not a communicator") {
		t.Error(err)
	}
	if err := b.CloseEvents(q); !errors.Is(err, ErrHandle) {
		t.Errorf("a queue was closed as a subscription of events: %v", err)
	}
	if fd, err := b.EventsDescriptor(q); !errors.Is(err, ErrHandle) {
		t.Errorf("the descriptor of a subscription that is a queue: %d, %v", fd, err)
	}
	if err := b.CloseQueue(q); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{b.CloseQueue(q), b.Cancel(q), b.Forget(0), b.Abort(q)} {
		if !errors.Is(err, ErrHandle) {
			t.Error(err)
		}
	}
	if next, err := b.OpenQueue(); err != nil || next == q {
		t.Errorf("handle %d was given again: %v", next, err)
	} else if err := b.CloseQueue(next); err != nil {
		t.Error(err)
	}
}

func TestSettingsAreTheFlagsAndTheEnvironment(t *testing.T) {
	t.Setenv("POLYRAIL_RANK_TIMEOUT", "7s")
	t.Setenv("POLYRAIL_EAGER_BYTES", "1KiB")
	cfg, err := parse("name=x\n\nrail=a=tcp:eth0,weight=3\r\nrail=b=tcp:eth1\neager-bytes=2KiB", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.RankTimeout != 7*time.Second || cfg.EagerBytes != 2<<10 || len(cfg.Rails) != 2 || cfg.Rails[0].Weight != 3 {
		t.Errorf("%+v", cfg)
	}
	for _, text := range []string{"nonsense=1", "name", "rank-timeout=soon", "rail=x", "=", "config=/does/not/exist",
		"rendezvous=redis://:secret@store:port",
		strings.Repeat("#", maxSettings+1)} {
		if _, err := parse(text, io.Discard); !errors.Is(err, polyrail.ErrConfig) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

func TestAnErrorNamesItsCulprit(t *testing.T) {
	lost := &polyrail.RankLostError{Rank: 3, Node: "d", Reason: "gone"}
	operation := &polyrail.OperationError{Communicator: "c", Seq: 9, Cause: lost}
	for _, x := range []struct {
		err  error
		want Fault
	}{
		{fmt.Errorf("%w since seq 9: %w", polyrail.ErrBroken, operation),
			Fault{Code: RankLost, Rank: 3, Seq: 9, Node: "d"}},
		{&polyrail.RailError{Rail: "r", Node: "n", Err: io.EOF}, Fault{Code: Rail, Rank: -1, Node: "n", Rail: "r"}},
		{&polyrail.AbortError{Rank: 2, Node: "b"}, Fault{Code: Aborted, Rank: 2, Node: "b"}},
		{&polyrail.MismatchError{Rank: 1, Node: "m"}, Fault{Code: Mismatch, Rank: 1, Node: "m"}},
		{&polyrail.ViewError{Name: "v", Node: "w"}, Fault{Code: View, Rank: -1, Node: "w"}},
		{context.Canceled, Fault{Code: Canceled, Rank: -1}},
		{io.EOF, Fault{Code: Other, Rank: -1}},
	} {
		got := Describe(x.err)
		x.want.Text = x.err.Error()
		if got != x.want {
			t.Errorf("%v: %+v, want %+v", x.err, got, x.want)
		}
	}
	if got := Describe(nil); got.Code != OK {
		t.Errorf("no error: %+v", got)
	}
}
