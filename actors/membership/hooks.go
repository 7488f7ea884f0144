package membership

import (
	"context"

	"github.com/polyrail/polyrail/cluster"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/supervise"
)

// Hooks are what a test replaces in a node. They travel in the context of the node's start, so
// that no public configuration has them; httptrace does the same. test/testbed sets them.
type Hooks struct {
	Gossip   cluster.Network     // carries gossip in place of sockets; nil: sockets do
	Panics   *supervise.Panics   // makes the node's actors panic; nil: nobody does
	Attempts railactors.Attempts // to connect take turns by this; nil: by that of the process
}

type hooksKey struct{}

// WithHooks returns a context with which nodes start with the hooks.
func WithHooks(ctx context.Context, h Hooks) context.Context {
	return context.WithValue(ctx, hooksKey{}, h)
}

// hooksOf are the context's hooks, or none.
func hooksOf(ctx context.Context) Hooks {
	h, _ := ctx.Value(hooksKey{}).(Hooks)
	return h
}
