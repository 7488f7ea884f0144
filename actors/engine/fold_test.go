package engine

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/reduce"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
)

// alone owns operations whose frames nobody gets.
type alone struct{ frames []*railactors.Frame }

func (a *alone) Hand(f *railactors.Frame, _ *railactors.Peer) { a.frames = append(a.frames, f) }
func (a *alone) Ended(*Operation)                             {}

// scattered is rank 0's part of a reduce-scatter of two ranks, and what rank 1 sends for it.
type scattered struct {
	*Operation
	owner    alone
	operands [2][]byte // of rank 0's block
	dst      []byte
}

// foldedElements are more than callers poll for, which takes peers.
const foldedElements = 40_000

func newScattered(t *testing.T, o op.Op, d op.DType, inPlace bool) *scattered {
	t.Helper()
	g := testGroup(t, 1)
	g.engine.Config.EagerBytes = 4 << 20
	rng := rand.New(rand.NewPCG(1, 1))
	x := &scattered{}
	length := foldedElements * d.Size()
	src := make([]byte, 2*length)
	other := make([]byte, length)
	for _, p := range [][]byte{src, other} {
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
	}
	x.operands = [2][]byte{bytes.Clone(src[:length]), other}
	x.dst = src[:length]
	if !inPlace {
		x.dst = make([]byte, length)
	}
	var err error
	if x.Operation, err = g.Number(1); err != nil {
		t.Fatal(err)
	}
	r := &Request{Kind: op.KindReduceScatter, DType: d, Op: o, Algorithm: op.Ring, Src: src, Dst: x.dst}
	w := g.NewWork(r, make(chan struct{}, 1))
	w.slot <- struct{}{}
	x.Configure(w, &table.Table{Version: 1, Entries: []table.Entry{{Weights: []uint32{1}}}}, &x.owner)
	x.Launch()
	if x.cause != nil {
		t.Fatal(x.cause)
	}
	return x
}

// land lands a frame of rank 1, by its span, and returns its part of rank 1's operand.
func (x *scattered) land(t *testing.T, span int) (railactors.Landing, []byte) {
	t.Helper()
	s := x.shape.config.Plan.Lanes[0].Spans[span]
	at, length := x.shape.config.Plan.Range(s.First, s.Count, 0)
	h := x.header(wire.KindData)
	h.Round, h.Count, h.Length = uint32(s.First), uint32(s.Count), uint32(length)
	x.mu.Lock()
	l, err := x.Operation.land(1, nil, 0, &h)
	if err != nil || l.Receiver == nil {
		t.Fatalf("landing %+v, %v", l, err)
	}
	return l, x.operands[1][at : at+length]
}

func (x *scattered) spans() int { return len(x.shape.config.Plan.Lanes[0].Spans) }

// ends gives rank 0's frames up as arrived, and checks the result.
func (x *scattered) ends(t *testing.T) {
	t.Helper()
	for _, f := range x.owner.frames {
		f.Owner.Released(f, nil)
	}
	if !x.work.over() || x.work.Err() != nil {
		t.Fatalf("the operation is not over, or has failed: %v", x.work.Err())
	}
	want := make([]byte, len(x.dst))
	r := x.work.request
	combine, err := reduce.For(r.Op, r.DType)
	if err != nil {
		t.Fatal(err)
	}
	if err := combine(want, x.operands[1], x.operands[0]); err != nil {
		t.Fatal(err)
	}
	if r.Op.Code() == op.CodeAvg {
		reduce.Divide(r.DType, want, 2)
	}
	if !bytes.Equal(x.dst, want) {
		t.Error("wrong result")
	}
}

// lend gives a payload to a fold in pieces that end anywhere.
func lend(f railactors.Fold, payload []byte) {
	for k := 1; len(payload) > 0; k = k*7%61 + 1 {
		n := min(k, len(payload))
		f.Borrow(payload[:n:n])
		payload = payload[n:]
	}
}

