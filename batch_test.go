package polyrail_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/collective/op"
)

// lists are the lengths of batches: few and many, empty and uneven ones, small and large in sum.
var lists = map[string][]int{
	"no buffers":    {},
	"empty ones":    {0, 0},
	"one":           {100},
	"a few":         {1, 0, 17, 16, 15, 3},
	"many":          slices.Repeat([]int{1024}, 100),
	"up to a large": {1, 100_000, 7, 0, 33_333},
}

// rankList is a rank's buffers, in memory of their own each.
func rankList(rank int, lengths []int) [][]float32 {
	list := make([][]float32, len(lengths))
	for i, n := range lengths {
		list[i] = fickles(rank+10*i, n)
	}
	return list
}

// padded is a list as one buffer: each of its own on a multiple of 64 bytes.
func padded(list [][]float32) (buf []float32) {
	for _, b := range list {
		buf = append(buf, make([]float32, -len(buf)&15)...)
		buf = append(buf, b...)
	}
	return buf
}

func TestABatchEqualsOneOperationOverItsBuffers(t *testing.T) {
	for _, size := range []struct{ ranks, rails int }{{1, 1}, {2, 3}, {5, 2}} {
		t.Run(fmt.Sprintf("ranks=%d/rails=%d", size.ranks, size.rails), func(t *testing.T) {
			inBed(t, size.ranks, size.rails, func(c *Config) { c.SplitBytes = 0 }, func(b *bed) {
				comms := b.form("train")
				for _, a := range []Algorithm{Auto, Ring, RecursiveDoubling, Tree, Bcube} {
					for name, lengths := range lists {
						b.each(func(r int) error { return batchEqualsOne(b, comms[r], lengths, name, a) })
					}
				}
			})
		})
	}
}

// batchEqualsOne runs a batch by every form of the call, and compares the bits.
func batchEqualsOne(b *bed, c *Communicator, lengths []int, name string, a Algorithm) error {
	ctx, option := b.t.Context(), WithAlgorithm(a)
	want := padded(rankList(c.Rank(), lengths))
	if err := AllReduce(ctx, c, want, Sum, option); err != nil {
		return err
	}
	packed := func(list [][]float32) (p Batch) {
		p = Batch{DType: op.F32, Op: Sum}
		for _, buf := range list {
			p.Buffers = append(p.Buffers, op.Bytes(buf))
		}
		return p
	}
	for form, run := range []func(list [][]float32) error{
		func(list [][]float32) error { return AllReduceBatch(ctx, c, list, Sum, option) },
		func(list [][]float32) error { return finish(StartAllReduceBatch(ctx, c, list, Sum, option)) },
		func(list [][]float32) error { return c.RunBatch(ctx, packed(list), option) },
		func(list [][]float32) error { return finish(c.StartBatch(ctx, packed(list), option)) },
	} {
		list := rankList(c.Rank(), lengths)
		if err := run(list); err != nil {
			return fmt.Errorf("%s, by %v, form %d: %w", name, a, form, err)
		}
		if !bytes.Equal(op.Bytes(padded(list)), op.Bytes(want)) {
			return fmt.Errorf("%s, by %v, form %d: wrong result", name, a, form)
		}
	}
	return nil
}

func TestBatchesInFlightTogetherWithSkewedCallers(t *testing.T) {
	small := func(c *Config) { c.MaxInFlight, c.MemoryLimit = 4, 4<<20 } // the heap helps out
	inBed(t, 3, 2, small, func(b *bed) {
		comms := b.form("train")
		b.each(func(r int) error {
			<-time.After(time.Duration(r) * 50 * time.Millisecond) // virtual: the callers' own pace
			var works []*Work
			var all [][][]float32
			for k := range 12 {
				list := [][]float32{operand(r, 10+k), operand(r, 100_000*(k%3)), operand(r, 7)}
				w, err := StartAllReduceBatch(b.t.Context(), comms[r], list, Sum)
				if err != nil {
					return err
				}
				all, works = append(all, slices.Clone(list)), append(works, w)
				clear(list) // the list is the caller's again, its buffers are not
			}
			if err := WaitAll(b.t.Context(), works...); err != nil {
				return err
			}
			for k, list := range all {
				for i, buf := range list {
					if err := checkSum(buf, 3); err != nil {
						return fmt.Errorf("batch %d, buffer %d: %w", k, i, err)
					}
				}
			}
			return nil
		})
	})
}

