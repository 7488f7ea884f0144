package polyrail_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/railactors/transport/fault"
)

func TestAMessageThatDoesNotFitIsAnErrorThatNamesBothLengths(t *testing.T) {
	for _, size := range []int{10, 100_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			inBed(t, 2, 2, nil, func(b *bed) {
				comms := b.form("train")
				ctx, cancel := b.timeout()
				defer cancel()
				b.each(func(i int) error {
					if i == 0 {
						for tag := range 2 {
							err := Send(ctx, comms[0], letter(0, tag, size), 1, tag)
							if size == 10 && err != nil || size > 10 && !errors.Is(err, ErrMismatch) {
								return fmt.Errorf("the sender got %v", err)
							}
						}
						return Send(ctx, comms[0], letter(0, 7, size), 1, 2)
					}
					_, short := Recv(ctx, comms[1], make([]int32, size-1), 0, 0)
					_, other := Recv(ctx, comms[1], make([]float32, size), 0, 1)
					for _, err := range []error{short, other} {
						var m *MismatchError
						if !errors.As(err, &m) || m.Node != "node0" ||
							!strings.Contains(m.Theirs, fmt.Sprintf("%d × int32", size)) {
							return fmt.Errorf("got %v", err)
						}
					}
					if want := fmt.Sprintf("%d bytes, the receive buffer %d", 4*size,
						4*size-4); !strings.Contains(short.Error(), want) {
						return fmt.Errorf("got %v, want %q in it", short, want)
					}
					if !strings.Contains(other.Error(), "× float32") {
						return fmt.Errorf("got %v, want both types", other)
					}
					buf := make([]int32, size) // the communicator works on
					s, err := Recv(ctx, comms[1], buf, 0, 2)
					if err != nil {
						return err
					}
					return checkLetter(buf, s, 0, 2, 7, size)
				})
			})
		})
	}
}

func TestCallsThatCannotBeRunAreErrorsHereAlone(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		comms := b.form("train")
		ctx, cancel := b.timeout()
		defer cancel()
		over, end := context.WithCancel(ctx)
		end()
		for what, err := range map[string]error{
			"no rank 2":   Send(ctx, comms[0], letter(0, 0, 1), 2, 0),
			"to rank -1,": Send(ctx, comms[0], letter(0, 0, 1), AnySource, 0),
			"tag must be": Send(ctx, comms[0], letter(0, 0, 1), 1, AnyTag),
			"0 … 2147":    Send(ctx, comms[0], letter(0, 0, 1), 1, MaxTag+1),
			"no whole":    SendBytes(ctx, comms[0], make([]byte, 7), DTypes()[9], 1, 0),
			"not an elem": SendBytes(ctx, comms[0], make([]byte, 7), 0, 1, 0),
			"canceled":    Send(over, comms[0], letter(0, 0, 1), 1, 0),
		} {
			if err == nil || !strings.Contains(err.Error(), what) || errors.Is(err, ErrArgument) != (what != "canceled") {
				t.Errorf("%v, want %q in it", err, what)
			}
		}
		if _, err := Recv(ctx, comms[0], make([]int32, 1), -2, 0); !errors.Is(err, ErrArgument) {
			t.Error("there is no rank -2:", err)
		}
		if _, err := Recv(ctx, comms[0], make([]int32, 1), 1, -2); !errors.Is(err, ErrArgument) ||
			strings.Contains(err.Error(), "2147483648") {
			t.Errorf("%v, which names a tag that nobody gave", err)
		}
		b.each(func(i int) error { return comms[i].Barrier(ctx) })
	})
}

func TestACancelEndsOneTransferAndNothingElse(t *testing.T) {
	for _, size := range []int{10, 3_000_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			inBed(t, 2, 2, nil, func(b *bed) {
				comms := b.form("train")
				ctx, cancel := b.timeout()
				defer cancel()
				b.each(func(i int) error {
					soon, cancel := context.WithTimeout(ctx, time.Second)
					defer cancel()
					buf := make([]int32, size)
					if i == 1 { // nobody sends this
						if _, err := Recv(soon, comms[1], buf, 0,
							99); !errors.Is(err, context.DeadlineExceeded) {
							return fmt.Errorf("got %v", err)
						}
					} else if size > 16<<10 { // nobody receives this
						if err := Send(soon, comms[0], letter(0, 0, size), 1,
							0); !errors.Is(err, context.DeadlineExceeded) {
							return fmt.Errorf("got %v", err)
						}
					} else {
						<-soon.Done()
					}
					if i == 0 {
						return Send(ctx, comms[0], letter(0, 1, size), 1, 0)
					}
					// Virtual: the first one is cancelled.
					<-time.After(time.Second)
					s, err := Recv(ctx, comms[1], buf, AnySource, AnyTag) // the second one
					if err != nil {
						return err
					}
					return checkLetter(buf, s, 0, 0, 1, size)
				})
			})
		})
	}
}

