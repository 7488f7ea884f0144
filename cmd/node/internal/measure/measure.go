// Package measure times a collective operation as OSU's benchmarks do: after a warm-up, one
// operation at a time, each after a barrier that is not timed.
//
// It owns the loop and what the ranks must agree on during it. The figures are
// package osu's, the operands package pattern's.
package measure

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/polyrail/polyrail/cmd/node/internal/osu"
	"github.com/polyrail/polyrail/cmd/node/internal/pattern"
	"github.com/polyrail/polyrail/collective/op"
)

// Group is the communicator under test, seen from one rank.
type Group interface {
	Ranks // to agree on iterations and to share counts
	Size() int
	Barrier(ctx context.Context) error
	// Operate runs the operation that is measured.
	Operate(ctx context.Context, dst, src []byte) error
	// RailBytes is how many bytes this process has sent on each rail. All ranks have the same rails.
	RailBytes() map[string]int64
}

// Config is one size's measurement. It is the same on all ranks, but for the Shape.
type Config struct {
	Op      string  // its name in the result
	Bus     osu.Bus // its factor
	MinTime time.Duration
	// WarmUp is the number of operations before those that are measured; negative: by size.
	WarmUp int
	// CheckAll verifies the result of each iteration; otherwise only the last one's is.
	CheckAll bool
	Shape    Shape
	Pattern  *pattern.Pattern
}

// Shape is the memory that a rank has in the operation.
type Shape struct {
	Bytes               int            // of the operation: the larger one of a rank's input and output
	Source, Destination int            // bytes, whole numbers of elements
	Result              []pattern.Part // what the destination has to hold
}

// MaxIterations bounds the operations of a size, whatever Config.MinTime is: each has its time kept.
const MaxIterations = MaxBatch

const (
	minIterations = 3
	// A single operation on buffers above oneIterationBytes takes long enough.
	oneIterationBytes = 32 << 20
)

// Run measures one size. The figures on rank 0 are the result; on other ranks the times
// are their own. An error is the operation's, with the size.
func Run(ctx context.Context, g Group, c Config) (osu.Result, error) {
	m := &run{g: g, c: c, src: make([]byte, c.Shape.Source), dst: make([]byte, c.Shape.Destination)}
	c.Pattern.Fill(op.Rank(g.Rank()), m.src)
	poison(m.dst)
	result, err := m.measure(ctx)
	if err != nil {
		return osu.Result{}, fmt.Errorf("%s of %d bytes: %w", c.Op, c.Shape.Bytes, err)
	}
	return result, nil
}

type run struct {
	g        Group
	c        Config
	src, dst []byte

	times          []time.Duration
	cpu            time.Duration // of this process, during the operations that were sampled
	sampled        int
	checked, wrong int64 // elements, here
}

func (m *run) measure(ctx context.Context) (osu.Result, error) {
	perIteration, err := m.warmUp(ctx)
	if err != nil {
		return osu.Result{}, err
	}
	before := m.g.RailBytes()
	next := func(done int, took time.Duration) (int, error) {
		each := perIteration
		if done > 0 {
			each = took / time.Duration(done)
		}
		return nextIterations(m.c.Shape.Bytes, done, each, m.c.MinTime-took), nil
	}
	if err := Loop(ctx, m.g, next, m.iterate); err != nil {
		return osu.Result{}, err
	}
	after := m.g.RailBytes()
	if !m.c.CheckAll {
		m.check()
	}
	return m.collect(ctx, before, after)
}

// warmUp runs the operation untimed: the first call makes connections and touches
// pages. It returns what a call takes, 0 if there was none.
func (m *run) warmUp(ctx context.Context) (time.Duration, error) {
	if err := m.g.Barrier(ctx); err != nil {
		return 0, err
	}
	times := m.c.WarmUp
	if times < 0 {
		times = warmUps(m.c.Shape.Bytes)
	}
	took, err := m.repeat(ctx, min(times, 1))
	if err != nil || times <= 1 {
		return took, err
	}
	return m.repeat(ctx, times-1)
}

// warmUps is the default number of operations before those that are measured.
func warmUps(bytes int) int {
	switch {
	case bytes <= 64<<10:
		return 6
	case bytes <= 4<<20:
		return 3
	}
	return 1
}

