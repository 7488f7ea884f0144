// Package sim steps the pure cores of whole groups of ranks in one goroutine, from one
// seeded queue of events: a seed replays exactly. It runs every kind of operation by
// every algorithm, from every root, in place and apart, and with parts that callers give.
//
// The cores are the real ones: collective/table (Member, Leader), collective/schedule,
// collective/plan, collective/task, collective/peer; in measured runs also collective/balance. What
// is around them in a node (connections that break and come back, their readers and writers,
// kernels, the store of early frames, callers) is a model whose every delay and every choice comes
// from the seed.
//
// A run fails when a result differs by a bit from the declared order (test/order), when
// memory is touched that must not be, when a limit is passed, when two ranks run a seq under
// different tables, or when nothing is left to happen while an operation is open.
package sim

import (
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"

	"github.com/polyrail/polyrail/collective/peer"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/collective/task"
)

// maxEvents ends a run that goes on for ever: the longest ones need a few hundred thousand.
const maxEvents = 20_000_000

// Stats counts what a run met, so that a test can see that the seeds reach everything.
type Stats struct {
	Seeds      int
	Events     int
	Operations int // operations that all ranks finished
	Frames     int // data frames sent
	Early      int // of them, stored before their operation began
	Borrowed   int // of them, read from user memory or scratch until acknowledged
	Torn       int // of them, broke off in the middle and came again
	Resent     int // frames that went again over another connection
	Strayed    int // frames that another rail carried than the one that they were planned for, which was up
	Starved    int // waits for eager credit
	Capped     int // times that a writer left frames because too much was in flight
	Cuts       int // connections that broke
	Tables     int // committed
	Switched   int // operations under a table other than the first
	TooLate    int // answers
	Held       int // calls that waited for a table
	SpansPast  int // operations with more spans on a lane than their window
	Narrowed   int // of them, with a smaller window than their rank's
	Uneven     int // operations whose parts callers gave
	Ahead      int // operations that a frame came for before so many others were begun, at most
	Skipped    int // of one rank, in which blocks take no part in some spans
	Ran        Ran // operations by kind and algorithm

	Measured   int // runs whose tables come of measurements
	Sets       int // of windows that they were made of
	LateTables int // in the last third of such a run
	Restless   int // runs with too many of them
}

func (s *Stats) add(o *Stats) {
	s.Seeds += o.Seeds
	s.Events += o.Events
	s.Operations += o.Operations
	s.Frames += o.Frames
	s.Early += o.Early
	s.Starved += o.Starved
	s.Capped += o.Capped
	s.Borrowed += o.Borrowed
	s.Torn += o.Torn
	s.Resent += o.Resent
	s.Strayed += o.Strayed
	s.Cuts += o.Cuts
	s.Tables += o.Tables
	s.Switched += o.Switched
	s.TooLate += o.TooLate
	s.Held += o.Held
	s.SpansPast += o.SpansPast
	s.Narrowed += o.Narrowed
	s.Uneven += o.Uneven
	s.Ahead = max(s.Ahead, o.Ahead)
	s.Skipped += o.Skipped
	s.Ran.add(&o.Ran)
	s.Measured += o.Measured
	s.Sets += o.Sets
	s.LateTables += o.LateTables
	s.Restless += o.Restless
}

// Sim runs one seed after another, reusing its memory. It is not safe for concurrent use.
type Sim struct {
	Measured bool    // tables are what a balancer makes of the ranks' measurements; else they are invented
	Chosen   *Chosen // cuts that aren't left to the seed; nil: none
	Ranks    int     // many, which meet when they first send to each other; 0: the seed says how many

	log   io.Writer // nil: no log
	stats Stats

	// Of one run.
	rng    *rand.Rand
	source *rand.PCG
	setup  setup
	queue  queue
	now    uint64
	ranks  []*rank
	calls  []*call // by seq-1
	sides  []*side // by (me, other); nil: they have not met
	pairs  []*side // one of each two that have
	helm
	wereMade []bool // which of the chosen cuts were

	// Kept between runs.
	programs map[schedule.Spec]*schedule.Program
	layouts  map[string]*schedule.Hosts // by where ranks run
	floats   floatPool
	frames   []*frame
	tasks    []*task.Task
	kept     []*peer.Effects[*frame]
}

// New makes a simulator that writes what happens to log, if that isn't nil.
func New(log io.Writer) *Sim {
	source := rand.NewPCG(0, 0)
	return &Sim{log: log, source: source, rng: rand.New(source),
		programs: make(map[schedule.Spec]*schedule.Program), layouts: make(map[string]*schedule.Hosts)}
}

// Stats is the sum over all runs.
func (s *Sim) Stats() Stats { return s.stats }

