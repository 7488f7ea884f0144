package polyrail_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/railactors/transport/fault"
)

// failures runs one call per node, each of which is to fail, and returns their errors.
func (b *bed) failures(f func(i int) error) []error {
	b.t.Helper()
	errs := make([]error, len(b.Nodes))
	b.each(func(i int) error {
		if errs[i] = f(i); errs[i] == nil {
			return errors.New("succeeded")
		}
		return nil
	})
	return errs
}

func TestMismatchIsAnErrorThatNamesBothSides(t *testing.T) {
	calls := map[string]func(ctx context.Context, c *Communicator, odd bool) error{
		"count": func(ctx context.Context, c *Communicator, odd bool) error {
			n := 10
			if odd {
				n = 11
			}
			return AllReduce(ctx, c, make([]float32, n), Sum)
		},
		"large count": func(ctx context.Context, c *Communicator, odd bool) error {
			n := 1_000_000
			if odd {
				n++
			}
			return AllReduce(ctx, c, make([]float32, n), Sum)
		},
		"dtype": func(ctx context.Context, c *Communicator, odd bool) error {
			if odd {
				return AllReduce(ctx, c, make([]int32, 10), Sum)
			}
			return AllReduce(ctx, c, make([]float32, 10), Sum)
		},
		"op": func(ctx context.Context, c *Communicator, odd bool) error {
			if odd {
				return AllReduce(ctx, c, make([]int32, 10), Max)
			}
			return AllReduce(ctx, c, make([]int32, 10), Sum)
		},
		"kind": func(ctx context.Context, c *Communicator, odd bool) error {
			if odd {
				return c.Barrier(ctx)
			}
			return AllReduce(ctx, c, make([]int32, 10), Sum)
		},
		"name": func(ctx context.Context, c *Communicator, odd bool) error {
			return AllReduce(ctx, c, make([]int32, 10), Sum, WithName(fmt.Sprint("grad/", odd)))
		},
	}
	for what, call := range calls {
		t.Run(what, func(t *testing.T) {
			inBed(t, 3, 2, nil, func(b *bed) {
				comms := b.form("train")
				errs := b.failures(func(i int) error { return call(b.t.Context(), comms[i], i == 1) })
				named := false
				for i, err := range errs {
					if !errors.Is(err, ErrMismatch) {
						t.Errorf("rank %d: %v, want a mismatch", i, err)
					}
					var m *MismatchError
					named = named || errors.As(err, &m) && m.Node != "" && m.Mine != "" && m.Theirs != ""
				}
				if !named {
					t.Errorf("no error names both calls: %v", errs)
				}
				if err := comms[0].Barrier(b.t.Context()); !errors.Is(err, ErrBroken) || !errors.Is(err, ErrMismatch) {
					t.Errorf("later call: %v, want broken by the mismatch", err)
				}
			})
		})
	}
}

func TestRanksThatAreDividedDifferentlyNameTheirCalls(t *testing.T) {
	sub := func(ranks ...int) func(context.Context, *Communicator) error {
		return func(ctx context.Context, c *Communicator) error { _, err := c.Sub(ctx, ranks); return err }
	}
	dup := func(ctx context.Context, c *Communicator) error { _, err := c.Dup(ctx); return err }
	for what, calls := range map[string]struct {
		mine, theirs func(context.Context, *Communicator) error
		say          []string
	}{
		"other ranks": {sub(0), sub(1), []string{"this rank called sub", "called sub", "here it is of ranks ["}},
		"Sub and Dup": {sub(0, 1), dup, []string{"called sub", "called dup"}},
	} {
		t.Run(what, func(t *testing.T) {
			inBed(t, 2, 1, nil, func(b *bed) {
				comms := b.form("train")
				for rank, err := range b.failures(func(i int) error {
					if i == 0 {
						return calls.mine(b.t.Context(), comms[0])
					}
					return calls.theirs(b.t.Context(), comms[1])
				}) {
					for _, say := range calls.say {
						if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), say) {
							t.Errorf("rank %d: %v, want a mismatch that says %q", rank, err, say)
						}
					}
				}
			})
		})
	}
}

func TestABadCallFailsOnEveryRank(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		comms := b.form("train")
		errs := b.failures(func(i int) error {
			if i == 1 {
				return AllReduce(b.t.Context(), comms[1], make([]float32, 5), BitAnd)
			}
			return AllReduce(b.t.Context(), comms[0], make([]float32, 5), Sum)
		})
		if !strings.Contains(errs[1].Error(), "bitand is not defined on float32") {
			t.Errorf("the caller got %v", errs[1])
		}
		if !errors.Is(errs[0], ErrAborted) || !strings.Contains(errs[0].Error(), `"node1"`) {
			t.Errorf("the other rank got %v, want aborted by node1", errs[0])
		}
	})
}