// repeat runs operations and returns what each took, 0 if there were none.
func (m *run) repeat(ctx context.Context, times int) (each time.Duration, err error) {
	if times == 0 {
		return 0, nil
	}
	start := time.Now()
	for range times {
		if err := m.g.Operate(ctx, m.dst, m.src); err != nil {
			return 0, err
		}
	}
	return time.Since(start) / time.Duration(times), nil
}

// nextIterations is how many iterations fill the time that is left. The first guess is halved: the
// warm-up did not include the barriers. Without a warm-up (each is 0) it is the least.
func nextIterations(bytes, done int, each, left time.Duration) int {
	least := minIterations
	if bytes > oneIterationBytes {
		least = 1
	}
	if done >= least && left <= 0 {
		return 0
	}
	n := int64(max(left, 0)/max(each, 1)) + 1
	switch {
	case each == 0 && done == 0:
		n = int64(least)
	case done == 0:
		n = max((n+1)/2, int64(least))
	}
	return int(min(n, int64(MaxIterations-done)))
}

func (m *run) iterate(ctx context.Context, times int) error {
	for range times {
		if m.c.CheckAll {
			poison(m.dst)
		}
		if err := m.g.Barrier(ctx); err != nil {
			return err
		}
		operate := m.operate
		if n := len(m.times); n < cpuEvery || n%cpuEvery == 0 {
			operate = m.sample
		}
		if err := operate(ctx); err != nil {
			return err
		}
		if m.c.CheckAll {
			m.check()
		}
	}
	return nil
}

// cpuEvery is which part of many operations has its processor time taken: to ask for that takes
// 0.5 µs, which all ranks of a small operation wait for.
const cpuEvery = 16

// sample is operate, with its processor time.
func (m *run) sample(ctx context.Context) error {
	before := ProcessTime()
	err := m.operate(ctx)
	m.cpu += ProcessTime() - before
	m.sampled++
	return err
}

// operate runs an operation, timed.
func (m *run) operate(ctx context.Context) error {
	start := time.Now()
	if err := m.g.Operate(ctx, m.dst, m.src); err != nil {
		return err
	}
	m.times = append(m.times, time.Since(start))
	return nil
}

// check counts the wrong elements of the result, and those of the operand that have changed.
func (m *run) check() {
	own := pattern.Only(op.Rank(m.g.Rank()))
	operand := []pattern.Part{{Ranks: own, Elements: len(m.src) / m.c.Pattern.ElementBytes()}}
	m.wrong += int64(m.c.Pattern.Wrong(m.dst, m.c.Shape.Result) + m.c.Pattern.Wrong(m.src, operand))
	for _, part := range append(operand, m.c.Shape.Result...) {
		m.checked += int64(part.Elements)
	}
}

// collect sums up what the ranks counted, in one operation: elements, processor time, time, bytes
// per rail.
func (m *run) collect(ctx context.Context, before, after map[string]int64) (osu.Result, error) {
	rails := slices.Sorted(maps.Keys(after))
	var took time.Duration
	for _, t := range m.times {
		took += t
	}
	counts := []int64{m.wrong, m.checked, int64(m.cpu), int64(took)}
	fixed := len(counts)
	for _, rail := range rails {
		counts = append(counts, after[rail]-before[rail])
	}
	if err := m.g.Sum(ctx, counts); err != nil {
		return osu.Result{}, err
	}
	sent := make(map[string]int64, len(rails))
	for i, rail := range rails {
		sent[rail] = counts[fixed+i]
	}
	r := osu.NewResult(m.c.Op, m.c.Bus, m.g.Size(), m.c.Shape.Bytes, m.times, time.Duration(counts[3]))
	r.Errors, r.Checked = counts[0], counts[1]
	r.CPUMicros = float64(counts[2]) / float64(m.g.Size()) / float64(m.sampled) / float64(time.Microsecond)
	r.Shares = osu.Shares(sent)
	return r, nil
}

// poison makes a result that nobody wrote look wrong.
func poison(b []byte) {
	for i := range b {
		b[i] = 0xff
	}
}
