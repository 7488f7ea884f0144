package measure

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/polyrail/polyrail/collective/op"

	"github.com/polyrail/polyrail/cmd/node/internal/osu"
	"github.com/polyrail/polyrail/cmd/node/internal/pattern"
)

// board is a group of ranks in one process that sums int32 through shared memory.
type board struct {
	n       int
	mu      sync.Mutex
	turn    *sync.Cond
	arrived int
	round   int
	sum     []int64
	done    []int64

	spoil int // the all-reduce, counted per rank from 1, whose first element comes out wrong
	fail  int // the one that fails
	err   error

	scribble bool // operations change an element of their operand
}

func newBoard(n int) *board {
	b := &board{n: n}
	b.turn = sync.NewCond(&b.mu)
	return b
}

// exchange adds v into the board's sum and returns the sum over all ranks.
func (b *board) exchange(v []int64) []int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sum == nil {
		b.sum = make([]int64, len(v))
	}
	for i := range v {
		b.sum[i] += v[i]
	}
	b.arrived++
	if b.arrived == b.n {
		b.done, b.sum, b.arrived = b.sum, nil, 0
		b.round++
		b.turn.Broadcast()
		return b.done
	}
	for round := b.round; b.round == round; {
		b.turn.Wait()
	}
	return b.done
}

type rank struct {
	*board
	number   int
	calls    int
	barriers int
	sums     []int64 // the first element of each sum
	sent     map[string]int64
}

func (r *rank) Rank() int { return r.number }
func (r *rank) Size() int { return r.n }

func (r *rank) Barrier(context.Context) error {
	r.barriers++
	r.exchange(nil)
	return nil
}

func (r *rank) Sum(_ context.Context, v []int64) error {
	copy(v, r.exchange(v))
	r.sums = append(r.sums, v[0])
	return nil
}

func (r *rank) Operate(_ context.Context, dst, src []byte) error {
	r.calls++
	if r.calls == r.fail {
		return r.err
	}
	v := make([]int64, len(src)/4)
	for i := range v {
		v[i] = int64(int32(binary.NativeEndian.Uint32(src[4*i:])))
	}
	for i, s := range r.exchange(v) {
		binary.NativeEndian.PutUint32(dst[4*i:], uint32(s))
	}
	if r.scribble {
		src[4] ^= 1
	}
	if r.calls == r.spoil {
		dst[0]++
	}
	r.sent["a"] += 3
	r.sent["b"]++
	return nil
}

func (r *rank) RailBytes() map[string]int64 {
	return map[string]int64{"a": r.sent["a"], "b": r.sent["b"]}
}

// measureAll runs the measurement on all ranks of b and returns rank 0's result.
func measureAll(t *testing.T, b *board, c Config) (osu.Result, []*rank, error) {
	t.Helper()
	ranks := make([]*rank, b.n)
	results := make([]osu.Result, b.n)
	errs := make([]error, b.n)
	var all sync.WaitGroup
	for i := range ranks {
		ranks[i] = &rank{board: b, number: i, sent: map[string]int64{"a": 1000}}
		p, err := pattern.New(op.Int32, op.Sum, b.n)
		if err != nil {
			t.Fatal(err)
		}
		c := c
		c.Op, c.Bus, c.Pattern = "allreduce", osu.BusTwice, p
		all.Go(func() { results[i], errs[i] = Run(t.Context(), ranks[i], c) })
	}
	all.Wait()
	return results[0], ranks, errors.Join(errs...)
}

// allReduce is the shape of an allreduce of int32 over n ranks.
func allReduce(bytes, n int) Shape {
	return Shape{Bytes: bytes, Source: bytes, Destination: bytes,
		Result: []pattern.Part{{Ranks: pattern.Ranks{Last: op.Rank(n - 1)}, Elements: bytes / 4}}}
}

func TestTheWarmUpIsAsLongAsAskedFor(t *testing.T) {
	for _, warmUp := range []int{0, 1, 20} {
		r, ranks, err := measureAll(t, newBoard(2), Config{Shape: allReduce(400, 2), WarmUp: warmUp})
		if err != nil {
			t.Fatal(err)
		}
		if got := ranks[1].calls - r.Iterations; got != warmUp || r.Iterations != minIterations {
			t.Errorf("--warmup %d: %d operations more than the %d that were measured", warmUp, got, r.Iterations)
		}
	}
}

