package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/polyrail/polyrail"
)

// leaveTimeout bounds how long a process that ends waits for the others' farewell.
const leaveTimeout = 5 * time.Second

// leave closes node in bounded time, even where ctx has ended. A member that does not answer the
// farewell will find out by gossip: that is worth a warning, and no failure of what was done before.
func leave(ctx context.Context, node *polyrail.Node, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if err := node.Close(ctx); err != nil {
		log.Warn("the farewell to the cluster was not acknowledged", "node", node.Name(), "err", err)
	}
}
