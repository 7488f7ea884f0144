package polyrail_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
)

// letter is the content of a rank's k-th message.
func letter(from, k, n int) []int32 {
	v := make([]int32, n)
	for i := range v {
		v[i] = int32(from*1_000_000 + k*1000 + i)
	}
	return v
}

// checkLetter holds a received message against the k-th one of a rank.
func checkLetter(buf []int32, s Status, from, tag, k, n int) error {
	if s != (Status{Source: from, Tag: tag, Count: n}) {
		return fmt.Errorf("got %+v, want %d elements of rank %d with tag %d", s, n, from, tag)
	}
	for i, v := range buf[:n] {
		if want := int32(from*1_000_000 + k*1000 + i); v != want {
			return fmt.Errorf("message %d of rank %d: element %d of %d is %d, want %d", k, from, i,
				n, v, want)
		}
	}
	return nil
}

func waitAll(ctx context.Context, all []*Transfer) error {
	for _, t := range all {
		if _, err := t.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

func TestMessagesOfEverySizeAroundARing(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		for _, rails := range []int{1, 3} {
			t.Run(fmt.Sprintf("ranks=%d/rails=%d", n, rails), func(t *testing.T) {
				inBed(t, n, rails, nil, func(b *bed) {
					comms := b.form("train")
					b.each(func(i int) error {
						for k, size := range []int{0, 1, 1000, 16 << 10, 16<<10 + 1, 100_000, 1_000_001} {
							buf := make([]int32, size+3)
							from := (i + n - 1) % n
							s, err := SendRecv(b.t.Context(), comms[i], letter(i, k, size), (i+1)%n,
								k, buf, from, k)
							if err != nil {
								return err
							}
							if err := checkLetter(buf, s, from, k, k, size); err != nil {
								return err
							}
						}
						return nil
					})
				})
			})
		}
	}
}

func TestWildcardsAndTagsChooseMessages(t *testing.T) {
	inBed(t, 3, 2, nil, func(b *bed) {
		comms := b.form("train")
		ctx, cancel := b.timeout()
		defer cancel()
		b.each(func(i int) error {
			if i > 0 {
				var sends []*Transfer
				for k := range 20 { // small and large in turn
					s, err := StartSend(ctx, comms[i], letter(i, k, 1+k%2*50_000), 0, k%4)
					if err != nil {
						return err
					}
					sends = append(sends, s)
				}
				return waitAll(ctx, sends)
			}
			buf := make([]int32, 50_001)
			for k := 3; k < 20; k += 4 { // one tag of one rank: in the order of its sends
				s, err := Recv(ctx, comms[0], buf, 2, 3)
				if err == nil {
					err = checkLetter(buf, s, 2, 3, k, 1+k%2*50_000)
				}
				if err != nil {
					return err
				}
			}
			next := [3]int{}
			for range 35 { // the others: of each rank in the order of its sends
				s, err := Recv(ctx, comms[0], buf, AnySource, AnyTag)
				if err != nil {
					return err
				}
				k := next[s.Source]
				if s.Source == 2 && k%4 == 3 {
					k++
				}
				next[s.Source] = k + 1
				if err := checkLetter(buf, s, s.Source, k%4, k, 1+k%2*50_000); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func TestEverybodySendsLargeToEverybodyBeforeReceiving(t *testing.T) {
	const n, messages, size = 4, 300, 30_000 // 120 kB each: none goes before it is received
	inBed(t, n, 2, nil, func(b *bed) {
		comms := b.form("train")
		ctx, cancel := b.timeout()
		defer cancel()
		b.each(func(i int) error {
			var sends []*Transfer
			for to := range n {
				for k := range messages {
					s, err := StartSend(ctx, comms[i], letter(i, k, size), to, 1)
					if err != nil {
						return err
					}
					sends = append(sends, s)
				}
			}
			buf := make([]int32, size)
			for k := range messages {
				for from := range n {
					s, err := Recv(ctx, comms[i], buf, from, AnyTag)
					if err != nil {
						return err
					}
					if err := checkLetter(buf, s, from, 1, k, size); err != nil {
						return err
					}
				}
			}
			if err := waitAll(ctx, sends); err != nil {
				return err
			}
			return comms[i].Close(ctx)
		})
	})
}

func TestMessagesBesideCollectives(t *testing.T) {
	inBed(t, 3, 2, nil, func(b *bed) {
		comms := b.form("train")
		ctx, cancel := b.timeout()
		defer cancel()
		b.each(func(i int) error {
			done := make(chan error, 1)
			go func() {
				buf := make([]int32, 70_000)
				for k := range 50 {
					if _, err := SendRecv(ctx, comms[i], letter(i, k, 70_000), (i+1)%3, 0, buf,
						(i+2)%3, 0); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
			for range 50 {
				buf := operand(i, 30_000)
				if err := AllReduce(ctx, comms[i], buf, Sum); err != nil {
					return err
				}
				if err := checkSum(buf, 3); err != nil {
					return err
				}
			}
			return <-done
		})
	})
}

func TestUnexpectedMessagesTakeBoundedMemory(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		comms := b.form("train")
		ctx, cancel := b.timeout()
		defer cancel()
		const messages = 2000 // 32 MB, of which few wait at the receiver
		b.each(func(i int) error {
			if i == 0 {
				var all []*Transfer
				for k := range messages {
					s, err := StartSend(ctx, comms[0], letter(0, k, 4000), 1, 0)
					if err != nil {
						return err
					}
					all = append(all, s)
				}
				gone := 0
				<-time.After(time.Second) // virtual time: whatever goes has gone
				for _, s := range all {
					select {
					case <-s.Done():
						gone++
					default:
					}
				}
				if gone == 0 || gone > 32 {
					return fmt.Errorf("%d messages of 16 kB went before they were received", gone)
				}
				return waitAll(ctx, all)
			}
			<-time.After(2 * time.Second)
			buf := make([]int32, 4000)
			for k := range messages {
				s, err := Recv(ctx, comms[1], buf, 0, AnyTag)
				if err != nil {
					return err
				}
				if err := checkLetter(buf, s, 0, 0, k, 4000); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func TestLargeMessagesGoByTheSharesOfTheRails(t *testing.T) {
	inBed(t, 2, 2, func(c *Config) { c.Rails[0].Weight, c.PinFrames = 3, true }, func(b *bed) {
		comms := b.form("train")
		b.each(func(i int) error {
			buf := make([]int32, 4<<20)
			if i == 0 {
				return Send(b.t.Context(), comms[0], buf, 1, 0)
			}
			_, err := Recv(b.t.Context(), comms[1], buf, 0, 0)
			return err
		})
		b.expectShare(0.75)
	})
}

func TestMessagesLeaveNothingBehind(t *testing.T) {
	inBed(t, 2, 2, nil, func(b *bed) {
		comms := b.form("train")
		run := func(messages int) (heap uint64) {
			b.each(func(i int) error {
				ctx, cancel := b.timeout()
				defer cancel()
				mine, theirs := make([]byte, 100<<10), make([]byte, 100<<10)
				for k := range messages {
					n := []int{8, 3000, 100 << 10}[k%3]
					if _, err := SendRecv(ctx, comms[i], mine[:n], 1-i, k, theirs[:n], 1-i,
						AnyTag); err != nil {
						return err
					}
				}
				return nil
			})
			var s runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&s)
			return s.HeapAlloc
		}
		before := run(1000)
		if after := run(10_000); after > before+1<<20 {
			t.Errorf("%d bytes after 10,000 messages, %d before", after, before)
		}
	})
}

func TestMessagesToOneself(t *testing.T) {
	inBed(t, 1, 2, nil, func(b *bed) {
		c := b.form("train")[0]
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute) // virtual time
		defer cancel()
		buf := make([]int32, 1_000_000)
		for k, size := range []int{0, 10, 16 << 10, 1_000_000} {
			sent, err := StartSend(ctx, c, letter(0, k, size), 0, k)
			if err != nil {
				t.Fatal(err)
			}
			s, err := Recv(ctx, c, buf, AnySource, AnyTag)
			if err == nil {
				err = checkLetter(buf, s, 0, k, k, size)
			}
			if _, failed := sent.Wait(ctx); err != nil || failed != nil {
				t.Errorf("%d elements: %v, %v", size, err, failed)
			}
		}
		soon, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		if err := Send(soon, c, buf, 0, 9); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a large message that is not received: %v", err)
		}
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}