// slowRails carry 40 MB/s each, so that something is on its way for long.
func slowRails() (adapt func(*Config), rail func(node, rail int) *fault.Transport) {
	return shapedRails(fault.Options{Rate: 40e6, Delay: time.Millisecond}, func(*Config) {})
}

func TestACancelInTheMiddleOfAMessage(t *testing.T) {
	const size = 10_000_000 // half a second
	for _, who := range []string{"sender", "receiver"} {
		t.Run(who, func(t *testing.T) {
			adapt, _ := slowRails()
			inBed(t, 2, 2, adapt, func(b *bed) {
				comms := b.form("train")
				ctx, cancel := b.timeout()
				defer cancel()
				b.each(func(i int) error {
					begin := time.Now()
					prompt := func() bool { return time.Since(begin) < 150*time.Millisecond }
					soon, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
					defer cancel()
					buf := letter(i, 0, size)
					if i == 0 {
						mine := ctx
						if who == "sender" {
							mine = soon
						}
						err := Send(mine, comms[0], buf, 1, 0)
						clear(buf) // it is the caller's again
						if who == "sender" && (!errors.Is(err, context.DeadlineExceeded) ||
							!prompt()) || who == "receiver" && err != nil {
							return fmt.Errorf("the sender got %v", err)
						}
						return Send(ctx, comms[0], letter(0, 1, size), 1, 0)
					}
					mine := ctx
					if who == "receiver" {
						mine = soon
					}
					_, err := Recv(mine, comms[1], buf, 0, 0)
					if who == "receiver" && (!errors.Is(err, context.DeadlineExceeded) || !prompt()) {
						return fmt.Errorf("the receiver got %v", err)
					}
					if who == "sender" &&
						(!errors.Is(err, ErrAborted) || !strings.Contains(err.Error(), `"node0"`)) {
						return fmt.Errorf("the receiver got %v, want one that names the sender", err)
					}
					for k := range buf { // it is the caller's again
						buf[k] = -1
					}
					next := make([]int32, size)
					s, err := Recv(ctx, comms[1], next, 0, 0)
					if err != nil {
						return err
					}
					for k, v := range buf {
						if v != -1 {
							return fmt.Errorf("element %d was written after the receive had ended", k)
						}
					}
					return checkLetter(next, s, 0, 0, 1, size)
				})
			})
		})
	}
}

func TestRailsThatAreCutInTheMiddleOfMessages(t *testing.T) {
	const n, messages = 3, 12
	adapt, rails := slowRails()
	inBed(t, n, 2, adapt, func(b *bed) {
		comms := b.form("train")
		ctx, cancel := b.timeout()
		defer cancel()
		stop := make(chan struct{})
		cutter := make(chan struct{})
		go func() {
			defer close(cutter)
			for k := 0; ; k++ {
				select {
				case <-stop:
					return
				case <-time.After(30 * time.Millisecond):
				}
				r := rails(k%n, k/n%2)
				r.Cut()
				<-time.After(50 * time.Millisecond) // virtual time
				r.Heal()
				<-time.After(2 * time.Second)
			}
		}()
		b.each(func(i int) error {
			var all []*Transfer
			bufs := make(map[[2]int][]int32)
			size := func(k int) int { return []int{1, 10_000, 200_000, 4_000_000}[k%4] }
			for k := range messages {
				for peer := range n {
					s, err := StartSend(ctx, comms[i], letter(i, k, size(k)), peer, k)
					if err != nil {
						return err
					}
					bufs[[2]int{peer, k}] = make([]int32, size(k))
					r, err := StartRecv(ctx, comms[i], bufs[[2]int{peer, k}], peer, k)
					if err != nil {
						return err
					}
					all = append(all, s, r)
				}
			}
			if err := waitAll(ctx, all); err != nil {
				return err
			}
			for key, buf := range bufs {
				if err := checkLetter(buf, Status{key[0], key[1], size(key[1])}, key[0], key[1],
					key[1], size(key[1])); err != nil {
					return err
				}
			}
			return nil
		})
		close(stop)
		<-cutter
		again := uint64(0)
		for _, node := range b.Nodes {
			for _, r := range node.Rails() {
				again += r.Reconnects
			}
		}
		if again == 0 {
			t.Error("no rail was lost")
		}
	})
}

