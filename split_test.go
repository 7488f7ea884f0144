package polyrail_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/collective/fault"
)

// sumOf runs a sum and compares it with that of the given ranks of the bed.
func sumOf(b *bed, c *Communicator, me int, ranks []int) error {
	v := []int64{1 << me}
	if err := AllReduce(b.t.Context(), c, v, Sum); err != nil {
		return err
	}
	want := int64(0)
	for _, r := range ranks {
		want += 1 << r
	}
	if v[0] != want {
		return fmt.Errorf("sum is %b, want %b", v[0], want)
	}
	return nil
}

func TestSplitByColorInTheOrderOfKeys(t *testing.T) {
	inBed(t, 5, 2, nil, func(b *bed) {
		comms := b.form("train")
		b.each(func(i int) error {
			// Colors 0 and 1 by parity, the keys descending; rank 4 wants none.
			color, want := i%2, [][]int{{2, 0}, {3, 1}}[i%2]
			if i == 4 {
				color = -1
			}
			c, err := comms[i].Split(b.t.Context(), color, -i)
			if err != nil {
				return err
			}
			if i == 4 {
				if c != nil {
					return errors.New("a member without a color got a communicator")
				}
				return nil
			}
			if c.Size() != 2 || c.Rank() != slices.Index(want, i) || c.Nodes()[0] != b.Nodes[want[0]].Name() {
				return fmt.Errorf("rank %d of %v", c.Rank(), c.Nodes())
			}
			if err := sumOf(b, c, i, want); err != nil {
				return err
			}
			// Its members can split it again, and the parent goes on.
			alone, err := c.Split(b.t.Context(), i, 0)
			if err != nil {
				return err
			}
			if err := sumOf(b, alone, i, []int{i}); err != nil {
				return err
			}
			return errors.Join(alone.Close(b.t.Context()), c.Close(b.t.Context()))
		})
		b.each(func(i int) error { return sumOf(b, comms[i], i, []int{0, 1, 2, 3, 4}) })
	})
}

func TestSubIsOfTheNamedRanks(t *testing.T) {
	inBed(t, 4, 1, nil, func(b *bed) {
		comms := b.form("train")
		b.each(func(i int) error {
			ranks := []int{3, 1, 0}
			c, err := comms[i].Sub(b.t.Context(), ranks)
			if err != nil {
				return err
			}
			if i == 2 {
				if c != nil {
					return errors.New("a rank that isn't named got a communicator")
				}
				return nil
			}
			if c.Rank() != slices.Index(ranks, i) {
				return fmt.Errorf("rank %d", c.Rank())
			}
			if err := Broadcast(b.t.Context(), c, []int32{1}, 2); err != nil {
				return err
			}
			return sumOf(b, c, i, ranks)
		})
	})
}

func TestSubsThatDifferAreRefused(t *testing.T) {
	for name, ranks := range map[string]func(i int) []int{
		"other ranks": func(i int) []int { return []int{0, 1 + i/2} },
		"no rank":     func(i int) []int { return []int{0, 1 + 2*(i/2)} },
		"twice":       func(i int) []int { return []int{0, i / 2} },
	} {
		t.Run(name, func(t *testing.T) {
			inBed(t, 3, 1, nil, func(b *bed) {
				comms := b.form("train")
				for r, err := range b.failures(func(i int) error {
					_, err := comms[i].Sub(b.t.Context(), ranks(i))
					return err
				}) {
					if !errors.Is(err, fault.ErrMismatch) && !errors.Is(err, fault.ErrArgument) &&
						!errors.Is(err, fault.ErrAborted) {
						t.Errorf("rank %d: %v", r, err)
					}
				}
			})
		})
	}
}

// A rank that fails to make the communicator leaves none of the others waiting on it.
func TestASplitThatFailsOnOneRankEndsItForAll(t *testing.T) {
	inBed(t, 3, 1, nil, func(b *bed) {
		comms := b.form("train")
		b.failures(func(i int) error {
			if i == 2 {
				return errors.Join(errors.New("it closes instead"), b.Nodes[2].Close(b.t.Context()))
			}
			c, err := comms[i].Split(b.t.Context(), 0, 0)
			if err != nil {
				return err
			}
			return AllReduce(b.t.Context(), c, make([]float32, 10), Sum)
		})
	})
}