// Lists that differ are found, whether their sums do or not, and small or large.
func TestBatchesThatDifferAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		mine, theirs []int
		words        []string
	}{
		"number of buffers": {[]int{10, 10}, []int{10, 10, 10}, []string{"batch of 2, ", "batch of 3, "}},
		"same number, sum": {[]int{10, 20, 7}, []int{20, 10, 7},
			[]string{"batch of 3", "lengths of its buffers"}},
		"lengths":            {[]int{10, 20}, []int{10, 21}, []string{"36 × float32", "37 × float32"}},
		"a large one":        {[]int{1, 500_000}, []int{500_000, 1}, []string{"batch of 2"}},
		"one buffer or none": {[]int{10}, nil, []string{"batch of 1, 10 ×", "allreduce(10 ×"}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			inBed(t, 3, 1, nil, func(b *bed) {
				comms := b.form("train")
				var named error
				for r, err := range b.failures(func(r int) error {
					lengths := c.mine
					if r == 1 {
						lengths = c.theirs
					}
					call := func() error {
						return AllReduceBatch(b.t.Context(), comms[r], rankList(r, lengths), Sum)
					}
					if lengths == nil {
						call = func() error {
							return AllReduce(b.t.Context(), comms[r], make([]float32, 10), Sum)
						}
					}
					err := call()
					if err == nil {
						err = comms[r].Barrier(b.t.Context())
					}
					return err
				}) {
					var m *MismatchError
					if errors.As(err, &m) {
						named = err
					} else if !errors.Is(err, ErrMismatch) && !errors.Is(err, ErrAborted) {
						t.Errorf("rank %d: %v", r, err)
					}
				}
				if named == nil {
					t.Fatal("no rank has a mismatch")
				}
				for _, words := range c.words {
					if !strings.Contains(named.Error(), words) {
						t.Errorf("%v: want %q in it", named, words)
					}
				}
			})
		})
	}
}

// A list that one rank got wrong doesn't leave the others waiting.
func TestABatchThatCannotBeRunIsRefused(t *testing.T) {
	inBed(t, 3, 1, nil, func(b *bed) {
		comms := b.form("train")
		for r, err := range b.failures(func(r int) error {
			memory := make([]float32, 40)
			list := [][]float32{memory[:20], memory[20:]}
			if r == 1 {
				list[1] = memory[10:30]
			}
			return AllReduceBatch(b.t.Context(), comms[r], list, Sum)
		}) {
			if !strings.Contains(err.Error(), "buffers 0 and 1 of the batch overlap") {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	})
}

// Whatever ends a batch, its buffers hold what they held, and are their owner's again.
func TestABatchThatFailsLeavesItsBuffersAsTheyWere(t *testing.T) {
	for name, end := range map[string]func(b *bed, cancel func()){
		"cancel":       func(_ *bed, cancel func()) { cancel() },
		"rank lost":    func(b *bed, _ func()) { b.Kill(2) },
		"node closed":  func(b *bed, _ func()) { b.Nodes[2].Close(b.t.Context()) },
		"mid-transfer": func(b *bed, cancel func()) { <-time.After(time.Millisecond); cancel() },
	} {
		for _, size := range []int{10, 200_000} {
			t.Run(fmt.Sprintf("%s/elements=%d", strings.ReplaceAll(name, " ", "-"),
				size), func(t *testing.T) {
				inBed(t, 3, 2, nil, func(b *bed) {
					comms := b.form("train")
					ctx, cancel := context.WithCancel(b.t.Context())
					defer cancel()
					lists := [2][][]float32{}
					var works [2]*Work
					for r := range works { // rank 2 does not call it
						lists[r] = [][]float32{operand(r, size), operand(r, 5)}
						var err error
						if works[r], err = StartAllReduceBatch(ctx, comms[r], lists[r], Sum); err != nil {
							t.Fatal(err)
						}
					}
					synctest.Wait()
					end(b, cancel)
					for r, w := range works {
						if err := b.returned("Wait",
							5*time.Second, func() error { return WaitAll(b.t.Context(), w) }); err == nil {
							t.Errorf("rank %d: no error", r)
						}
						for i, n := range []int{size, 5} {
							if !slices.Equal(lists[r][i], operand(r, n)) {
								t.Errorf("rank %d: buffer %d has changed", r, i)
							}
						}
					}
				})
			})
		}
	}
}

func TestAUserOperatorOnABatch(t *testing.T) {
	larger := UserOp("larger", func(dst, a, b []int32) {
		for i := range dst {
			dst[i] = max(a[i], b[i])
		}
	})
	inBed(t, 2, 1, nil, func(b *bed) {
		comms := b.form("train")
		b.each(func(r int) error {
			list := [][]int32{{int32(r), -5}, {int32(-r)}}
			if err := AllReduceBatch(b.t.Context(), comms[r], list, larger); err != nil {
				return err
			}
			if fmt.Sprint(list) != "[[1 -5] [0]]" {
				return fmt.Errorf("%v", list)
			}
			return nil
		})
	})
}

func TestWaitAllNamesTheFirstErrorOfEachCommunicator(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		good, bad, worse := b.form("good"), b.form("bad"), b.form("worse")
		b.each(func(r int) error {
			ctx := b.t.Context()
			start := func(c *Communicator, o Op, n int) *Work {
				w, err := StartAllReduce(ctx, c, make([]float32, n), o)
				if err != nil {
					b.t.Error(err)
				}
				return w
			}
			fine := start(good[r], Sum, 10)
			failing := []*Work{fine, start(bad[r], Sum, 10+r)}
			failing = append(failing, start(worse[r], Sum, 20+r), start(good[r], Sum, 10))
			err := WaitAll(ctx, failing...)
			if !errors.Is(err, ErrMismatch) && !errors.Is(err, ErrAborted) {
				return fmt.Errorf("%v", err)
			}
			for _, name := range []string{"bad", "worse"} {
				if strings.Count(err.Error(), fmt.Sprintf("communicator %q", name)) != 1 {
					return fmt.Errorf("%q isn't named once: %w", name, err)
				}
			}
			for _, w := range failing {
				select {
				case <-w.Done():
				default:
					return errors.New("a work is still in flight")
				}
			}
			if err := WaitAll(ctx, fine, nil); !errors.Is(err, ErrArgument) {
				return fmt.Errorf("a work that is nil: %w", err)
			}
			return errors.Join(WaitAll(ctx), WaitAll(ctx, fine, fine))
		})
	})
}