func TestALostRankEndsMessages(t *testing.T) {
	inBed(t, 3, 2, nil, func(b *bed) {
		comms := b.form("train")
		ctx, cancel := b.timeout()
		defer cancel()
		start := time.Now()
		var works []*Transfer
		add := func(x *Transfer, err error) {
			if err != nil {
				t.Fatal(err)
			}
			works = append(works, x)
		}
		for i := range 2 {
			add(StartRecv(ctx, comms[i], make([]int32, 10), 2, 0))
			add(StartRecv(ctx, comms[i], make([]int32, 10), AnySource, 0))
			add(StartSend(ctx, comms[i], make([]int32, 1_000_000), 2, 0))
		}
		b.Kill(2)
		for _, x := range works {
			<-x.Done()
			if !errors.Is(x.Err(), ErrRankLost) || !strings.Contains(x.Err().Error(), `"node2"`) {
				t.Errorf("got %v, want node2 lost", x.Err())
			}
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("it took %v", took)
		}
		if err := Send(ctx, comms[0], make([]int32, 1), 1, 0); !errors.Is(err, ErrBroken) {
			t.Errorf("a later send: %v", err)
		}
	})
}

func TestAClosedRankEndsWhatItWillNotAnswer(t *testing.T) {
	slow, _ := slowRails()
	// Its farewell overtakes data.
	inBed(t, 3, 2, func(c *Config) { slow(c); c.Rails[1].Weight = 3 }, func(b *bed) {
		comms := b.form("train")
		ctx, cancel := b.timeout()
		defer cancel()
		const messages, size = 10, 5000
		b.each(func(i int) error {
			if i == 2 { // what it sent can be received after it has gone
				for k := range messages {
					if err := Send(ctx, comms[2], letter(2, k, size), 0, 0); err != nil {
						return err
					}
				}
				return comms[2].Close(ctx)
			}
			ends := []error{Send(ctx, comms[i], make([]int32, 100_000), 2, 0)}
			if i == 0 {
				buf := make([]int32, size)
				for k := range messages {
					s, err := Recv(ctx, comms[0], buf, []int{2, AnySource}[k%2], 0)
					if err != nil {
						return err
					}
					if err := checkLetter(buf, s, 2, 0, k, size); err != nil {
						return err
					}
				}
			}
			if i == 1 {
				<-time.After(time.Second) // virtual time
			}
			_, err := Recv(ctx, comms[i], make([]int32, 100), 2, AnyTag)
			ends = append(ends, err, Send(ctx, comms[i], make([]int32, 1), 2, 0))
			for k, err := range ends {
				if !errors.Is(err, ErrAborted) || !errors.Is(err, ErrClosed) ||
					!strings.Contains(err.Error(), `"node2"`) {
					return fmt.Errorf("call %d got %v, want one that names node2", k, err)
				}
			}
			// The others go on.
			_, err = SendRecv(ctx, comms[i], letter(i, 0, 5), 1-i, 0, make([]int32, 5), 1-i, 0)
			return err
		})
	})
}

func TestAReceiveOfAnyRankEndsWithTheLastOfThem(t *testing.T) {
	inBed(t, 3, 1, nil, func(b *bed) {
		comms := b.form("train")
		ctx, cancel := b.timeout()
		defer cancel()
		b.each(func(i int) error {
			if i > 0 {
				return comms[i].Close(ctx)
			}
			if _, err := Recv(ctx, comms[0], make([]int32, 1), AnySource, 0); !errors.Is(err, ErrClosed) {
				return fmt.Errorf("got %v", err)
			}
			return nil
		})
	})
}

