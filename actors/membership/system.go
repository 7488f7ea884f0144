package membership

import (
	"context"
	"log/slog"
	"slices"

	"github.com/asynkron/protoactor-go/actor"
)

// registryMaps is over how many maps, each of 32 shards, an actor system spreads its processes.
// protoactor makes 1,024 of them: 2.8 MB for each node of a process, and half of what the garbage
// collector has to look at. A node has some hundreds of actors.
const registryMaps = 4

// newSystem is the actor system of a node.
func newSystem(log *slog.Logger) *actor.ActorSystem {
	system := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return quietLogger(log)
	}))
	registry := system.ProcessRegistry.LocalPIDs
	all := registry.LocalPIDs
	registry.LocalPIDs = slices.Clone(all[:registryMaps]) // a part of all would keep all of them
	for _, m := range all {
		if m.IsEmpty() {
			continue // as nearly all are; Items starts a goroutine for each shard
		}
		for id, process := range m.Items() {
			m.Remove(id)
			registry.GetBucket(id).Set(id, process)
		}
	}
	return system
}

// quietLogger keeps protoactor's own chatter below warnings out of the user's log.
func quietLogger(l *slog.Logger) *slog.Logger { return slog.New(&atLeast{l.Handler(), slog.LevelWarn}) }

type atLeast struct {
	slog.Handler
	level slog.Level
}

func (h *atLeast) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= h.level && h.Handler.Enabled(ctx, l)
}
