package polyrail_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/collective/op"
)

// This file is about small operations of ranks that share memory, which show each other their
// operands (docs/decisions/055).

// hostOf names one host for so many nodes.
func hostOf(n int) string { return strings.TrimSpace(strings.Repeat("x ", n)) }

// shownSums runs small operations, one after the other, and checks them.
func shownSums(ctx context.Context, c *Communicator, operations int) error {
	for k := range operations {
		if k%5 == 4 {
			if err := c.Barrier(ctx); err != nil {
				return err
			}
			continue
		}
		buf := operand(c.Rank(), 1+k%8)
		if err := AllReduce(ctx, c, buf, Sum); err != nil {
			return err
		}
		if err := checkSum(buf, c.Size()); err != nil {
			return fmt.Errorf("operation %d: %w", k, err)
		}
	}
	return nil
}

// brought is what connections have brought all nodes, in bytes.
func (b *bed) brought() (bytes uint64) {
	for _, n := range b.Nodes {
		rails, memory := received(b.t, n)
		bytes += rails + memory
	}
	return bytes
}

// Without polling every wait ends with a knock, and with polling hardly one does. Heartbeats alone
// come over connections.
func TestSmallOperationsNeedNoConnection(t *testing.T) {
	const operations = 300
	for name, spin := range map[string]time.Duration{"polling": DefaultConfig().WaitSpin, "sleeping": 0} {
		for _, n := range []int{2, 3, 4, 5, 8, 9} {
			t.Run(fmt.Sprintf("%s/ranks=%d", name, n), func(t *testing.T) {
				onHosts(t, hostOf(n), func(c *Config) { c.WaitSpin = spin }, func(b *bed) {
					comms := b.form("train")
					ctx, cancel := b.timeout()
					defer cancel()
					run := func() { b.each(func(i int) error { return shownSums(ctx, comms[i], operations) }) }
					run()
					before := b.brought()
					run()
					frames := uint64(operations * n * (n - 1))
					if got := b.brought() - before; got > 116*frames/4 {
						t.Errorf("connections brought %d bytes, %.2f of a header for each operand", got, float64(got)/float64(116*frames))
					}
				})
			})
		}
	}
}

// shownResults are the bits of sums in floating point that depend on their order.
func shownResults(b *bed, adapt ...Option) (all [][]byte) {
	comms := b.form("train")
	ctx, cancel := b.timeout()
	defer cancel()
	all = make([][]byte, len(comms))
	b.each(func(i int) error {
		random := rand.New(rand.NewPCG(7, uint64(i)))
		for range 8 {
			for _, d := range []DType{op.F32, op.F16, op.BF16, op.F64} {
				for _, o := range []Op{Sum, Avg, Prod, Max} {
					buf := make([]byte, 8*d.Size())
					for at := range buf { // exponents near one another
						buf[at] = byte(random.Uint32())
						if (at+1)%d.Size() == 0 {
							buf[at] = 0x3c + byte(random.Uint32()%4)
						}
					}
					if err := AllReduceBytes(ctx, comms[i], buf, buf, d, o, adapt...); err != nil {
						return err
					}
					all[i] = append(all[i], buf...)
				}
			}
		}
		return nil
	})
	return all
}

func TestWhatIsShownIsSummedInTheSameOrderAsFrames(t *testing.T) {
	for _, n := range []int{2, 3, 4, 7, 9} {
		for name, options := range map[string][]Option{"rule": nil, "doubling": {WithAlgorithm(RecursiveDoubling)}, "tree": {WithAlgorithm(Tree)}} {
			t.Run(fmt.Sprintf("ranks=%d/%s", n, name), func(t *testing.T) {
				var shown, sent [][]byte
				onHosts(t, hostOf(n), nil, func(b *bed) { shown = shownResults(b, options...) })
				onHosts(t, hostOf(n), func(c *Config) { c.SharedMemory = false }, func(b *bed) { sent = shownResults(b, options...) })
				for i := range shown {
					if !bytes.Equal(shown[i], sent[0]) {
						t.Errorf("rank %d has other bits than without shared memory", i)
					}
				}
			})
		}
	}
}