func TestCloseWaitsForMessages(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		comms := b.form("train")
		ctx, cancel := b.timeout()
		defer cancel()
		b.each(func(i int) error {
			if i == 0 {
				s, err := StartSend(ctx, comms[0], letter(0, 0, 100_000), 1, 0)
				if err != nil {
					return err
				}
				if err := comms[0].Close(ctx); err != nil {
					return err
				}
				return s.Err()
			}
			<-time.After(time.Second) // virtual time: rank 0 closes meanwhile
			buf := make([]int32, 100_000)
			s, err := Recv(ctx, comms[1], buf, 0, 0)
			if err != nil {
				return err
			}
			return checkLetter(buf, s, 0, 0, 0, 100_000)
		})
		if err := Send(ctx, comms[0], make([]int32, 1), 1, 0); !errors.Is(err, ErrClosed) {
			t.Errorf("a send on a closed communicator: %v", err)
		}
	})
	inBed(t, 2, 1, nil, func(b *bed) { // with a context that ends first
		comms := b.form("train")
		r, err := StartRecv(b.t.Context(), comms[0], make([]int32, 1), 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		soon, cancel := context.WithTimeout(b.t.Context(), time.Second)
		defer cancel()
		if err := comms[0].Close(soon); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		if !errors.Is(r.Err(), ErrClosed) {
			t.Errorf("the receive got %v", r.Err())
		}
	})
}

// Either side gives up at random moments, while rails are cut: every transfer ends, memory is the
// caller's again, and what both sides report as well is right.
func TestRandomCancelsWhileRailsAreCut(t *testing.T) {
	const messages, size = 80, 600_000
	adapt, rails := slowRails()
	inBed(t, 2, 2, adapt, func(b *bed) {
		comms := b.form("train")
		ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Minute) // virtual time
		defer cancel()
		var given, whole [2]int
		b.each(func(i int) error {
			rng := rand.New(rand.NewPCG(7, uint64(i)))
			bufs, errs, started := make([][]int32, 2*messages), make([]error, 2*messages),
				make([]bool, 2*messages)
			var all sync.WaitGroup
			for k := range messages {
				mine, cancel := context.WithTimeout(ctx, time.Duration(rng.IntN(2000))*time.Millisecond)
				defer cancel()
				for way := range 2 {
					j := 2*k + way
					n := 1 + (k*7919)%size
					bufs[j] = letter(i, k, n)
					start := StartSend[int32]
					if way == 1 {
						start = StartRecv[int32]
					}
					x, err := start(mine, comms[i], bufs[j], 1-i, k)
					if err != nil {
						errs[j] = err
						continue
					}
					started[j] = true
					all.Go(func() {
						<-x.Done()
						errs[j] = x.Err()
						if way == 1 && x.Err() == nil {
							s, _ := x.Wait(ctx)
							errs[j] = checkLetter(bufs[j], s, 1-i, k, k, n)
						}
						for e := range bufs[j] { // its caller's again
							bufs[j][e] = -1
						}
					})
				}
				<-time.After(time.Duration(rng.IntN(200)) * time.Millisecond) // virtual time
				if i == 0 && k%40 == 10 {
					// One rail, and after seconds the other one.
					r := rails(0, k/40)
					r.Cut()
					<-time.After(20 * time.Millisecond)
					r.Heal()
				}
			}
			all.Wait()
			for j, err := range errs {
				switch {
				case err == nil:
					whole[i]++
				case errors.Is(err, context.DeadlineExceeded), errors.Is(err, ErrAborted):
					given[i]++
				default:
					return fmt.Errorf("transfer %d: %v", j, err)
				}
			}
			<-time.After(5 * time.Second) // whatever is still on its way
			for j, buf := range bufs {
				for e, v := range buf {
					if v != -1 && started[j] {
						return fmt.Errorf("element %d of transfer %d was written after its end", e, j)
					}
				}
			}
			buf := make([]int32, size)
			s, err := SendRecv(ctx, comms[i], letter(i, 0, size), 1-i, MaxTag, buf, 1-i, MaxTag)
			if err != nil {
				return err
			}
			return checkLetter(buf, s, 1-i, MaxTag, 0, size)
		})
		if given[0] < 10 || whole[0] < 10 {
			t.Errorf("%v given up, %v whole: the test shows little", given, whole)
		}
	})
}
