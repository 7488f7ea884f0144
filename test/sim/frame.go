package sim

import (
	"fmt"

	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/peer"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/collective/task"
)

// headerBytes stands for a frame's header: it counts in what is in flight and in eager
// credit, so that empty frames are bounded too.
const headerBytes = 64

type frameKind uint8

const (
	dataFrame       frameKind = iota
	grantFrame                // spans of seq may be sent
	wantFrame                 // eager frames of seq wait at the sender for credit
	eagerGrantFrame           // the answer: they may come
	statementFrame            // what was received of a closed generation
	tableFrame                // Prepare or Commit
	answerFrame               // to a Prepare
	windowsFrame              // a rank's measurements; none: what was measured counts no more
)

// frame is one message between two ranks.
type frame struct {
	kind     frameKind
	from, to *rank
	seq      uint64

	// Data and grants.
	version uint32     // of the table
	lane    int        // which is also the number of the planned rail
	rails   peer.Rails // that may carry it
	rail    int        // that carried it, once it was received
	first   int        // round
	count   int        // rounds; of a grant: spans
	mark    int
	step    int
	length  int // bytes
	ackNow  bool
	eager   bool

	memory []float32 // the payload: a copy, or what the operation lends
	lender *part     // nil for a copy
	ref    task.Ref  // the lender's
	shadow []float32 // what is lent, as it was when it was sent

	writers int // that hold the memory

	statement peer.Statement
	table     table.Action
	answer    table.Answer
	windows   []balance.Window
}

func (f *frame) String() string {
	route := fmt.Sprintf("%d→%d", f.from.id, f.to.id)
	switch f.kind {
	case dataFrame:
		return fmt.Sprintf("data %s seq %d lane %d rounds %d+%d block %d step %d, %d bytes",
			route, f.seq, f.lane, f.first, f.count, f.mark, f.step, f.length)
	case grantFrame:
		return fmt.Sprintf("grant %s seq %d lane %d: %d spans", route, f.seq, f.lane, f.count)
	case wantFrame:
		return fmt.Sprintf("want %s seq %d", route, f.seq)
	case eagerGrantFrame:
		return fmt.Sprintf("eager grant %s seq %d", route, f.seq)
	case statementFrame:
		return fmt.Sprintf("statement %s %+v", route, f.statement)
	case windowsFrame:
		return fmt.Sprintf("windows %s %+v", route, f.windows)
	case answerFrame:
		return fmt.Sprintf("answer %s %+v", route, f.answer)
	}
	if p := f.table.Prepare; p != nil {
		return fmt.Sprintf("prepare %s version %d after seq %d", route, p.Version(), p.Effective)
	}
	return fmt.Sprintf("commit %s %+v", route, *f.table.Commit)
}

func (s *Sim) newFrame(kind frameKind, from, to *rank) *frame {
	f := new(frame)
	if kept := len(s.frames); kept > 0 {
		f, s.frames = s.frames[kept-1], s.frames[:kept-1]
		*f = frame{}
	}
	f.kind, f.from, f.to = kind, from, to
	return f
}

// send gives a frame to the sender's peer. Control may go over any rail, ahead of data.
func (s *Sim) send(f *frame) {
	if f.from == f.to {
		s.schedule(event{kind: selfDelivers, at: s.now, frame: f})
		return
	}
	it := peer.Item[*frame]{Frame: f, Bytes: headerBytes + f.length, Op: peer.Operation{Seq: f.seq}}
	if f.kind == dataFrame {
		s.stats.Frames++
		it.Rail, it.Rails = f.lane, f.rails
		if f.eager {
			it.Credit = it.Bytes
		}
	} else {
		it.Ahead, it.Restated, it.Rail = true, f.kind == statementFrame, s.rng.IntN(s.setup.rails)
	}
	d := s.side(f.from, f.to)
	fx := s.effects()
	d.core.At(s.elapsed(), 1)
	d.core.Send(it, fx)
	s.stats.Starved += len(fx.Wants)
	s.carryOut(d, fx)
}

// release: the frame is delivered, and nobody reads its memory any more.
func (s *Sim) release(f *frame) {
	if f.kind == statementFrame {
		return // restated while the writer of a lost connection may still hold it, its memory isn't reused
	}
	if f.writers > 0 {
		s.fail("rank %d: %v was released, and a writer holds its memory", f.from.id, f)
	}
	switch {
	case f.kind != dataFrame:
	case f.lender != nil:
		s.floats.put(f.shadow)
		s.step(f.lender, task.Event{Kind: task.Released, Ref: f.ref})
	default:
		f.from.pooled -= f.length
		s.floats.put(f.memory)
	}
	s.frames = append(s.frames, f)
}

// checkLent: the bytes of a frame don't change before it has arrived.
func (s *Sim) checkLent(f *frame) {
	if f.lender != nil && !same(f.memory, f.shadow) {
		s.fail("rank %d seq %d: memory was overwritten before %v had arrived", f.from.id, f.seq, f)
	}
}

// control takes a frame that isn't data.
func (s *Sim) control(f *frame) {
	switch f.kind {
	case grantFrame:
		s.granted(f)
	case wantFrame:
		s.wanted(f)
	case eagerGrantFrame:
		d := s.side(f.to, f.from)
		fx := s.effects()
		d.core.EagerGranted(peer.Operation{Seq: f.seq}, fx)
		s.carryOut(d, fx)
	case statementFrame:
		d := s.side(f.to, f.from)
		fx := s.effects()
		s.failIf(d.core.PeerClosed(f.statement, fx), "rank %d: %v", f.to.id, f)
		s.carryOut(d, fx)
	case tableFrame:
		s.tableMessage(f)
	case answerFrame:
		s.tableAnswer(f)
	case windowsFrame:
		s.windows(f)
	}
}

// wanted: a rank has eager frames and no credit. They may come once the operation is here.
func (s *Sim) wanted(f *frame) {
	switch {
	case f.to.find(f.seq) != nil:
		s.allow(f.to, f.from, f.seq)
	case f.seq >= f.to.member.Next():
		f.to.wants = append(f.to.wants, want{from: f.from, seq: f.seq})
	}
}

func (s *Sim) allow(from, to *rank, seq uint64) {
	f := s.newFrame(eagerGrantFrame, from, to)
	f.seq = seq
	s.send(f)
}

// sendGrant lets a rank send spans of a lane.
func (s *Sim) sendGrant(p *part, to op.Rank, limit int) {
	f := s.newFrame(grantFrame, p.rank, s.ranks[to])
	f.seq, f.lane, f.count = p.seq, p.lane, limit
	s.send(f)
}