// inFlight keeps so many operations of different kinds in flight, some of which nobody waits for at
// once.
func inFlight(ctx context.Context, c *Communicator, rounds, depth int) error {
	for round := range rounds {
		works, bufs := make([]*Work, depth), make([][]float32, depth)
		for k := range depth {
			size := 1 + (round+k)%4
			if k%7 == 3 {
				size = 2000 // goes over connections
			}
			bufs[k] = operand(c.Rank(), size)
			if k%5 == 2 {
				if err := AllReduce(ctx, c, bufs[k], Sum); err != nil {
					return err
				}
				continue
			}
			var err error
			if works[k], err = StartAllReduce(ctx, c, bufs[k], Sum); err != nil {
				return err
			}
		}
		for k := range depth {
			k = (k*11 + c.Rank()) % depth // in an order of its own
			if works[k] != nil {
				if err := works[k].Wait(ctx); err != nil {
					return err
				}
			}
			if err := checkSum(bufs[k], c.Size()); err != nil {
				return fmt.Errorf("round %d, operation %d: %w", round, k, err)
			}
		}
	}
	return nil
}

func TestMoreOperationsAreInFlightThanAPageShows(t *testing.T) {
	for _, n := range []int{2, 4} {
		onHosts(t, hostOf(n), nil, func(b *bed) {
			comms := b.form("train")
			ctx, cancel := b.timeout()
			defer cancel()
			b.each(func(i int) error { return inFlight(ctx, comms[i], 60, 24) })
		})
	}
}

func TestMemoryMayBeCutWhileOperandsAreShown(t *testing.T) {
	for name, spin := range map[string]time.Duration{"polling": DefaultConfig().WaitSpin, "sleeping": 0} {
		t.Run(name, func(t *testing.T) {
			onHosts(t, hostOf(3), func(c *Config) { c.WaitSpin = spin }, func(b *bed) {
				comms := b.form("train")
				ctx, cancel := b.timeout()
				defer cancel()
				for range 25 {
					b.each(func(i int) error {
						if i == 0 {
							go cutMemory()
						}
						return errors.Join(shownSums(ctx, comms[i], 200), inFlight(ctx, comms[i], 2, 24))
					})
				}
			})
		})
	}
}

func TestGroupsShowOperandsBesideEachOther(t *testing.T) {
	onHosts(t, hostOf(4), nil, func(b *bed) {
		comms := b.form("train")
		ctx, cancel := b.timeout()
		defer cancel()
		b.each(func(i int) error {
			half, err := comms[i].Split(ctx, i%2, i)
			if err != nil {
				return err
			}
			var both sync.WaitGroup
			errs := make([]error, 2)
			both.Go(func() { errs[0] = shownSums(ctx, comms[i], 1000) })
			both.Go(func() { errs[1] = shownSums(ctx, half, 1000) })
			both.Wait()
			return errors.Join(errs...)
		})
	})
}

