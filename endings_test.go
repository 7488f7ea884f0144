package polyrail_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/railactors/transport/fault"
)

// returned fails the test at once if f hangs, which would hold the bubble for ever.
func (b *bed) returned(what string, limit time.Duration, f func() error) error {
	b.t.Helper()
	s := &situation{bed: b}
	_, err := s.within(limit, what, f)
	return err
}

func TestANodeThatClosesEndsWhatItsRanksWaitFor(t *testing.T) {
	for _, n := range []int{2, 4} {
		for what, call := range map[string]func(context.Context, *Communicator) error{
			"small": func(ctx context.Context, c *Communicator) error {
				return AllReduce(ctx, c, make([]float32, 2), Sum)
			},
			"large": func(ctx context.Context, c *Communicator) error {
				return AllReduce(ctx, c, make([]float32, 1<<20), Sum)
			},
			"barrier": func(ctx context.Context, c *Communicator) error { return c.Barrier(ctx) },
		} {
			for leaves := range n {
				t.Run(fmt.Sprintf("%s/ranks=%d/leaves=%d", what, n, leaves), func(t *testing.T) {
					inBed(t, n, 2, nil, func(b *bed) {
						comms := b.form("train")
						b.each(func(i int) error {
							if i == leaves {
								<-time.After(time.Second) // the others' frames are acknowledged
								return b.Nodes[i].Close(b.t.Context())
							}
							err := b.returned(fmt.Sprint("rank ", i), 3*time.Second,
								func() error { return call(b.t.Context(), comms[i]) })
							if !errors.Is(err, ErrAborted) || !errors.Is(err, ErrClosed) ||
								!strings.Contains(err.Error(), b.Configs[leaves].Name) {
								return fmt.Errorf("%v, want ended by the close of %s", err,
									b.Configs[leaves].Name)
							}
							return nil
						})
					})
				})
			}
		}
	}
}

func TestAnAbortIsToldWhateverItsText(t *testing.T) {
	for what, text := range map[string]string{
		"no UTF-8": "\xff\xfe", "cut in a rune": strings.Repeat("x", 1023) + strings.Repeat("é",
			600), "long": strings.Repeat("\xff", 5000),
	} {
		t.Run(what, func(t *testing.T) {
			inBed(t, 3, 1, nil, func(b *bed) {
				comms := b.form("train")
				ctx, cancel := context.WithCancelCause(b.t.Context())
				time.AfterFunc(time.Second, func() { cancel(errors.New(text)) })
				b.each(func(i int) error {
					switch i {
					case 0:
						if err := comms[0].Barrier(ctx); err == nil {
							return errors.New("succeeded")
						}
					case 1:
						err := b.returned("rank 1", 3*time.Second,
							func() error { return comms[1].Barrier(b.t.Context()) })
						if !errors.Is(err, ErrAborted) || !utf8.ValidString(err.Error()) {
							return fmt.Errorf("%w, want aborted", err)
						}
					}
					return nil
				})
			})
		})
	}
}

// Rank 1 has sent its part of the Dup and gives up. Rank 0 calls Dup, has all that it needs, and
// succeeds.
func TestADupThatFailsOnOneRankEndsWhereItSucceeded(t *testing.T) {
	for _, ranks := range []int{2, 3} {
		t.Run(fmt.Sprint("ranks=", ranks), func(t *testing.T) {
			far := func(c *Config) {
				for i := range c.Rails {
					c.Rails[i].Transport = fault.Wrap(c.Rails[i].Transport,
						fault.Options{Delay: 50 * time.Millisecond})
				}
			}
			inBed(t, ranks, 1, far, func(b *bed) {
				comms := b.form("train")
				last := ranks - 1
				succeeded := false
				b.each(func(i int) error {
					if i == last {
						ctx, cancel := context.WithTimeout(b.t.Context(), 100*time.Millisecond)
						defer cancel()
						if _, err := comms[i].Dup(ctx); !errors.Is(err, context.DeadlineExceeded) {
							return fmt.Errorf("dup: %w, want its deadline", err)
						}
						return nil
					}
					<-time.After(60 * time.Millisecond)
					child, err := comms[i].Dup(b.t.Context())
					if err != nil {
						if !strings.Contains(err.Error(), b.Configs[last].Name) {
							return fmt.Errorf("dup: %w, which names nobody", err)
						}
						return nil
					}
					succeeded = true
					err = b.returned("a sum on the child", 3*time.Second,
						func() error { return AllReduce(b.t.Context(), child, make([]float32, 10), Sum) })
					if !errors.Is(err, ErrAborted) || !strings.Contains(err.Error(), b.Configs[last].Name) {
						return fmt.Errorf("a sum on the child: %w, want aborted by %s", err,
							b.Configs[last].Name)
					}
					return nil
				})
				if !succeeded {
					t.Error("Dup succeeded nowhere: nothing was tested")
				}
			})
		})
	}
}

