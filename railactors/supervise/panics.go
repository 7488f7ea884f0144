package supervise

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
)

// Panics makes actors panic, so that tests can show that a fault in any of them costs no more than
// it has to. The zero value is ready; the node that it is given to binds its actors.
type Panics struct {
	mu     sync.Mutex
	system *actor.ActorSystem // nil before the node's start and after its end
	met    atomic.Int64
}

// explosion is the message.
type explosion struct{ panics *Panics }

// IgnoreDeadLetterLogging implements actor.IgnoreDeadLetterLogging: the actor may end first.
func (*explosion) IgnoreDeadLetterLogging() {}

// Bind puts a system's actors within reach, in place of those before; nil: none.
func (p *Panics) Bind(sys *actor.ActorSystem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.system = sys
}

// Throw makes every actor of a kind panic: pair, coordinator, … An actor's kind is how its own part
// of its id begins. It returns how many were told so.
func (p *Panics) Throw(kind string) (told int) {
	p.mu.Lock()
	sys := p.system
	p.mu.Unlock()
	if sys == nil {
		return 0
	}
	for _, bucket := range sys.ProcessRegistry.LocalPIDs.LocalPIDs {
		for _, id := range bucket.Keys() {
			if KindOf(id) == kind {
				sys.Root.Send(sys.NewLocalPID(id), &explosion{p})
				told++
			}
		}
	}
	return told
}

// Met is how many actors have panicked because they were told to.
func (p *Panics) Met() int64 { return p.met.Load() }

// KindOf is the kind of the actor with this id.
func KindOf(id string) string {
	own := id[strings.LastIndexByte(id, '/')+1:]
	if end := strings.IndexAny(own, "-$"); end >= 0 {
		own = own[:end]
	}
	return own
}

// MayExplode is called for a message that an actor doesn't know.
func MayExplode(ctx actor.Context) {
	if e, ok := ctx.Message().(*explosion); ok {
		e.panics.met.Add(1)
		panic(told{ctx.Self().GetId()})
	}
}

// Unknown logs a message that an actor has no case for.
func Unknown(ctx actor.Context, log *slog.Logger) {
	MayExplode(ctx)
	log.Error("unknown message", "actor", ctx.Self().GetId(), "type", fmt.Sprintf("%T", ctx.Message()))
}

// told is what an actor panics with because it was told to.
type told struct{ actor string }

func (t told) Error() string { return fmt.Sprintf("actor %q was told to panic", t.actor) }