// endsMeanwhile is a context that ends when somebody has begun to wait for its end. Who that is hears
// nothing of it.
type endsMeanwhile struct {
	context.Context
	end   context.CancelFunc
	first sync.Once
}

func (c *endsMeanwhile) Done() <-chan struct{} {
	done := c.Context.Done()
	c.first.Do(func() { done = nil; c.end() })
	return done
}

// A split is two operations. The others go on to the second one, whatever happens here in between.
func TestASplitWhoseContextEndsHalfwayEndsForAll(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		comms := b.form("train")
		inner, cancel := context.WithCancel(b.t.Context())
		defer cancel()
		contexts := []context.Context{&endsMeanwhile{Context: inner, end: cancel}, b.t.Context()}
		b.each(func(i int) error {
			err := b.returned(fmt.Sprint("rank ", i), time.Second, func() error {
				_, err := comms[i].Split(contexts[i], 0, 0)
				return err
			})
			// The second one may be over when it is looked who ended: the split has succeeded then.
			if broken := comms[i].Err(); i == 0 && (err == nil) != (broken == nil) {
				return fmt.Errorf("%v, and the communicator is left with %v", err, broken)
			}
			return nil
		})
	})
}

// A Sub's order of ranks is not that of the nodes' names. Its rank 0 decides between two halves.
func TestASubInAnyOrderShrinks(t *testing.T) {
	for _, c := range []struct {
		of, dead, left []int
		why            error
	}{
		{of: []int{3, 1, 0, 2}, dead: []int{1}, left: []int{0, 2, 3}},
		{of: []int{3, 1, 0, 2}, dead: []int{0, 1}, left: []int{2, 3}},
		{of: []int{3, 1, 0, 2}, dead: []int{2, 3}, left: []int{0, 1}, why: ErrMinority},
		{of: []int{2, 1, 0}, dead: []int{3}, left: []int{0, 1, 2}}, // it is no member
	} {
		t.Run(fmt.Sprintf("%v without %v", c.of, c.dead), func(t *testing.T) {
			inBed(t, 4, 1, nil, func(b *bed) {
				comms, subs := b.form("train"), make([]*Communicator, 4)
				b.each(func(i int) (err error) {
					subs[i], err = comms[i].Sub(b.t.Context(), c.of)
					return err
				})
				for _, i := range c.dead {
					b.Kill(i)
				}
				rest, _, errs := b.shrink(subs, c.left...)
				for rank, i := range c.left {
					if c.why != nil || errs[i] != nil {
						if !errors.Is(errs[i], c.why) {
							t.Errorf("node %d: %v, want %v", i, errs[i], c.why)
						}
					} else if rest[i].Rank() != rank || rest[i].Size() != len(c.left) {
						t.Errorf("node %d is rank %d of %v", i, rest[i].Rank(), rest[i].Nodes())
					}
				}
				if t.Failed() || c.why != nil {
					return
				}
				b.each(func(i int) error {
					if rest[i] == nil {
						return nil
					}
					return sumOf(b, rest[i], i, c.left)
				})
			})
		})
	}
}

// A rank may call long after the others. They must not ask it about what it has yet to make: its
// answer was that it had closed it.
func TestLargeGroupsAreDividedThoughARankIsLate(t *testing.T) {
	const ranks = 17 // more than are connected from the start
	inBed(t, ranks, 1, nil, func(b *bed) {
		comms, err := b.Form(b.t.Context(), "train")
		if err != nil {
			b.t.Fatal(err)
		}
		b.each(func(i int) error {
			if i == 5 {
				<-time.After(time.Second)
			}
			child, err := comms[i].Split(b.t.Context(), 0, -comms[i].Rank())
			if err != nil {
				return err
			}
			buf := []int32{1}
			if err := AllReduce(b.t.Context(), child, buf, Sum); err != nil || buf[0] != ranks {
				return fmt.Errorf("sum %d, %w", buf[0], err)
			}
			return nil
		})
	})
}
