package polyrail_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/polyrail/polyrail"
)

// An actor that all peers need panics until it is stopped. Who waits hears of it, and what it was; so
// does who asks for a communicator later. Close returns.
func TestAnActorThatPanicsTooOftenIsNamed(t *testing.T) {
	for _, kind := range []string{"rails", "peers"} {
		t.Run(kind, func(t *testing.T) {
			inBed(t, 2, 2, nil, func(b *bed) {
				comms := b.form("train")
				for b.Panics[0].Throw(kind) > 0 {
					synctest.Wait()
				}
				named := func(what string, err error) {
					if err == nil || !strings.Contains(err.Error(), kind+`-node0" of this node panicked too often`) {
						t.Errorf("%s ends with %v", what, err)
					}
				}
				ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
				defer cancel()
				named("an operation", AllReduce(ctx, comms[0], make([]float32, 100), Sum))
				go func() { _, _ = b.Nodes[1].Communicator(ctx, "other", 2) }()
				_, err := b.Nodes[0].Communicator(ctx, "other", 2)
				named("another communicator", err)
				if s, err := b.Nodes[0].Status(b.t.Context()); err != nil || len(s.Obstacles) == 0 {
					t.Errorf("the node says that it is ready: %v", err)
				}
				cancel()
				if err := b.Nodes[0].Close(b.t.Context()); err != nil {
					t.Error(err)
				}
				b.Nodes[0] = nil
			})
		})
	}
}