func TestCallsAfterTheNodesCloseReturn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tuning")
	inBed(t, 2, 2, func(c *Config) { c.Balance, c.TuningFile = BalanceMeasured, file }, func(b *bed) {
		comms := b.form("train")
		ctx := b.t.Context()
		b.each(func(i int) error { return b.Nodes[i].Close(ctx) })
		c := comms[0]
		for what, call := range map[string]func() error{
			"Balance":      func() error { _, err := c.Balance(ctx); return err },
			"SaveTuning":   func() error { return c.SaveTuning(ctx) },
			"SetTable":     func() error { return c.SetTable(ctx, c.Table()) },
			"Barrier":      func() error { return c.Barrier(ctx) },
			"Dup":          func() error { _, err := c.Dup(ctx); return err },
			"Shrink":       func() error { _, _, err := c.Shrink(ctx); return err },
			"Communicator": func() error { _, err := b.Nodes[0].Communicator(ctx, "train", 2); return err },
			"Err":          c.Err,
		} {
			if err := b.returned(what, 0, call); !errors.Is(err, ErrClosed) ||
				!strings.Contains(err.Error(), `"node0"`) {
				t.Errorf("%s: %v, want node0 closed", what, err)
			}
		}
		if err := b.returned("Close", 0, func() error { return c.Close(ctx) }); !errors.Is(err, ErrClosed) {
			t.Errorf("Close: %v, want closed", err)
		}
		if err := b.returned("the second Close", 0, func() error { return c.Close(ctx) }); err != nil {
			t.Errorf("the second Close: %v", err)
		}
	})
}

func TestASecondCloseHonoursItsContext(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		comms := b.form("train")
		w, err := StartAllReduce(b.t.Context(), comms[0], make([]float32, 10), Sum)
		if err != nil {
			t.Fatal(err)
		}
		first := make(chan error, 1)
		go func() { first <- comms[0].Close(b.t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
		defer cancel()
		closing := func() error { return comms[0].Close(ctx) }
		if err := b.returned("the second Close", time.Second, closing); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the second Close: %v, want its deadline", err)
		}
		if err := AllReduce(b.t.Context(), comms[1], make([]float32, 10), Sum); err != nil {
			t.Error(err)
		}
		if err := errors.Join(w.Wait(b.t.Context()), <-first); err != nil {
			t.Error(err)
		}
	})
}

// What waits for its turn ends with what it waits for.
func TestACallThatWaitsForASlotEndsWithTheCommunicator(t *testing.T) {
	for what, end := range map[string]func(b *bed, c []*Communicator) error{
		"broken": func(b *bed, c []*Communicator) error { return b.kill1() },
		"closed": func(b *bed, c []*Communicator) error { return closeSoon(b, c[0].Close) },
		"node closed": func(b *bed, c []*Communicator) error {
			return closeSoon(b, b.Nodes[0].Close)
		},
	} {
		t.Run(what, func(t *testing.T) {
			inBed(t, 2, 1, func(c *Config) { c.MaxInFlight = 1 }, func(b *bed) {
				comms := b.form("train")
				w, err := StartAllReduce(b.t.Context(), comms[0], make([]float32, 10), Sum)
				if err != nil {
					t.Fatal(err)
				}
				second := make(chan error, 1)
				go func() {
					w, err := StartAllReduce(b.t.Context(), comms[0], make([]float32, 10), Sum)
					if err == nil {
						err = w.Wait(b.t.Context())
					}
					second <- err
				}()
				synctest.Wait()
				if err := end(b, comms); err != nil {
					t.Error(err)
				}
				err = b.returned("the call that waits", 3*time.Second, func() error { return <-second })
				if !errors.Is(err, ErrClosed) && !errors.Is(err, ErrRankLost) {
					t.Errorf("the call that waited for a slot: %v", err)
				}
				<-w.Done()
			})
		})
	}
}

func (b *bed) kill1() error { b.Kill(1); return nil }

