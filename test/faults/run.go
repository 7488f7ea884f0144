package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/test/testbed"
)

// Event is something that happened, for a time line.
type Event struct {
	At   time.Duration // since the communicator was formed
	Text string
}

// Taken is a step that was taken, and whether it was felt: connections broke, bytes were held, delayed …
type Taken struct {
	Step
	Seen int64
}

// Report is what a run has come to.
type Report struct {
	Operations int                     // that rank 0 finished, the small ones that agree on going on not counted
	Slowest    time.Duration           // of them
	Taken      []Taken                 // ascending by time
	Rails      [][]polyrail.RailStatus // by node, at the end
}

// Unfelt are the steps that should have been felt by somebody and were not: a test whose
// fault was not seen has tested nothing.
func (r *Report) Unfelt() (steps []Step) {
	for _, t := range r.Taken {
		if t.Seen == 0 && t.Do != Heal && t.Do != Unite && (t.Do != Delay || t.Duration > 0) && (t.Do != Rate || t.Bytes > 0) {
			steps = append(steps, t.Step)
		}
	}
	return steps
}

// Run plays a scenario. An error says what came out otherwise than it had to: a wrong element, an
// operation that failed or hung, a rank that was lost though it lived or was not missed though it
// was gone.
func Run(ctx context.Context, s Scenario, o Options) (*Report, error) {
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	if i := slices.IndexFunc(s.Steps, func(x Step) bool { return x.Do == Unplug }); o.Loopback && i >= 0 {
		return nil, fmt.Errorf("scenario: %v: loopback has no link that can be unplugged", s.Steps[i])
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &run{s: s, o: o, report: &Report{}, over: make(chan struct{}), stepped: make(chan struct{}),
		whole: wholeNumbers(s.Nodes), floating: floatingPoint(s.Nodes)}
	var err error
	if r.bed, err = newBed(ctx, s, o); err != nil {
		return r.report, err
	}
	err = r.play(ctx)
	for _, n := range r.bed.Nodes {
		r.report.Rails = append(r.report.Rails, n.Rails())
	}
	if closing := r.bed.close(); closing != nil && err == nil {
		err = fmt.Errorf("closing: %w", closing)
	}
	return r.report, err
}

// run is a scenario in play.
type run struct {
	s      Scenario
	o      Options
	bed    *bed
	report *Report
	begin  time.Time
	seen   []func() int64 // by Taken: counts what the step has done

	whole    *references[uint64]
	floating *references[float64]

	over    chan struct{} // closed when the ranks have ended
	stepped chan struct{} // closed when all steps were taken

	mu sync.Mutex // of Options.Report
}

func (r *run) say(format string, args ...any) {
	if r.o.Report == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.o.Report(Event{At: time.Since(r.begin), Text: fmt.Sprintf(format, args...)})
}

func (r *run) play(ctx context.Context) error {
	r.begin = time.Now()
	comms, err := r.bed.form(ctx, "faults")
	if err != nil {
		return err
	}
	r.begin = time.Now()
	r.say("%d ranks over %d rails have formed a communicator", r.s.Nodes, r.s.Rails)
	var stepper sync.WaitGroup
	stepper.Go(func() { r.takeSteps(ctx) })
	errs := make([]error, len(comms))
	var ranks sync.WaitGroup
	for i, c := range comms {
		ranks.Go(func() {
			errs[i] = r.work(ctx, i, c)
			if errs[i] != nil {
				r.say("%s ended: %v", testbed.NodeName(i), errs[i])
			}
		})
	}
	ranks.Wait()
	close(r.over)
	stepper.Wait()
	for i, seen := range r.seen {
		r.report.Taken[i].Seen = seen()
	}
	if err := r.judge(errs); err != nil || r.s.Broken < 0 {
		return err
	}
	return r.goOn(ctx)
}

// goOn shows that nodes live on after their communicator broke: they form another one and use it.
func (r *run) goOn(ctx context.Context) error {
	comms, err := r.bed.form(ctx, "faults again")
	if err != nil {
		return fmt.Errorf("after it was broken: %w", err)
	}
	r.say("another communicator is formed")
	return testbed.Each(len(comms), func(i int) error {
		for k := range r.s.Sizes {
			if err := r.limited(ctx, func(ctx context.Context) error { return r.operation(ctx, i, k, comms[i]) }); err != nil {
				return fmt.Errorf("%s, after it was broken, operation %d: %w", testbed.NodeName(i), k, err)
			}
		}
		return comms[i].Close(ctx)
	})
}

// takeSteps takes the steps when it is time, until the ranks have ended.
func (r *run) takeSteps(ctx context.Context) {
	defer close(r.stepped)
	for _, s := range r.s.Steps {
		timer := time.NewTimer(s.At - time.Since(r.begin))
		select {
		case <-timer.C:
		case <-r.over:
			timer.Stop()
			return
		case <-ctx.Done():
			timer.Stop()
			return
		}
		_, what, _ := strings.Cut(s.String(), s.At.String()+" ")
		r.say("%s", what)
		r.seen = append(r.seen, r.bed.apply(s))
		r.report.Taken = append(r.report.Taken, Taken{Step: s})
	}
}

// judge holds what the ranks ended with against what was to be expected.
func (r *run) judge(errs []error) error {
	var wrong []error
	for i, err := range errs {
		var lost *polyrail.RankLostError
		if errors.As(err, &lost) {
			r.missed(lost.Node)
		}
		switch {
		case r.s.Broken >= 0:
			wrong = append(wrong, r.judgeBroken(i, err))
		case i == r.s.Lost:
		case err == nil && r.s.Lost >= 0:
			wrong = append(wrong, fmt.Errorf("%s: did not miss %s", testbed.NodeName(i), testbed.NodeName(r.s.Lost)))
		case err == nil:
		case r.s.Lost < 0:
			wrong = append(wrong, fmt.Errorf("%s: %w", testbed.NodeName(i), err))
		case errors.Is(err, errWrong) || lost == nil && !errors.Is(err, polyrail.ErrAborted) || lost != nil && lost.Node != testbed.NodeName(r.s.Lost):
			wrong = append(wrong, fmt.Errorf("%s: did not miss %s, but ended with %w", testbed.NodeName(i), testbed.NodeName(r.s.Lost), err))
		}
	}
	return errors.Join(wrong...)
}

// judgeBroken: a rank whose communicator was to break must say whose failure it was.
func (r *run) judgeBroken(rank int, err error) error {
	switch culprit := testbed.NodeName(r.s.Broken); {
	case err == nil:
		return fmt.Errorf("%s: the failure of %s broke nothing", testbed.NodeName(rank), culprit)
	case rank == r.s.Broken && errors.Is(err, polyrail.ErrInternal):
	case rank != r.s.Broken && errors.Is(err, polyrail.ErrAborted) && strings.Contains(err.Error(), culprit):
	default:
		return fmt.Errorf("%s: does not blame %s, but ended with %w", testbed.NodeName(rank), culprit, err)
	}
	return nil
}

// missed: a rank was told that a node is lost.
func (r *run) missed(node string) {
	for i := range r.report.Taken {
		if t := &r.report.Taken[i]; (t.Do == Kill || t.Do == Stop) && testbed.NodeName(t.Nodes[0]) == node {
			t.Seen++
		}
	}
}