// A page is given back when all have taken what it shows, and used again; who gets none sends
// frames.
func TestPagesOfGroupsThatHaveEndedAreUsedAgain(t *testing.T) {
	const groups = 70 // more than a board has pages
	onHosts(t, hostOf(3), nil, func(b *bed) {
		comms := b.form("train")
		ctx, cancel := b.timeout()
		defer cancel()
		b.each(func(i int) error {
			for range groups {
				c, err := comms[i].Dup(ctx)
				if err != nil {
					return err
				}
				if err := errors.Join(shownSums(ctx, c, 10), c.Close(ctx)); err != nil {
					return err
				}
			}
			return nil
		})
		before := b.brought()
		b.each(func(i int) error { // the last of these has a page
			c, err := comms[i].Dup(ctx)
			if err != nil {
				return err
			}
			return errors.Join(shownSums(ctx, c, 500), c.Close(ctx))
		})
		if got, frames := b.brought()-before, uint64(500*3*2); got > 116*frames/4 {
			t.Errorf("after %d groups connections brought %d bytes", groups, got)
		}
		b.each(func(i int) error {
			for range groups { // now all at once
				c, err := comms[i].Dup(ctx)
				if err != nil {
					return err
				}
				if err := shownSums(ctx, c, 10); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func TestDifferentSmallCallsAreNamed(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, c *Communicator) error{
		"another length":   func(ctx context.Context, c *Communicator) error { return AllReduce(ctx, c, operand(1, 3), Sum) },
		"another operator": func(ctx context.Context, c *Communicator) error { return AllReduce(ctx, c, operand(1, 2), Max) },
		"a barrier":        func(ctx context.Context, c *Communicator) error { return c.Barrier(ctx) },
		"a large one":      func(ctx context.Context, c *Communicator) error { return AllReduce(ctx, c, operand(1, 1<<20), Sum) },
		"another kind":     func(ctx context.Context, c *Communicator) error { return Broadcast(ctx, c, operand(1, 2), 0) },
	} {
		t.Run(name, func(t *testing.T) {
			onHosts(t, hostOf(3), nil, func(b *bed) {
				comms := b.form("train")
				ctx, cancel := b.timeout()
				defer cancel()
				b.each(func(i int) error { return shownSums(ctx, comms[i], 20) })
				errs := b.failures(func(i int) error {
					if i == 1 {
						return call(ctx, comms[i])
					}
					return AllReduce(ctx, comms[i], operand(i, 2), Sum)
				})
				named := 0
				for i, err := range errs {
					var mismatch *MismatchError
					if errors.As(err, &mismatch) {
						named++
					}
					if err == nil {
						t.Errorf("rank %d ended well", i)
					}
				}
				if named == 0 {
					t.Errorf("no rank names the mismatch: %v", errs)
				}
			})
		})
	}
}

// What a rank has shown is taken though the rank closes the communicator, or its node, at once.
func TestTheLastOperandOutlivesItsRank(t *testing.T) {
	for range 10 {
		onHosts(t, hostOf(3), func(c *Config) { c.WaitSpin = 0 }, func(b *bed) {
			comms := b.form("train")
			ctx, cancel := b.timeout()
			defer cancel()
			b.each(func(i int) error {
				if err := shownSums(ctx, comms[i], 10); err != nil {
					return err
				}
				w, err := StartAllReduce(ctx, comms[i], operand(i, 2), Sum)
				if err != nil {
					return err
				}
				return errors.Join(comms[i].Close(ctx), w.Wait(ctx), b.Nodes[i].Close(ctx))
			})
		})
	}
}

// A rank may look for an operand long after its own was taken: here, since an operator keeps its
// process from it. Until then it stays, though the node that shows it has closed.
func TestAnOperandStaysUntilItIsTaken(t *testing.T) {
	onHosts(t, hostOf(2), func(c *Config) { c.WaitSpin = 0 }, func(b *bed) {
		train, other := b.form("train"), b.form("other")
		ctx, cancel := b.timeout()
		defer cancel()
		b.each(func(i int) error {
			return errors.Join(shownSums(ctx, train[i], 20), shownSums(ctx, other[i], 20))
		})
		folding, goOn := make(chan struct{}), make(chan struct{})
		slow := UserOp("slow", func(dst, a, _ []float32) { close(folding); <-goOn; copy(dst, a) })
		busy, err := StartAllReduce(ctx, other[1], operand(1, 2), slow)
		if err != nil {
			t.Fatal(err)
		}
		late := operand(1, 2)
		w, err := StartAllReduce(ctx, train[1], late, Sum)
		if err != nil {
			t.Fatal(err)
		}
		fast := UserOp("slow", func(dst, a, _ []float32) { copy(dst, a) })
		err = AllReduce(ctx, other[0], operand(0, 2), fast)
		<-folding // where rank 1 looks when somebody knocks
		if err := errors.Join(err, AllReduce(ctx, train[0], operand(0, 2), Sum), other[0].Close(ctx),
			train[0].Close(ctx), b.Nodes[0].Close(ctx)); err != nil {
			t.Error(err)
		}
		close(goOn)
		if err := errors.Join(busy.Wait(ctx), w.Wait(ctx), checkSum(late, 2)); err != nil {
			t.Error(err)
		}
	})
}