// takeFrom folds a frame from where it lies.
func takeFrom(t *testing.T, l railactors.Landing, payload []byte, whole bool) {
	t.Helper()
	f := l.Receiver.(railactors.Folder).Fold(l.Tag, whole)
	if f == nil {
		t.Fatal("it is not folded")
	}
	lend(f, payload)
	f.Arrived(l.Tag, nil)
}

func TestAFrameIsFoldedFromWhereItLies(t *testing.T) {
	for _, d := range op.DTypes {
		o := op.Sum
		if d.Loc() {
			o = op.MinLoc
		}
		for _, o := range []op.Op{o, op.Avg} {
			if o.Check(d) != nil {
				continue
			}
			t.Run(fmt.Sprint(o, d), func(t *testing.T) {
				x := newScattered(t, o, d, false)
				for span := range x.spans() {
					l, payload := x.land(t, span)
					takeFrom(t, l, payload, span%2 == 0)
				}
				x.ends(t)
			})
		}
	}
}

// A connection ends in the middle of a fold. The frame comes again, over another one that lends
// nothing, or that lends it from the beginning.
func TestAFoldThatIsTornBeginsAgain(t *testing.T) {
	for _, again := range []string{"copied", "folded"} {
		t.Run(again, func(t *testing.T) {
			x := newScattered(t, op.Sum, op.F64, false)
			for span := range x.spans() {
				l, payload := x.land(t, span)
				f := l.Receiver.(railactors.Folder).Fold(l.Tag, false)
				lend(f, payload[:len(payload)/2+3])
				f.Torn(l.Tag, errors.New("cut"))

				l, payload = x.land(t, span)
				if again == "copied" {
					copy(l.Dst, payload)
					l.Receiver.Arrived(l.Tag, nil)
					continue
				}
				takeFrom(t, l, payload, false)
			}
			x.ends(t)
		})
	}
}

// In place the sum overwrites the operand, which half a fold would have lost.
func TestOnlyAWholeFrameIsFoldedOverAnOperand(t *testing.T) {
	x := newScattered(t, op.Sum, op.F32, true)
	for span := range x.spans() {
		l, payload := x.land(t, span)
		if f := l.Receiver.(railactors.Folder).Fold(l.Tag, false); f != nil {
			t.Fatal("a frame that could be torn is folded over an operand")
		}
		takeFrom(t, l, payload, true)
	}
	x.ends(t)
}

// What another process can change, or is not to be written, is not for a caller's function.
func TestACallersFunctionGetsNoMemoryOfAnotherProcess(t *testing.T) {
	sum, err := reduce.For(op.Sum, op.F32)
	if err != nil {
		t.Fatal(err)
	}
	x := newScattered(t, op.User("own", op.F32, sum), op.F32, false)
	for span := range x.spans() {
		l, payload := x.land(t, span)
		if l.Receiver.(railactors.Folder).Fold(l.Tag, true) != nil {
			t.Fatal("it is folded where it lies")
		}
		copy(l.Dst, payload)
		l.Receiver.Arrived(l.Tag, nil)
	}
	x.ends(t)
}

// A communicator breaks while a fold writes the caller's memory: the caller gets that back when the
// fold has ended.
func TestAnAbortedOperationEndsAfterItsFold(t *testing.T) {
	x := newScattered(t, op.Sum, op.F32, false)
	l, payload := x.land(t, 0)
	f := l.Receiver.(railactors.Folder).Fold(l.Tag, false)
	f.Borrow(payload[:100])
	for _, f := range x.owner.frames {
		f.Owner.Released(f, nil)
	}
	x.abort(x.group, x.Seq, errors.New("another rank is lost"))
	if x.work.over() {
		t.Fatal("the call has returned")
	}
	f.Torn(l.Tag, railactors.ErrRevoked)
	if !x.work.over() || x.work.Err() == nil {
		t.Errorf("the call has not ended with an error: %v", x.work.Err())
	}
}