// closeSoon closes something whose operations the others don't join: it takes its context's time.
func closeSoon(b *bed, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
	defer cancel()
	if err := f(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

func TestWhatLacksItsArgumentIsAnError(t *testing.T) {
	inBed(t, 1, 1, nil, func(b *bed) {
		var c *Communicator
		var w *Work
		var m *Transfer
		var n *Node
		var noTrace *Trace
		alone := b.form("train")[0]
		var noContext context.Context
		ctx := b.t.Context()
		for what, call := range map[string]func(ctx context.Context) error{
			"AllReduce": func(ctx context.Context) error { return AllReduce(ctx, c, []float32{1}, Sum) },
			"StartAllReduce": func(ctx context.Context) error {
				_, err := StartAllReduce(ctx, c, []float32{1}, Sum)
				return err
			},
			"AllReduceBatch": func(ctx context.Context) error {
				return AllReduceBatch(ctx, c, [][]float32{{1}}, Sum)
			},
			"RunBatch": func(ctx context.Context) error {
				return c.RunBatch(ctx, Batch{DType: op.F32, Op: Sum})
			},
			"nil option": func(ctx context.Context) error {
				return AllReduce(ctx, alone, []float32{1}, Sum, WithName("a"), nil)
			},
			"nil option of a barrier": func(ctx context.Context) error {
				_, err := alone.StartBarrier(ctx, nil)
				return err
			},
			"Trace.Write": func(context.Context) error { noTrace.Stop(); return noTrace.Write(io.Discard) },
			"WaitAll":     func(ctx context.Context) error { return WaitAll(ctx, w) },
			"Send":        func(ctx context.Context) error { return Send(ctx, c, []float32{1}, 0, 1) },
			"Recv": func(ctx context.Context) error {
				_, err := Recv(ctx, c, []float32{1}, 0, 1)
				return err
			},
			"SendRecv": func(ctx context.Context) error {
				_, err := SendRecv(ctx, c, []float32{1}, 0, 1, []float32{1}, 0, 1)
				return err
			},
			"StartSend": func(ctx context.Context) error {
				_, err := StartSend(ctx, c, []float32{1}, 0, 1)
				return err
			},
			"StartRecv": func(ctx context.Context) error {
				_, err := StartRecv(ctx, c, []float32{1}, 0, 1)
				return err
			},
			"Transfer.Wait": func(ctx context.Context) error { _, err := m.Wait(ctx); return err },
			"Transfer.Err":  func(context.Context) error { <-m.Done(); return m.Err() },
			"Split":         func(ctx context.Context) error { _, err := c.Split(ctx, 0, 0); return err },
			"Sub":           func(ctx context.Context) error { _, err := c.Sub(ctx, []int{0}); return err },
			"Barrier":       func(ctx context.Context) error { return c.Barrier(ctx) },
			"StartBarrier":  func(ctx context.Context) error { _, err := c.StartBarrier(ctx); return err },
			"Dup":           func(ctx context.Context) error { _, err := c.Dup(ctx); return err },
			"Shrink":        func(ctx context.Context) error { _, _, err := c.Shrink(ctx); return err },
			"SetTable":      func(ctx context.Context) error { return c.SetTable(ctx, Table{}) },
			"Balance":       func(ctx context.Context) error { _, err := c.Balance(ctx); return err },
			"SaveTuning":    func(ctx context.Context) error { return c.SaveTuning(ctx) },
			"Close":         func(ctx context.Context) error { return c.Close(ctx) },
			"Err":           func(context.Context) error { return c.Err() },
			"Wait":          func(ctx context.Context) error { return w.Wait(ctx) },
			"Work.Err":      func(context.Context) error { <-w.Done(); return w.Err() },
			"Node.Close":    func(ctx context.Context) error { return n.Close(ctx) },
			"Communicator": func(ctx context.Context) error {
				_, err := n.Communicator(ctx, "train", 1)
				return err
			},
			"Start": func(context.Context) error {
				_, err := Start(noContext, DefaultConfig())
				return err
			},
		} {
			for _, ctx := range []context.Context{ctx, noContext} {
				if err := call(ctx); !errors.Is(err, ErrArgument) {
					t.Errorf("%s: %v, want an argument missed", what, err)
				}
			}
		}
		if err := AllReduce(ctx, alone, []float32{1}, UserOp[float32]("none", nil)); err == nil ||
			!strings.Contains(err.Error(), "needs a name and a function") {
			t.Errorf("an operator without a function: %v", err)
		}
		if c.Name() != "" || c.Rank() != -1 || c.Size() != 0 || c.Nodes() != nil || c.Seq() != 0 ||
			len(c.Table().Entries) != 0 || w.Seq() != 0 ||
			n.Name() != "" || n.GossipAddr() != "" || n.Members() != nil || n.Rails() != nil {
			t.Error("a nil handle has properties")
		}
		if _, open := <-n.Events(ctx); open {
			t.Error("a nil node has events")
		}
	})
}

func TestAContextThatIsOverBeforeTheCallHasNoEffect(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		comms := b.form("train")
		why := errors.New("over before")
		ctx, cancel := context.WithCancelCause(b.t.Context())
		cancel(why)
		for what, call := range map[string]func() error{
			"AllReduce": func() error { return AllReduce(ctx, comms[0], make([]float32, 10), Sum) },
			"Barrier":   func() error { return comms[0].Barrier(ctx) },
			"Dup":       func() error { _, err := comms[0].Dup(ctx); return err },
			"Sub":       func() error { _, err := comms[0].Sub(ctx, []int{2}); return err },
			"Shrink":    func() error { _, _, err := comms[0].Shrink(ctx); return err },
			"SetTable":  func() error { return comms[0].SetTable(ctx, comms[0].Table()) },
		} {
			if err := call(); !errors.Is(err, why) {
				t.Errorf("%s: %v, want the context's cause", what, err)
			}
		}
		b.each(func(i int) error { // in step still
			buf := operand(i, 1000)
			if err := AllReduce(b.t.Context(), comms[i], buf, Sum); err != nil {
				return err
			}
			return checkSum(buf, 2)
		})
		if seq := comms[0].Seq(); seq != 2 {
			t.Errorf("seq %d, want 2", seq)
		}
	})
}

