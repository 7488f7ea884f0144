package polyrail_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polyrail/polyrail/test/leaks"

	. "github.com/polyrail/polyrail"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// value is an element of a rank's operand, such that sums of a few are exact.
func value(rank, i int) float32 { return float32((rank+1)*(i%997+1)) / 4 }

func operand(rank, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = value(rank, i)
	}
	return v
}

// checkSum compares a result with the sum over all ranks.
func checkSum(got []float32, ranks int) error {
	for i, g := range got {
		var want float32
		for r := range ranks {
			want += value(r, i)
		}
		if g != want {
			return fmt.Errorf("element %d of %d is %v, want %v", i, len(got), g, want)
		}
	}
	return nil
}

func TestAllReduceSumsOverAllRanksAndRails(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 7} {
		for _, rails := range []int{1, 2, 3} {
			t.Run(fmt.Sprintf("ranks=%d/rails=%d", n, rails), func(t *testing.T) {
				inBed(t, n, rails, nil, func(b *bed) {
					comms := b.form("train")
					for _, size := range []int{0, 1, 7, 1000, 40_000, 300_000} {
						b.each(func(i int) error {
							buf := operand(i, size)
							if err := AllReduce(b.t.Context(), comms[i], buf, Sum); err != nil {
								return err
							}
							return checkSum(buf, n)
						})
					}
				})
			})
		}
	}
}

func TestBothRailsCarryTheirShare(t *testing.T) {
	inBed(t, 2, 2, func(c *Config) { c.Rails[0].Weight = 3 }, func(b *bed) {
		comms := b.form("train")
		b.each(func(i int) error { return AllReduce(b.t.Context(), comms[i], operand(i, 1<<20), Sum) })
		b.expectShare(0.75)
	})
}

func TestAllReduceIntoLeavesTheSourceAlone(t *testing.T) {
	inBed(t, 3, 2, nil, func(b *bed) {
		comms := b.form("train")
		b.each(func(i int) error {
			src, dst := operand(i, 50_000), make([]float32, 50_000)
			if err := AllReduceInto(b.t.Context(), comms[i], dst, src, Sum); err != nil {
				return err
			}
			for j, v := range src {
				if v != value(i, j) {
					return fmt.Errorf("source element %d changed to %v", j, v)
				}
			}
			return checkSum(dst, 3)
		})
	})
}

func TestOperationsInFlightTogetherWithSkewedCallers(t *testing.T) {
	const operations = 40
	inBed(t, 4, 2, func(c *Config) { c.MaxInFlight = 5 }, func(b *bed) {
		comms := b.form("train")
		b.each(func(i int) error {
			<-time.After(time.Duration(i) * 50 * time.Millisecond) // virtual time: the callers' own pace
			var bufs [operations][]float32
			var works [operations]*Work
			for k := range operations {
				bufs[k] = operand(i, 1+(k*7919)%60_000)
				var err error
				if works[k], err = StartAllReduce(b.t.Context(), comms[i], bufs[k], Sum); err != nil {
					return err
				}
			}
			for k, w := range works {
				if err := w.Wait(b.t.Context()); err != nil {
					return err
				}
				if err := checkSum(bufs[k], 4); err != nil {
					return fmt.Errorf("operation %d: %w", k, err)
				}
			}
			return nil
		})
	})
}

func TestCommunicatorsSideBySide(t *testing.T) {
	inBed(t, 3, 2, nil, func(b *bed) {
		names := []string{"a", "b", "c"}
		var comms [3][]*Communicator
		for k, name := range names {
			comms[k] = b.form(name)
		}
		b.each(func(i int) error {
			for round := range 21 {
				k := (round + i) % 3 // every rank goes round the communicators from another one on
				w, err := StartAllReduce(b.t.Context(), comms[k][i], operand(i, 5000), Sum)
				if err != nil {
					return err
				}
				defer func() {
					if err := w.Wait(b.t.Context()); err != nil {
						t.Error(err)
					}
				}()
			}
			return nil
		})
	})
}