// The time of an operation is not known then. It was taken for the time of an empty loop, and a
// hundred thousand operations were planned at once.
func TestWithoutAWarmUpTheFirstOperationsAreFew(t *testing.T) {
	b := newBoard(1)
	b.fail, b.err = minIterations+1, errors.New("enough")
	_, ranks, err := measureAll(t, b, Config{Shape: allReduce(400, 1), WarmUp: 0, MinTime: time.Hour})
	if !errors.Is(err, b.err) || ranks[0].sums[0] != minIterations {
		t.Errorf("%v; the first %d operations were planned at once, want %d", err, ranks[0].sums[0], minIterations)
	}
}

func TestAnOperandThatChangedIsCounted(t *testing.T) {
	b := newBoard(2)
	b.scribble = true
	r, _, err := measureAll(t, b, Config{Shape: allReduce(400, 2), WarmUp: 0})
	if err != nil {
		t.Fatal(err)
	}
	if r.Errors < 2 {
		t.Errorf("%d errors: both ranks' operands have changed", r.Errors)
	}
}

func TestRanksDoTheSameIterationsAndCountNoErrors(t *testing.T) {
	r, ranks, err := measureAll(t, newBoard(3), Config{Shape: allReduce(400, 3), WarmUp: -1, MinTime: time.Millisecond, CheckAll: true})
	if err != nil {
		t.Fatal(err)
	}
	if r.Iterations < minIterations || r.Ranks != 3 || r.Bytes != 400 || r.Errors != 0 {
		t.Errorf("result %+v", r)
	}
	const warmUp = 1 + 5
	for _, k := range ranks {
		if k.calls != warmUp+r.Iterations {
			t.Errorf("rank %d did %d operations, want %d", k.number, k.calls, warmUp+r.Iterations)
		}
		if k.barriers != 1+r.Iterations {
			t.Errorf("rank %d did %d barriers for %d iterations", k.number, k.barriers, r.Iterations)
		}
	}
	if r.Shares["a"] != 0.75 || r.Shares["b"] != 0.25 {
		t.Errorf("shares %v include what was sent before, or other than sent", r.Shares)
	}
}

func TestAWrongElementIsCountedOnEveryRank(t *testing.T) {
	b := newBoard(3)
	b.spoil = 6 + 2 // the second iteration after the warm-up
	r, _, err := measureAll(t, b, Config{Shape: allReduce(4000, 3), WarmUp: -1, CheckAll: true})
	if err != nil {
		t.Fatal(err)
	}
	if r.Iterations != minIterations || r.Errors != 3 {
		t.Errorf("%d errors in %d iterations, want one on each of 3 ranks", r.Errors, r.Iterations)
	}
}

func TestWithoutCheckTheLastResultIsVerified(t *testing.T) {
	for spoiled, want := range map[int]int64{6 + minIterations: 2, 6 + 1: 0} {
		b := newBoard(2)
		b.spoil = spoiled
		r, _, err := measureAll(t, b, Config{Shape: allReduce(4000, 2), WarmUp: -1})
		if err != nil {
			t.Fatal(err)
		}
		if r.Errors != want {
			t.Errorf("operation %d spoiled: %d errors, want %d", spoiled, r.Errors, want)
		}
	}
}

func TestAFailureNamesTheSize(t *testing.T) {
	b := newBoard(1)
	b.fail, b.err = 3, errors.New("rank 2 lost")
	_, _, err := measureAll(t, b, Config{Shape: allReduce(400, 1), WarmUp: -1})
	if !errors.Is(err, b.err) || err.Error() != "allreduce of 400 bytes: rank 2 lost" {
		t.Errorf("error %v", err)
	}
}

func TestIterationsFillTheTime(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name       string
		bytes      int
		done       int
		each, left time.Duration
		want       int
	}{
		{"first guess is halved", 8, 0, ms, 1000 * ms, 501},
		{"then what is left", 8, 500, 2 * ms, 100 * ms, 51},
		{"time is up", 8, 500, ms, 0, 0},
		{"at least three", 8, 0, ms, 0, 3},
		{"at least one when large", 64 << 20, 0, ms, 0, 1},
		{"one was enough", 64 << 20, 1, ms, -ms, 0},
		{"never more than the limit", 8, 0, 1, time.Hour, MaxIterations},
		{"without a warm-up the least first", 8, 0, 0, time.Hour, minIterations},
		{"the limit is on all of them", 8, MaxIterations, ms, time.Hour, 0},
	} {
		if got := nextIterations(c.bytes, c.done, c.each, c.left); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
