package polyrail_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
)

// shrink lets some nodes shrink their communicators, and returns what each has then.
func (b *bed) shrink(comms []*Communicator, nodes ...int) (rest []*Communicator, ranges []SeqRange, errs []error) {
	rest, ranges, errs = make([]*Communicator, len(comms)), make([]SeqRange, len(comms)), make([]error, len(comms))
	var all sync.WaitGroup
	for _, i := range nodes {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
			defer cancel()
			rest[i], ranges[i], errs[i] = comms[i].Shrink(ctx)
		})
	}
	all.Wait()
	return rest, ranges, errs
}

// goOn checks that these nodes, and no others, are the members of their communicators, and sums
// over them.
func (b *bed) goOn(comms []*Communicator, errs []error, nodes ...int) {
	b.t.Helper()
	var names []string
	for _, i := range nodes {
		names = append(names, b.Configs[i].Name)
	}
	for rank, i := range nodes {
		if errs[i] != nil {
			b.t.Fatalf("node %d: %v\n%s", i, errs[i], b.log)
		}
		c := comms[i]
		if c.Rank() != rank || c.Name() != "train" || !slices.Equal(c.Nodes(), names) {
			b.t.Fatalf("node %d is rank %d of %q: %v, want rank %d of %v", i, c.Rank(), c.Name(), c.Nodes(), rank, names)
		}
	}
	for _, size := range []int{1, 1000, 500_000} {
		var all sync.WaitGroup
		for rank, i := range nodes {
			all.Go(func() {
				buf := operand(rank, size)
				err := AllReduce(b.t.Context(), comms[i], buf, Sum)
				if err == nil {
					err = checkSum(buf, len(nodes))
				}
				if err != nil {
					b.t.Errorf("node %d: %v", i, err)
				}
			})
		}
		all.Wait()
	}
}

// breakInMidOperation kills nodes while they are at a large operation with the survivors. The last of
// these comes to it afterwards: it can't be over before.
func (b *bed) breakInMidOperation(comms []*Communicator, dead ...int) {
	b.t.Helper()
	<-time.After(time.Second) // until all know of each other by gossip, not only of the seed, which may be the one to die
	var all, killed sync.WaitGroup
	killed.Add(len(dead))
	late := len(comms) - 1
	for comms[late] == nil || slices.Contains(dead, late) {
		late--
	}
	for i, c := range comms {
		if c == nil {
			continue
		}
		all.Go(func() {
			if slices.Contains(dead, i) { // it is at the operation with the others when it dies
				w, err := StartAllReduce(b.t.Context(), c, operand(i, 2_000_000), Sum)
				b.Kill(i)
				killed.Done()
				if err == nil {
					<-w.Done()
				}
				return
			}
			if i == late {
				killed.Wait()
			}
			err := AllReduce(b.t.Context(), c, operand(i, 2_000_000), Sum)
			if !errors.Is(err, ErrRankLost) {
				b.t.Errorf("node %d: %v, want a lost rank", i, err)
			}
		})
	}
	all.Wait()
}