func TestDupIsIndependentOfItsParent(t *testing.T) {
	inBed(t, 3, 1, nil, func(b *bed) {
		comms := b.form("train")
		b.each(func(i int) error {
			child, err := comms[i].Dup(b.t.Context())
			if err != nil {
				return err
			}
			if child.Rank() != i || child.Size() != 3 {
				return fmt.Errorf("rank %d of %d", child.Rank(), child.Size())
			}
			if err := comms[i].Close(b.t.Context()); err != nil {
				return err
			}
			buf := operand(i, 1000)
			if err := AllReduce(b.t.Context(), child, buf, Sum); err != nil {
				return err
			}
			return errors.Join(checkSum(buf, 3), child.Close(b.t.Context()))
		})
	})
}

func TestACloseThatRunsOutOfTimeStillEndsTheOthersCalls(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		comms := b.form("train")
		b.each(func(i int) error {
			if i == 0 {
				ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
				defer cancel()
				<-time.After(time.Millisecond) // virtual time: rank 1's frame is here
				comms[0].Close(ctx)
				return nil
			}
			ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
			defer cancel()
			err := AllReduce(ctx, comms[1], make([]float32, 2), Sum)
			if err == nil || errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("a call that rank 0 never made: %v", err)
			}
			return nil
		})
	})
}

func TestACloseThatRunsOutOfTimeNamesWhomItWaitedFor(t *testing.T) {
	inBed(t, 3, 1, nil, func(b *bed) {
		comms := b.form("train")
		b.each(func(i int) error {
			if i == 2 {
				return nil
			}
			work, err := StartAllReduce(b.t.Context(), comms[i], make([]float32, 2), Sum)
			if err != nil {
				return err
			}
			if i == 0 {
				ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
				defer cancel()
				err = comms[0].Close(ctx)
			} else {
				err = work.Wait(b.t.Context())
			}
			if err == nil || !strings.Contains(err.Error(), `nothing has come from rank 2 (node "node2")`) {
				return fmt.Errorf("rank 2 is not named: %v", err)
			}
			return nil
		})
	})
}

func TestBarrierWaitsForTheLastRank(t *testing.T) {
	inBed(t, 3, 1, nil, func(b *bed) {
		comms := b.form("train")
		start := time.Now()
		b.each(func(i int) error {
			<-time.After(time.Duration(i) * time.Second) // virtual time: the callers' own pace
			if err := comms[i].Barrier(b.t.Context()); err != nil {
				return err
			}
			if waited := time.Since(start); waited < 2*time.Second {
				return fmt.Errorf("left the barrier after %v, before rank 2 entered it", waited)
			}
			return nil
		})
	})
}

func TestTableSwitchesBetweenTheSameOperations(t *testing.T) {
	inBed(t, 3, 2, nil, func(b *bed) {
		comms := b.form("train")
		var setters sync.WaitGroup
		b.each(func(i int) error {
			for k := range 30 {
				if i == 0 && k%10 == 5 {
					weights := []uint32{uint32(k), 1}
					setters.Go(func() {
						if err := comms[0].SetTable(b.t.Context(), Table{Entries: []TableEntry{{Weights: weights}}}); err != nil {
							t.Error(err)
						}
					})
				}
				buf := operand(i, 30_000)
				if err := AllReduce(b.t.Context(), comms[i], buf, Sum); err != nil {
					return err
				}
				if err := checkSum(buf, 3); err != nil {
					return err
				}
			}
			return nil
		})
		setters.Wait()
		synctest.Wait()
		for rank, c := range comms { // three tables after the first; one that came too late for its seq took another version
			if v := c.Table().Version; v < 4 || v != comms[0].Table().Version {
				t.Errorf("rank %d ends with table version %d, rank 0 with %d, want the same one from 4", rank, v, comms[0].Table().Version)
			}
		}
		err := comms[1].SetTable(b.t.Context(), comms[1].Table())
		if err == nil || !strings.Contains(err.Error(), `"node0"`) {
			t.Errorf("SetTable on rank 1: %v, want an error that names rank 0's node", err)
		}
	})
}

func TestUserDefinedOperator(t *testing.T) {
	hypot := UserOp("absmax", func(dst, a, b []float32) {
		for i := range dst {
			dst[i] = max(max(a[i], -a[i]), max(b[i], -b[i]))
		}
	})
	inBed(t, 3, 2, nil, func(b *bed) {
		comms := b.form("train")
		b.each(func(i int) error {
			buf := make([]float32, 40_000)
			for j := range buf {
				buf[j] = float32(j) * float32(1-2*(i%2))
			}
			if err := AllReduce(b.t.Context(), comms[i], buf, hypot); err != nil {
				return err
			}
			for j, v := range buf {
				if v != float32(j) {
					return fmt.Errorf("element %d is %v", j, v)
				}
			}
			return nil
		})
		bad := UserOp("panics", func(dst, a, b []float32) { panic("a caller's bug") })
		errs := b.failures(func(i int) error { return AllReduce(b.t.Context(), comms[i], make([]float32, 10), bad) })
		for i, err := range errs {
			if !strings.Contains(err.Error(), "a caller's bug") {
				t.Errorf("rank %d: %v", i, err)
			}
		}
	})
}

