package supervise

import (
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/asynkron/protoactor-go/actor"
)

// Recover is deferred first thing in a Receive:
//
//	func (a *pairActor) Receive(ctx actor.Context) {
//		defer supervise.Recover(ctx, a.log)
//
// It logs a panic with its stack, which nobody sees otherwise, and panics again, so that
// the supervisor decides. A panic in Stopping or Stopped ends here: passed on, it would
// bring the actor back, or leave its parent waiting for its end.
func Recover(ctx actor.Context, log *slog.Logger) {
	if r := recover(); r != nil {
		Log(ctx.Self(), ctx.Message(), r, log)
		switch ctx.Message().(type) {
		case *actor.Stopping, *actor.Stopped:
		default:
			panic(r)
		}
	}
}

// Log is for an actor that recovers from its panics by itself.
func Log(self *actor.PID, message, reason any, log *slog.Logger) {
	about := []any{"actor", self.GetId(), "message", fmt.Sprintf("%T", message), "reason", fmt.Sprint(reason)}
	if _, is := reason.(told); !is { // that one has no cause to be found
		about = append(about, "stack", string(debug.Stack()))
	}
	log.Error("actor panicked", about...)
}
