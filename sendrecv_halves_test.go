package polyrail_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
)

// One half of a SendRecv fails. The other is given up: the call ends at once, its receive takes no
// message that comes later, and nobody receives what it was to send.
func TestAHalfThatFailsEndsItsSendRecv(t *testing.T) {
	const large, small, sent, received = 100_000, 10, 4, 5 // elements and tags
	turnDown := func(ctx context.Context, c *Communicator) error {
		_, err := Recv(ctx, c, make([]int32, small), 0, sent)
		return err
	}
	for name, c := range map[string]struct {
		to, room int // of rank 0's call
		// other is what rank 1 does meanwhile.
		other func(context.Context, *Communicator) error
		want  error
	}{
		"the send is turned down": {1, large, turnDown, ErrMismatch},
		"the receive turns a message down": {1, small, func(ctx context.Context, c *Communicator) error {
			return Send(ctx, c, letter(1, 0, large), 0, received)
		}, ErrMismatch},
		"the send is turned down later": {1, large, func(ctx context.Context, c *Communicator) error {
			if err := Send(ctx, c, letter(1, 0, small), 0, received); err != nil {
				return err
			}
			<-time.After(time.Second) // virtual time
			return turnDown(ctx, c)
		}, ErrMismatch},
		"the send can't be": {7, large, func(context.Context, *Communicator) error {
			return ErrArgument
		}, ErrArgument},
	} {
		t.Run(name, func(t *testing.T) {
			inBed(t, 2, 2, nil, func(b *bed) {
				comms := b.form("train")
				ctx, cancel := b.timeout()
				defer cancel()
				buf := make([]int32, c.room)
				halves := func(ctx context.Context, comm *Communicator) error {
					_, err := SendRecv(ctx, comm, letter(0, 0, large), c.to, sent, buf, 1, received)
					return err
				}
				b.each(func(i int) error {
					began := time.Now()
					err := []func(context.Context, *Communicator) error{halves, c.other}[i](ctx, comms[i])
					if took := time.Since(began); !errors.Is(err, c.want) || took > 2*time.Second {
						return fmt.Errorf("after %v it ends with %v", took, err)
					}
					return nil
				})
				<-time.After(time.Second) // that a message was given up is on its way
				before := slices.Clone(buf)
				b.each(func(i int) error { // the next messages, with the same tags
					mine, theirs := sent, received
					if i == 1 {
						mine, theirs = received, sent
					}
					again := make([]int32, large)
					s, err := SendRecv(ctx, comms[i], letter(i, 1, large), 1-i, mine, again, 1-i, theirs)
					if err != nil {
						return err
					}
					return checkLetter(again, s, 1-i, theirs, 1, large)
				})
				if !slices.Equal(buf, before) {
					t.Error("a receive that was given up took a message")
				}
			})
		})
	}
}