func TestCancelEndsTheOperationEverywhere(t *testing.T) {
	for _, size := range []int{10, 1_000_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			inBed(t, 3, 2, nil, func(b *bed) {
				comms := b.form("train")
				errs := b.failures(func(i int) error {
					if i == 2 { // never calls; hears of it by its next call
						<-time.After(time.Second)
						return comms[2].Barrier(b.t.Context())
					}
					ctx, cancel := context.WithTimeout(b.t.Context(), 500*time.Millisecond)
					defer cancel()
					if i == 1 {
						ctx = b.t.Context()
					}
					return AllReduce(ctx, comms[i], make([]float32, size), Sum)
				})
				if !errors.Is(errs[0], context.DeadlineExceeded) {
					t.Errorf("rank 0: %v, want its deadline", errs[0])
				}
				for _, i := range []int{1, 2} {
					if !errors.Is(errs[i], ErrAborted) || !errors.Is(errs[i], ErrTimeout) ||
						!strings.Contains(errs[i].Error(), `"node0"`) {
						t.Errorf("rank %d: %v, want aborted by a timeout of node0", i, errs[i])
					}
				}
			})
		})
	}
}

func TestOperationTimeout(t *testing.T) {
	inBed(t, 2, 1, func(c *Config) { c.OperationTimeout = time.Second }, func(b *bed) {
		comms := b.form("train")
		start := time.Now()
		err := AllReduce(b.t.Context(), comms[0], make([]float32, 100), Sum)
		if !errors.Is(err, ErrTimeout) || time.Since(start) > 2*time.Second {
			t.Errorf("%v after %v, want a timeout after 1s", err, time.Since(start))
		}
	})
}

// An operation that is given up names whom it waits for, on all ranks: who has not called it, or waits
// for that one in turn.
func TestAnOperationThatIsGivenUpNamesWhomItWaitsFor(t *testing.T) {
	const late, size = 2, 4
	for what, call := range map[string]func(ctx context.Context, c *Communicator) error{
		"allreduce, small": func(ctx context.Context, c *Communicator) error {
			return AllReduce(ctx, c, make([]float32, 2), Sum)
		},
		"allreduce, large": func(ctx context.Context, c *Communicator) error {
			return AllReduce(ctx, c, make([]float32, 1<<18), Sum)
		},
		"alltoall": func(ctx context.Context, c *Communicator) error {
			return AllToAll(ctx, c, make([]float32, 4000), make([]float32, 4000))
		},
		"barrier": func(ctx context.Context, c *Communicator) error { return c.Barrier(ctx) },
	} {
		t.Run(what, func(t *testing.T) {
			inBed(t, size, 2, func(c *Config) { c.OperationTimeout = time.Second }, func(b *bed) {
				comms := b.form("train")
				errs := b.failures(func(i int) error {
					if i == late {
						_, err := Recv(b.t.Context(), comms[i], make([]float32, 1), 0, 1) // hears of the end
						return err
					}
					return call(b.t.Context(), comms[i])
				})
				for i, err := range errs {
					none := strings.Contains(err.Error(), "timed out after 1s, nothing has come from rank")
					some := strings.Contains(err.Error(), "timed out after 1s, waiting for more from rank")
					if !errors.Is(err, ErrTimeout) || none == some {
						t.Errorf("rank %d: %v", i, err)
					}
				}
			})
		})
	}
}

func TestClosedCommunicator(t *testing.T) {
	inBed(t, 3, 2, nil, func(b *bed) {
		comms := b.form("train")
		b.each(func(i int) error { return comms[i].Close(b.t.Context()) })
		for i, c := range comms {
			if err := AllReduce(b.t.Context(), c, make([]float32, 1), Sum); !errors.Is(err, ErrClosed) {
				t.Errorf("rank %d: %v, want closed", i, err)
			}
		}
		again := b.form("train")
		b.each(func(i int) error { return again[i].Barrier(b.t.Context()) })
	})
}