// Whoever closes with a context that is over waits for nobody. What it has called is the others' to
// finish all the same.
func TestACloseWithoutTimeLeavesTheOthersWhatWasCalled(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		over, cancel := context.WithCancel(b.t.Context())
		cancel()
		for k := range 10 {
			comms := b.form(fmt.Sprint("train", k))
			if err := Broadcast(b.t.Context(), comms[0], operand(0, 10), 0); err != nil {
				t.Fatal(err)
			}
			_ = comms[0].Close(over)
			<-time.After(time.Second)
			buf := make([]float32, 10)
			if err := Broadcast(b.t.Context(), comms[1], buf, 0); err != nil {
				t.Errorf("close %d: %v", k, err)
				break
			}
			if err := checkSum(buf, 1); err != nil {
				t.Error(err)
			}
			err := b.returned("a call that is not the other's", time.Second,
				func() error { return comms[1].Barrier(b.t.Context()) })
			if !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), "node0") {
				t.Errorf("close %d: %v, want that node0 has closed", k, err)
			}
		}
	})
}

// What has ended is told as such, whatever has ended beside it: a close of a communicator without other
// ranks has nobody to wait for, and one that comes after another has nothing to do.
func TestACloseThatHasNothingToWaitForNeedsNoTime(t *testing.T) {
	inBed(t, 1, 1, nil, func(b *bed) {
		over, cancel := context.WithCancel(b.t.Context())
		cancel()
		for k := range 20 {
			c := b.form(fmt.Sprint("train", k))[0]
			for _, which := range []string{"first", "second"} {
				if err := c.Close(over); err != nil {
					t.Errorf("close %d, the %s one: %v", k, which, err)
				}
			}
		}
		if err := b.Nodes[0].Close(b.t.Context()); err != nil {
			t.Error(err)
		}
		for k := range 20 {
			if err := b.Nodes[0].Close(over); err != nil {
				t.Errorf("close %d of a node that is closed: %v", k, err)
			}
		}
	})
}

// endsAfter is a context that ends when somebody has begun to wait for its end, after something else.
type endsAfter struct {
	context.Context
	first sync.Once
	end   func()
}

func (c *endsAfter) Done() <-chan struct{} {
	c.first.Do(c.end)
	return c.Context.Done()
}

func TestACloseWhoseContextEndsWithTheLastOperationBreaksNothing(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		for k := range 20 {
			comms := b.form(fmt.Sprint("train", k))
			w, err := StartAllReduce(b.t.Context(), comms[0], make([]float32, 10), Sum)
			if err != nil {
				t.Fatal(err)
			}
			inner, cancel := context.WithCancel(b.t.Context())
			ctx := &endsAfter{Context: inner, end: func() {
				if err := AllReduce(b.t.Context(), comms[1], make([]float32, 10), Sum); err != nil {
					t.Error(err)
				}
				<-w.Done()
				synctest.Wait()
				cancel()
			}}
			err = comms[0].Close(ctx)
			synctest.Wait()
			if broken := comms[1].Err(); w.Err() != nil || broken != nil {
				t.Errorf("close %d: %v, of the operation %v, and rank 1 is left with %v", k, err, w.Err(), broken)
			}
			if err := comms[1].Close(b.t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// The actor that forms communicators may panic more often than a supervisor restarts an actor.
func TestANodeThatPanickedTimeAndAgainFormsCommunicators(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		for range 20 {
			b.Panics[0].Throw("node")
			synctest.Wait()
		}
		b.each(func(i int) error {
			return b.returned(b.Configs[i].Name, time.Minute, func() error {
				c, err := b.Nodes[i].Communicator(b.t.Context(), "train", 2)
				if err != nil {
					return err
				}
				return c.Close(b.t.Context())
			})
		})
	})
}
