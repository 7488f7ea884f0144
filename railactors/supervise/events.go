package supervise

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// maxLinesPerSecond bounds what LogEvents writes: dead letters come in floods.
const maxLinesPerSecond = 10

// LogEvents writes the system's dead letters and its supervisors' decisions to log, at
// most ten lines a second, and says how many it left out. The function that it
// returns ends it.
func LogEvents(sys *actor.ActorSystem, log *slog.Logger) (unsubscribe func()) {
	l := &eventLog{log: log}
	sub := sys.EventStream.Subscribe(func(event any) {
		switch e := event.(type) {
		case *actor.DeadLetterEvent:
			if quiet(e.Message) {
				return
			}
			l.write("dead letter", "actor", e.PID.GetId(), "message", fmt.Sprintf("%T", e.Message), "sender", e.Sender.GetId())
		case *actor.SupervisorEvent:
			l.write("supervision", "actor", e.Child.GetId(), "directive", e.Directive.String(), "reason", fmt.Sprint(e.Reason))
		}
	})
	return func() { sys.EventStream.Unsubscribe(sub) }
}

// quiet reports whether a dead letter is part of the ordinary end of an actor.
func quiet(message any) bool {
	switch message.(type) {
	case actor.IgnoreDeadLetterLogging, *actor.Watch, *actor.Unwatch, *actor.Terminated, *actor.Stop:
		return true
	}
	return false
}

// eventLog writes a bounded number of lines a second.
type eventLog struct {
	log     *slog.Logger
	mu      sync.Mutex
	since   time.Time
	lines   int
	leftOut int
}

func (l *eventLog) write(text string, args ...any) {
	l.mu.Lock()
	now := time.Now()
	leftOut := 0
	if now.Sub(l.since) >= time.Second {
		leftOut = l.leftOut
		l.since, l.lines, l.leftOut = now, 0, 0
	}
	if l.lines == maxLinesPerSecond {
		l.leftOut++
		l.mu.Unlock()
		return
	}
	l.lines++
	l.mu.Unlock()
	if leftOut > 0 {
		l.log.Warn("events left out", "count", leftOut)
	}
	l.log.Warn(text, args...)
}