// failure is what fail panics with: the run ends at the first thing that is wrong.
type failure struct{ error }

func (s *Sim) fail(format string, args ...any) {
	panic(failure{fmt.Errorf(format, args...)})
}

func (s *Sim) failIf(err error, format string, args ...any) {
	if err != nil {
		panic(failure{fmt.Errorf(format+": %w", append(args, err)...)})
	}
}

func (s *Sim) schedule(e event) { s.queue.push(e) }

func (s *Sim) logf(format string, args ...any) {
	if s.log != nil {
		fmt.Fprintf(s.log, "%8d  %s\n", s.now, fmt.Sprintf(format, args...))
	}
}

// Run plays one seed. An error says what went wrong, at which rank and seq.
func (s *Sim) Run(seed uint64) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = fmt.Errorf("time %d: %w", s.now, r.error)
		default: // a core's own assertion; the seed is worth more than the crash
			err = fmt.Errorf("time %d: panic: %v\n%s", s.now, r, debug.Stack())
		}
	}()
	s.start(seed)
	for range maxEvents {
		e, ok := s.queue.pop()
		if !ok {
			s.finish()
			return nil
		}
		s.now = e.at
		s.stats.Events++
		s.handle(&e)
	}
	s.fail("still going on after %d events", maxEvents)
	return nil
}

// start sets the scene.
func (s *Sim) start(seed uint64) {
	s.source.Seed(seed, 0x706f6c797261696c)
	s.queue.reset()
	s.now = 0
	s.setup = s.draw()
	switch {
	case s.Measured:
		s.setup = s.drawMeasured()
	case s.Chosen != nil:
		s.drawChosen()
	default:
		if s.Ranks > 0 {
			s.drawMany()
			clear(s.programs) // a program of each of many ranks is much, and seldom met again
		}
		s.setup.hosts = s.drawHosts(s.setup.ranks)
	}
	s.calls = s.calls[:0]
	for range s.setup.calls {
		s.calls = append(s.calls, s.drawCall())
	}
	s.logf("seed %d: %+v", seed, s.setup)
	s.ranks = s.ranks[:0]
	first := s.drawTable()
	if s.Measured || s.Chosen != nil {
		first = s.equalTable()
	}
	first.Version = 1
	for id := range s.setup.ranks {
		s.ranks = append(s.ranks, s.newRank(id, first))
	}
	s.connectAll()
	s.startControl(first)
	for _, r := range s.ranks {
		s.wake(r)
	}
	s.ranks[0].leader = table.NewLeader(s.setup.ranks, s.ranks[0].member)
	for range s.setup.proposals {
		s.schedule(event{kind: tableProposed, at: s.some(s.setup.span)})
	}
	for range s.setup.cuts {
		s.schedule(event{kind: connectionCut, at: s.some(s.setup.span)})
	}
}

func (s *Sim) handle(e *event) {
	switch e.kind {
	case callerWakes:
		s.call(e.rank)
	case tableProposed:
		s.propose()
	case selfDelivers:
		s.control(e.frame)
		s.release(e.frame)
	case packetArrives:
		s.arrive(e.end)
	case packetRead:
		s.read(e.end)
	case writerLetsGo:
		s.written(e.end)
	case streamEnds:
		if !e.end.closed {
			s.lost(e.end)
		}
	case quiesces:
		s.quiesced(e.end)
	case ackIsDue:
		s.ackDue(e.end)
	case kernelDone:
		s.kernel(e.part, e.job)
	case connectionCut:
		s.cut()
	case chosenCut:
		s.sever(e.end)
	case reconnects:
		s.connect(e.side, e.rail)
	}
}

// finish checks that nothing is left over when nothing is left to happen.
func (s *Sim) finish() {
	for _, r := range s.ranks {
		if r.called < s.setup.calls || len(r.open) > 0 {
			s.fail("deadlock: nothing is left to happen, rank %d has called %d of %d operations, open are %v", r.id, r.called, s.setup.calls, r.openSeqs())
		}
		s.leftovers(r)
	}
	if s.ranks[0].leader.Pending() {
		s.fail("deadlock: a table is proposed and not committed")
	}
	for i, r := range s.ranks {
		if r.member.Table() != s.ranks[0].member.Table() {
			s.fail("rank %d ends with table version %d, rank 0 with %d", i,
				r.member.Table().Version, s.ranks[0].member.Table().Version)
		}
	}
	s.settled()
	s.allMet()
	s.stats.Seeds++
	s.stats.Operations += s.setup.calls
	for _, c := range s.calls {
		s.stats.Ran[c.kind][c.algorithm]++
		s.forget(c)
	}
}
