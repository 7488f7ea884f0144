package polyrail_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/collective/fault"
)

// privateCount is how many elements rank i has for rank j: some none, some many.
func privateCount(i, j int) int { return []int{0, 1, 70_000, 300}[(i+2*j)%4] }

// private are the buffers of rank i for an AllToAllV of n ranks, and what is to come.
func private(i, n, round int) (dst []int32, recv []int, src []int32, send []int, want []int32) {
	value := func(from, to, k int) int32 { return int32(from<<24 | to<<16 | (k+round)&0xffff) }
	for j := range n {
		send, recv = append(send, privateCount(i, j)), append(recv, privateCount(j, i))
		for k := range privateCount(i, j) {
			src = append(src, value(i, j, k))
		}
		for k := range privateCount(j, i) {
			want = append(want, value(j, i, k))
		}
	}
	return make([]int32, len(want)), recv, src, send, want
}

func TestAllToAllVWithCountsThatEachRankKnowsAlone(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		inBed(t, n, 2, nil, func(b *bed) {
			comms := b.form("train")
			b.each(func(i int) error {
				var works []*Work
				var check []func() error
				for round := range 8 { // several in flight, other collectives between them
					dst, recv, src, send, want := private(i, n, round)
					w, err := StartAllToAllV(b.t.Context(), comms[i], dst, recv, src, send)
					if err != nil {
						return err
					}
					works = append(works, w)
					check = append(check, func() error {
						for k := range want {
							if dst[k] != want[k] {
								return fmt.Errorf("round %d: element %d is %x, want %x", round, k,
									dst[k], want[k])
							}
						}
						return nil
					})
					sum := []int64{1}
					if err := AllReduce(b.t.Context(), comms[i], sum, Sum); err != nil || sum[0] != int64(n) {
						return fmt.Errorf("sum %v, %w", sum, err)
					}
				}
				for k, w := range works {
					if err := errors.Join(w.Wait(b.t.Context()), check[k]()); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

func TestAllToAllVsThatDifferAreNamed(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, c *Communicator, r int) error{
		"counts": func(ctx context.Context, c *Communicator, r int) error {
			counts := []int{10, 10, 10}
			src, dst := make([]float32, 30), make([]float32, 30)
			if r == 1 { // it expects one more of rank 0
				return AllToAllV(ctx, c, make([]float32, 31), []int{11, 10, 10}, src, counts)
			}
			return AllToAllV(ctx, c, dst, counts, src, counts)
		},
		"kind": func(ctx context.Context, c *Communicator, r int) error {
			counts := []int{10, 10, 10}
			if r == 1 {
				return AllReduce(ctx, c, make([]float32, 30), Sum)
			}
			return AllToAllV(ctx, c, make([]float32, 30), counts, make([]float32, 30), counts)
		},
		// Equal in all else: a rank that has mixed two calls up would get the other one's data.
		"names": func(ctx context.Context, c *Communicator, r int) error {
			counts := []int{10, 10, 10}
			return AllToAllV(ctx, c, make([]float32, 30), counts, make([]float32, 30), counts,
				WithName([]string{"keys", "values", "keys"}[r]))
		},
		"own counts": func(ctx context.Context, c *Communicator, r int) error {
			return AllToAllV(ctx, c, make([]float32, 3), []int{1, 1, 1}, make([]float32, 3), []int{1, 1, 2})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBed(t, 3, 1, nil, func(b *bed) {
				comms := b.form("train")
				for r, err := range b.failures(func(i int) error {
					if err := call(b.t.Context(), comms[i], i); err != nil {
						return err
					}
					// Who had all its messages hears of it now.
					return comms[i].Barrier(b.t.Context())
				}) {
					if name == "own counts" {
						continue // each says what is wrong with its own call
					}
					if !errors.Is(err, fault.ErrMismatch) && !errors.Is(err, fault.ErrAborted) {
						t.Errorf("rank %d: %v", r, err)
					}
					differs := "the operation's name, its counts, or the builds of polyrail differ"
					if name == "names" && !strings.Contains(err.Error(), differs) {
						t.Errorf("rank %d: %v, which does not say that it is %s", r, err, differs)
					}
				}
			})
		})
	}
}

func TestAnAllToAllVEndsWithItsContext(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		comms := b.form("train")
		b.failures(func(i int) error {
			if i == 1 {
				return errors.New("doesn't call")
			}
			ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
			defer cancel()
			counts := []int{100_000, 100_000}
			return AllToAllV(ctx, comms[i], make([]float32, 200_000), counts,
				make([]float32, 200_000), counts)
		})
		if err := comms[1].Barrier(b.t.Context()); !errors.Is(err, fault.ErrAborted) {
			t.Errorf("the other rank: %v", err)
		}
	})
}

// Its messages may start when the call has returned, and other calls have been made.
func TestAnAllToAllVThatWasStartedNeedsNothingMore(t *testing.T) {
	for name, next := range map[string]func(ctx context.Context, c *Communicator, counts []int) error{
		"counts": func(_ context.Context, _ *Communicator, counts []int) error { clear(counts); return nil },
		"close":  func(ctx context.Context, c *Communicator, _ []int) error { return c.Close(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			inBed(t, 2, 1, nil, func(b *bed) {
				comms := b.form("train")
				b.each(func(i int) error {
					counts, src, dst := []int{1, 1}, []int32{int32(i), int32(i)}, make([]int32, 2)
					w, err := StartAllToAllV(b.t.Context(), comms[i], dst, counts, src, counts)
					if err != nil {
						return err
					}
					err = next(b.t.Context(), comms[i], counts)
					if err := errors.Join(err, w.Wait(b.t.Context())); err != nil {
						return err
					}
					if !slices.Equal(dst, []int32{0, 1}) {
						return fmt.Errorf("got %v", dst)
					}
					return nil
				})
			})
		})
	}
}