func TestConfigListsEveryFault(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Name, cfg.Bind, cfg.MaxInFlight = "", "nowhere", 0
	cfg.Rails = []Rail{{Name: "a", Protocol: "carrier-pigeon", Device: "coop", CPUs: []int{1023}}, {Name: "a", Protocol: "tcp", Device: "x"}}
	err := cfg.Validate()
	for _, word := range []string{"name", "nowhere", "max in flight", "carrier-pigeon", `rail "a": core 1023`, `"a": named twice`} {
		if err == nil || !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), word) {
			t.Errorf("%v, want %q in it", err, word)
		}
	}
	cfg.Name, cfg.Host, cfg.Cluster = "two words", "\xff", "d\xff"
	cfg.Rails = []Rail{{Name: "b\xff", Protocol: "tcp", Device: "x"}, {Name: "c", Protocol: "tcp", Device: "x", Weight: 1<<24 + 1}}
	err = cfg.Validate() // what would fail when rails are up, or break the agreement on a communicator
	for _, word := range []string{`name "two words"`, `host "\xff"`, `cluster "d\xff"`, `rail "b\xff"`, `rail "c": weight 16777217`} {
		if !strings.Contains(fmt.Sprint(err), word) {
			t.Errorf("%v, want %q in it", err, word)
		}
	}
	chain, err := ParseAlgorithm("chain")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Trees, cfg.Algorithms = 9, []AlgorithmRange{{Algorithm: chain}} // of reduces, not of allreduces
	err = cfg.Validate()
	for _, word := range []string{"trees(9)", "chain"} {
		if !strings.Contains(fmt.Sprint(err), word) {
			t.Errorf("%v, want %q in it", err, word)
		}
	}
	cfg = DefaultConfig()
	cfg.Rails = []Rail{{Name: "a", Protocol: "tcp", Device: "127.0.0.1", Weight: 1 << 24}}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
}

func TestParseRail(t *testing.T) {
	r, err := ParseRail("eth0=tcp:10.0.0.0/24,weight=3,cpus=8+0-1")
	if err != nil || r.Name != "eth0" || r.Protocol != "tcp" || r.Device != "10.0.0.0/24" || r.Weight != 3 || FormatCPUs(r.CPUs) != "0-1+8" {
		t.Errorf("%+v, %v", r, err)
	}
	for _, s := range []string{"", "eth0", "=tcp:x", "a=tcp", "a=:x", "a=tcp:", "a=tcp:x,weight=0", "a=tcp:x,cpus=", "a=tcp:x,cpus=1-0", "a=tcp:x,color=red"} {
		if _, err := ParseRail(s); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), fmt.Sprintf("%q", s)) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// Whoever reads a configuration tells its faults by ErrConfig, whichever setting it is.
func TestNamesThatAreReadAreConfiguration(t *testing.T) {
	for what, parse := range map[string]func(s string) (fmt.Stringer, error){
		"measured": func(s string) (fmt.Stringer, error) { return ParseTreeMode(s) },
		"both":     func(s string) (fmt.Stringer, error) { return ParseTreeResults(s) },
		"static":   func(s string) (fmt.Stringer, error) { return ParseBalanceMode(s) },
		"fixed":    func(s string) (fmt.Stringer, error) { return ParseOrderMode(s) },
		"float32":  func(s string) (fmt.Stringer, error) { return ParseDType(s) },
		"minloc":   func(s string) (fmt.Stringer, error) { return ParseOp(s) },
		"ring":     func(s string) (fmt.Stringer, error) { return ParseAlgorithm(s) },
	} {
		if m, err := parse(what); err != nil || m.String() != what {
			t.Errorf("%s: %v, %v", what, m, err)
		}
		if _, err := parse("bogus"); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), `"bogus"`) {
			t.Errorf("in place of %s: %v", what, err)
		}
	}
}