func TestARankThatClosesEndsWhatItWillNotJoin(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		comms := b.form("train")
		errs := b.failures(func(i int) error {
			if i == 1 {
				if err := comms[1].Close(b.t.Context()); err != nil {
					t.Error(err)
				}
				return ErrClosed
			}
			return AllReduce(b.t.Context(), comms[0], make([]float32, 100), Sum)
		})
		if !errors.Is(errs[0], ErrAborted) || !errors.Is(errs[0], ErrClosed) || !strings.Contains(errs[0].Error(), `"node1"`) {
			t.Errorf("rank 0: %v, want ended by node1's close", errs[0])
		}
	})
}

func TestLostRankIsNamedWithinTheRankTimeout(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		for _, size := range []int{1, 2_000_000} {
			t.Run(fmt.Sprintf("stopped=%v/size=%d", stopped, size), func(t *testing.T) {
				inBed(t, 3, 2, nil, func(b *bed) {
					comms := b.form("train")
					start := time.Now()
					errs := b.failures(func(i int) error {
						if i == 2 {
							if stopped {
								b.Rails.Silence("node2", "eth0")
								b.Rails.Silence("node2", "eth1")
							} else {
								b.Rails.Kill("node2")
							}
							return ErrClosed
						}
						return AllReduce(b.t.Context(), comms[i], make([]float32, size), Sum)
					})
					if took := time.Since(start); took > 2500*time.Millisecond {
						t.Errorf("it took %v", took)
					}
					for _, err := range errs[:2] {
						var lost *RankLostError
						if !errors.As(err, &lost) || lost.Rank != 2 || lost.Node != "node2" {
							t.Errorf("%v, want rank 2, node2, lost", err)
						}
					}
				})
			})
		}
	}
}

// A process that is stopped in the middle of a frame leaves its peers' readers waiting for the rest
// of it.
func TestARankThatStopsInTheMiddleOfAFrameIsNamed(t *testing.T) {
	var rails []*fault.Transport
	slow := func(c *Config) {
		if c.Name != "node2" {
			return
		}
		for i := range c.Rails {
			rails = append(rails, fault.Wrap(c.Rails[i].Transport, fault.Options{Rate: 10 << 20}))
			c.Rails[i].Transport = rails[i]
		}
	}
	inBed(t, 3, 2, slow, func(b *bed) {
		comms := b.form("train")
		start := time.Now()
		errs := b.failures(func(i int) error {
			if i == 2 {
				<-time.After(150 * time.Millisecond)
				for _, r := range rails {
					r.Stall(0)
				}
				return ErrClosed
			}
			return AllReduce(b.t.Context(), comms[i], make([]float32, 2_000_000), Sum)
		})
		for _, err := range errs[:2] {
			var lost *RankLostError
			if !errors.As(err, &lost) || lost.Rank != 2 || lost.Node != "node2" || time.Since(start) > 2500*time.Millisecond {
				t.Errorf("%v after %v, want rank 2, node2, lost", err, time.Since(start))
			}
		}
		for _, r := range rails {
			r.Heal()
		}
	})
}

func TestCommunicatorWaitsForItsSize(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		ctx, cancel := context.WithTimeout(b.t.Context(), 3*time.Second)
		defer cancel()
		_, err := b.Nodes[0].Communicator(ctx, "train", 3)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrView) {
			t.Errorf("%v, want the deadline, and how many asked", err)
		}
	})
}

func TestARailThatOneNodeLacksIsNamed(t *testing.T) {
	inBed(t, 2, 2, func(c *Config) {
		if c.Name == "node1" {
			c.Rails = c.Rails[:1]
		}
	}, func(b *bed) {
		ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
		defer cancel()
		errs := b.failures(func(i int) error {
			_, err := b.Nodes[i].Communicator(ctx, "train", 2)
			return err
		})
		for i, err := range errs {
			if !errors.Is(err, ErrView) || !strings.Contains(err.Error(), `"node1"`) || !strings.Contains(err.Error(), `"rail1"`) {
				t.Errorf("node %d: %v, want node1 and rail1 named", i, err)
			}
		}
	})
}

func TestASecondNodeOfOneNameIsTurnedDown(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		cfg := b.Configs[1]
		cfg.Bind = "10.0.0.9:7946"
		<-time.After(time.Millisecond) // or it would be of the same incarnation
		again, err := b.Join(b.t.Context(), cfg)
		if err == nil { // gossip may find it out a little later
			ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
			defer cancel()
			_, err = again.Communicator(ctx, "train", 2)
			defer again.Close(context.Background())
		}
		if err == nil || !strings.Contains(err.Error(), `name "node1"`) {
			t.Errorf("%v, want the conflict over node1's name; log:\n%s", err, b.log)
		}
	})
}
