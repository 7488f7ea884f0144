package polyrail_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/op"
)

// counts are what rank i sends to rank j, in an uneven pattern with empty messages.
func counts(i, j int) int { return (i*7919 + j*104729) % 5 * 13_001 }

// exchange is rank i's part in everybody's messages to everybody; of the last one it expects
// more by extra.
func exchange(i, n, extra int) (sends, recvs []engine.Message) {
	for j := range n {
		room := counts(j, i)
		if j == n-1 {
			room += extra
		}
		sends = append(sends, engine.Message{Rank: op.Rank(j), DType: op.Int32,
			Buf: op.Bytes(letter(i, j, counts(i, j)))})
		recvs = append(recvs, engine.Message{Rank: op.Rank(j), DType: op.Int32,
			Buf: op.Bytes(make([]int32, room))})
	}
	return sends, recvs
}

func TestAnExchangeOfPrivateCountsBesideCallersMessages(t *testing.T) {
	const n = 4
	inBed(t, n, 2, nil, func(b *bed) {
		comms := b.form("train")
		ctx, cancel := b.timeout()
		defer cancel()
		b.each(func(i int) error {
			// It meets none of them.
			wild, err := StartRecv(ctx, comms[i], make([]int32, 100_000), AnySource, AnyTag)
			if err != nil {
				return err
			}
			for seq := range uint64(20) {
				sends, recvs := exchange(i, n, 0)
				e, err := comms[i].Transfers().Exchange(ctx, seq, sends, recvs)
				if err == nil {
					err = e.Wait(ctx)
				}
				if err != nil {
					return err
				}
				for j, m := range recvs {
					if err := checkLetter(Elements[int32](m.Buf), Status{j, 0, counts(j, i)}, j, 0,
						i, counts(j, i)); err != nil {
						return err
					}
				}
			}
			if err := Send(ctx, comms[i], letter(i, 0, 10), (i+1)%n, 0); err != nil {
				return err
			}
			_, err = wild.Wait(ctx)
			return err
		})
	})
}

func TestAnExchangeWhoseLengthsDifferNamesBoth(t *testing.T) {
	for _, extra := range []int{-1, 1} { // of 26,002: more and less than is sent
		t.Run(fmt.Sprint(extra), func(t *testing.T) {
			inBed(t, 3, 2, nil, func(b *bed) {
				comms := b.form("train")
				ctx, cancel := b.timeout()
				defer cancel()
				b.each(func(i int) error {
					mine := 0
					if i == 0 {
						mine = extra
					}
					sends, recvs := exchange(i, 3, mine)
					e, err := comms[i].Transfers().Exchange(ctx, 1, sends, recvs)
					if err != nil {
						return err
					}
					soon, cancel := context.WithTimeout(ctx, 10*time.Second)
					defer cancel()
					err = e.Wait(soon)
					sent := counts(2, 0)
					if i == 0 && (!errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(),
						fmt.Sprintf("%d bytes, the receive buffer %d", 4*sent, 4*(sent+extra)))) {
						return fmt.Errorf("got %v", err)
					}
					return nil
				})
			})
		})
	}
}