func TestWaitAllEndsWithItsContext(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		comms := b.form("train")
		var works []*Work
		for range 3 {
			w, err := StartAllReduceBatch(b.t.Context(), comms[0], [][]float32{make([]float32, 10)}, Sum)
			if err != nil {
				t.Fatal(err)
			}
			works = append(works, w)
		}
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
		defer cancel()
		err := b.returned("WaitAll", time.Second, func() error { return WaitAll(ctx, works...) })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want its deadline", err)
		}
	})
}

func TestABatchAllocatesForItsListOnly(t *testing.T) {
	if raceDetector {
		t.Skip("pools forget on purpose under the race detector")
	}
	inBed(t, 2, 1, nil, func(b *bed) {
		comms := b.form("train")
		const buffers, elements, times = 100, 1024, 50
		least := uint64(math.MaxUint64)
		for range 5 {
			least = min(least, allocated(func() {
				b.each(func(r int) error {
					list := make([][]float32, buffers)
					for i := range list {
						list[i] = make([]float32, elements)
					}
					for range times {
						if err := AllReduceBatch(b.t.Context(), comms[r], list, Sum); err != nil {
							return err
						}
					}
					return nil
				})
			}))
		}
		// Beside what any operation takes: once the buffers themselves, each time the list.
		perCall := (int64(least) - 2*4*buffers*elements) / times / 2
		if perCall > maxAllocated+64*buffers {
			t.Errorf("a batch allocates %d bytes on each rank", perCall)
		}
		t.Logf("a batch of %d allocates %d bytes on each rank", buffers, perCall)
	})
}

// The rank that comes last finds one rail of another one gone, with frames of the batch on it.
func TestABatchOutlivesARail(t *testing.T) {
	for name, fault := range map[string]func(b *bed){
		"cut":    func(b *bed) { b.Rails.Cut("node1", "eth0") },
		"silent": func(b *bed) { b.Rails.Silence("node1", "eth0") },
	} {
		t.Run(name, func(t *testing.T) {
			inBed(t, 3, 2, nil, func(b *bed) {
				ctx, cancel := context.WithCancel(b.t.Context())
				defer cancel()
				events := b.Nodes[0].Events(ctx)
				comms := b.form("train")
				_ = collect(events)
				b.each(func(r int) error {
					if r == 2 {
						synctest.Wait() // the others are in the operation
						fault(b)
					}
					list := [][]float32{operand(r, 300_000), operand(r, 10), operand(r, 5000)}
					if err := AllReduceBatch(ctx, comms[r], list, Sum); err != nil {
						return err
					}
					for _, buf := range list {
						if err := checkSum(buf, 3); err != nil {
							return err
						}
					}
					return nil
				})
				<-time.After(time.Second)
				if story := collect(events); count(story, RailDown) == 0 {
					t.Errorf("no rail went down: %+v", story)
				}
				b.Rails.Heal("node1", "eth0")
			})
		})
	}
}
