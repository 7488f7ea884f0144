package engine

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/transport"
)

// source is where frames of an operation come from, or where its operands are shown.
type source struct {
	peer   *railactors.Peer
	rail   int
	boards *boards // in place of peer and rail; or nil
}

func (s *source) poll() (found bool) {
	if s.boards != nil {
		return s.boards.look()
	}
	return s.peer.Poll(s.rail)
}

// pollers are the goroutines of the process that poll.
var pollers atomic.Int32

// turnEvery is after how many rounds of polling those run who as a rule needn't.
const turnEvery = 16

// yields says who is to run after a caller's n-th round of polling: the process's other goroutines,
// other threads of the host. Spare is how many processors (P) the process has beyond those that its
// pollers need.
//
//   - On a spare one the Go scheduler runs the other goroutines. Gosched would wake a thread to look
//     for work there, which makes a round trip half as long again.
//   - Where none is spare, they run seldom: mostly the frames are still to come from other processes.
//   - Where some pollers have no processor, they are what this one waits for, as like as not. A thread
//     that yields to others keeps its processor from them meanwhile.
func yields(n int, spare int32) (goroutines, threads bool) {
	turn := n%turnEvery == 0
	return spare < 0 || spare == 0 && turn, spare >= 0 || turn
}

// longestPoll is how many WaitSpin a caller polls at most. Frames of other operations must not keep
// it from its context, and an operation that takes longer loses less by a wake-up than others do by
// its polling.
const longestPoll = 5

// patience is how long a caller goes on polling. Frames that arrive renew it: while they do,
// polling spares wake-ups.
type patience struct {
	idle    time.Duration // without a frame
	longest time.Duration
	start   time.Duration
	last    time.Duration // the last look that found something
}

func (p *patience) over(now time.Duration, found bool) bool {
	if found {
		p.last = now
	}
	return now-p.last > p.idle || now-p.start > p.longest
}

// hotFor is how long a caller looks before it yields the processor for the first time: about what
// it costs to yield, and through memory ranks that call together have each other's frames within
// it.
const hotFor = 600 * time.Nanosecond

func (p *patience) hot(now time.Duration) bool { return now-p.start < hotFor }

// pace says for which operations of about one size a caller polls: for all of them, until two in a
// row took longer than it polls. Then ever fewer are tried, until one succeeds.
type pace struct {
	pause atomic.Int32 // so many operations more are not polled for
	next  atomic.Int32 // the pause after one for which polling is in vain
}

// longestPause is how many operations pass between two that are tried. Where none succeeds, they
// cost a seventeenth of what polling for all would.
const longestPause = 16

// due reports whether the caller of the next operation is to poll. It is asked once for each.
func (p *pace) due() bool {
	if p.pause.Load() <= 0 {
		return true
	}
	p.pause.Add(-1)
	return false
}

// ended: polling has ended the wait, or was in vain.
func (p *pace) ended(well bool) {
	if well {
		p.next.Store(0)
		return
	}
	pause := p.next.Load()
	p.pause.Store(pause)
	p.next.Store(min(max(1, 2*pause), longestPause))
}

// tries reports whether the caller of an operation, of those that p is for, is to poll. Where all
// ranks share memory that is always so: there a caller that polls also writes and reads, which
// others would be woken for.
func (g *Group) tries(p *pace) bool {
	return g.engine.Config.WaitSpin > 0 && (g.shared || p.due())
}

// paces are by size class.
type paces [balance.Classes]pace

func (p *paces) of(bytes int) *pace { return &p[balance.ClassOf(int64(bytes))] }

// polls looks for the frames of a small operation on the waiting goroutine, for a bounded time: the
// wake-ups of a reader and of this goroutine would cost most of what such an operation takes. It
// reports whether the wait is over. The context's end ends polling alone. attending says that attend
// was called.
func (g *Group) polls(ctx context.Context, from []source, attending bool, w awaited) bool {
	if !attending {
		if w.over() {
			return true
		}
		if len(from) == 0 {
			return false
		}
		attend(from)
	}
	defer leave(from)
	pollers.Add(1)
	defer pollers.Add(-1)
	spin, start := g.engine.Config.WaitSpin, time.Since(processBegan)
	p := patience{idle: spin, longest: longestPoll * spin, start: start, last: start}
	processors := int32(runtime.GOMAXPROCS(0)) // which takes the scheduler's lock
	for n := 1; ; n++ {
		found := false
		for i := range from {
			found = from[i].poll() || found
		}
		if w.over() {
			w.pace().ended(true)
			return true
		}
		now := time.Since(processBegan)
		if p.over(now, found) {
			w.pace().ended(false)
			return false
		}
		if ctx.Err() != nil {
			return false
		}
		if p.hot(now) {
			continue
		}
		goroutines, threads := yields(n, processors-pollers.Load())
		if goroutines {
			runtime.Gosched()
		}
		if threads {
			transport.Yield()
		}
	}
}

func attend(from []source) {
	for _, s := range from {
		if s.peer != nil {
			s.peer.Attend(s.rail)
		}
	}
}

func leave(from []source) {
	for _, s := range from {
		if s.peer != nil {
			s.peer.Leave(s.rail)
		}
	}
}