func TestSurvivorsShrinkAndGoOnWithRightSums(t *testing.T) {
	for dead := range 4 {
		t.Run(fmt.Sprintf("dead=%d", dead), func(t *testing.T) {
			inBed(t, 4, 2, nil, func(b *bed) {
				comms := b.form("train")
				b.each(func(i int) error { return comms[i].Barrier(b.t.Context()) })
				b.breakInMidOperation(comms, dead)
				left := slices.DeleteFunc([]int{0, 1, 2, 3}, func(i int) bool { return i == dead })
				start := time.Now()
				rest, ranges, errs := b.shrink(comms, left...)
				if took := time.Since(start); took > time.Second {
					t.Errorf("it took %v", took)
				}
				b.goOn(rest, errs, left...)
				for _, i := range left {
					// Seq 1 formed it, 2 was the barrier, 3 nobody finished.
					if ranges[i] != (SeqRange{First: 3, Last: 2}) || !ranges[i].Empty() {
						t.Errorf("node %d: uneven %+v", i, ranges[i])
					}
					if err := AllReduce(b.t.Context(), comms[i], []float32{1}, Sum); !errors.Is(err, ErrClosed) {
						t.Errorf("the old communicator: %v, want closed", err)
					}
					if err := comms[i].Close(b.t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

func TestMajorityRule(t *testing.T) {
	t.Run("half with rank 0", func(t *testing.T) {
		inBed(t, 4, 1, nil, func(b *bed) {
			comms := b.form("train")
			b.breakInMidOperation(comms, 2, 3)
			rest, _, errs := b.shrink(comms, 0, 1)
			b.goOn(rest, errs, 0, 1)
		})
	})
	t.Run("half without rank 0", func(t *testing.T) {
		inBed(t, 4, 1, nil, func(b *bed) {
			comms := b.form("train")
			b.breakInMidOperation(comms, 0, 1)
			_, _, errs := b.shrink(comms, 2, 3)
			for _, i := range []int{2, 3} {
				var e *MinorityError
				if !errors.Is(errs[i], ErrMinority) || !errors.As(errs[i], &e) || !slices.Equal(e.Missing, []string{"node0", "node1"}) || e.Of != 4 {
					t.Errorf("node %d: %v, want a minority of 4", i, errs[i])
				}
			}
		})
	})
}

func TestShrinkingTwice(t *testing.T) {
	inBed(t, 5, 2, nil, func(b *bed) {
		comms := b.form("train")
		b.breakInMidOperation(comms, 1)
		rest, _, errs := b.shrink(comms, 0, 2, 3, 4)
		b.goOn(rest, errs, 0, 2, 3, 4)
		b.breakInMidOperation(rest, 0)
		rest, _, errs = b.shrink(rest, 2, 3, 4)
		b.goOn(rest, errs, 2, 3, 4)
	})
}

func TestShrinkWithoutALossKeepsEverybody(t *testing.T) {
	inBed(t, 3, 2, nil, func(b *bed) {
		comms := b.form("train")
		b.failures(func(i int) error { // one rank calls something else
			return AllReduce(b.t.Context(), comms[i], make([]float32, 10+i/2), Sum)
		})
		rest, _, errs := b.shrink(comms, 0, 1, 2)
		b.goOn(rest, errs, 0, 1, 2)
	})
}

func TestShrinkEndsWhatTheOthersAreAt(t *testing.T) {
	inBed(t, 3, 1, nil, func(b *bed) {
		comms := b.form("train")
		b.each(func(i int) error {
			if i == 0 {
				rest, _, err := comms[0].Shrink(b.t.Context())
				comms[0] = rest
				return err
			}
			if err := AllReduce(b.t.Context(), comms[i], make([]float32, 100_000), Sum); !errors.Is(err, ErrAborted) || !strings.Contains(err.Error(), "shrinks") {
				return fmt.Errorf("%w, want it aborted by who shrinks", err)
			}
			rest, _, err := comms[i].Shrink(b.t.Context())
			comms[i] = rest
			return err
		})
		b.goOn(comms, make([]error, 3), 0, 1, 2)
	})
}

func TestARankThatNeverShrinksIsNamed(t *testing.T) {
	inBed(t, 3, 1, nil, func(b *bed) {
		comms := b.form("train")
		_, _, errs := b.shrink(comms, 0, 1)
		for _, i := range []int{0, 1} {
			if !errors.Is(errs[i], ErrView) || !errors.Is(errs[i], context.DeadlineExceeded) || !strings.Contains(errs[i].Error(), "node2") {
				t.Errorf("node %d: %v, want node2 named", i, errs[i])
			}
		}
		rest, _, errs := b.shrink(comms, 0, 1, 2) // nothing is decided: it can be done again
		b.goOn(rest, errs, 0, 1, 2)
	})
}

func TestARankThatClosesInsteadIsNotWaitedFor(t *testing.T) {
	inBed(t, 3, 1, nil, func(b *bed) {
		comms := b.form("train")
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
		defer cancel()
		if err := comms[2].Close(ctx); err != nil {
			t.Fatal(err)
		}
		rest, _, errs := b.shrink(comms, 0, 1)
		b.goOn(rest, errs, 0, 1)
		if _, _, err := comms[2].Shrink(b.t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("%v, want closed", err)
		}
	})
}

func TestANodeThatLeavesIsNotWaitedFor(t *testing.T) {
	inBed(t, 3, 1, nil, func(b *bed) {
		comms := b.form("train")
		go func() {
			<-time.After(2 * time.Second) // while the others wait for it
			b.Nodes[2].Close(b.t.Context())
		}()
		rest, _, errs := b.shrink(comms, 0, 1)
		b.goOn(rest, errs, 0, 1)
	})
}

// A rank that finished an operation of which another one lacks the result shows in the range.
func TestTheRangeTellsWhatNotAllHaveFinished(t *testing.T) {
	inBed(t, 3, 1, nil, func(b *bed) {
		comms := b.form("train")
		const operations = 20
		finished := make([]uint64, 3)
		b.each(func(i int) error {
			if i == 2 {
				<-time.After(50 * time.Millisecond)
				for range operations / 2 {
					if err := AllReduce(b.t.Context(), comms[i], []float32{1}, Sum); err != nil {
						return err
					}
				}
				b.Kill(2)
				return nil
			}
			for range operations {
				w, err := StartAllReduce(b.t.Context(), comms[i], []float32{1}, Sum)
				if err != nil {
					return nil
				}
				if w.Wait(b.t.Context()) == nil {
					finished[i] = w.Seq()
				}
			}
			return nil
		})
		rest, ranges, errs := b.shrink(comms, 0, 1)
		b.goOn(rest, errs, 0, 1)
		want := SeqRange{First: min(finished[0], finished[1]) + 1, Last: max(finished[0], finished[1])}
		if ranges[0] != want || ranges[1] != want {
			t.Errorf("%+v, %+v, want %+v (finished %v)", ranges[0], ranges[1], want, finished)
		}
	})
}

func TestGroupsGrowAgainByName(t *testing.T) {
	inBed(t, 4, 2, nil, func(b *bed) {
		comms := b.form("train")
		for round := range 5 {
			dead := round % 4
			b.breakInMidOperation(comms, dead)
			left := slices.DeleteFunc([]int{0, 1, 2, 3}, func(i int) bool { return i == dead })
			rest, _, errs := b.shrink(comms, left...)
			b.goOn(rest, errs, left...)
			b.restart(dead)
			b.each(func(i int) error {
				if i == dead {
					return nil
				}
				return rest[i].Close(b.t.Context())
			})
			comms = b.form("train")
			b.goOn(comms, make([]error, 4), 0, 1, 2, 3)
		}
	})
}
