package supervise_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/polyrail/polyrail/railactors/dispatch"
	"github.com/polyrail/polyrail/railactors/supervise"
	"github.com/polyrail/polyrail/test/bubble"
)

// brittle panics in each of the messages of its list.
type brittle struct {
	log      *slog.Logger
	panicsIn func(message any) bool
}

func (a *brittle) Receive(ctx actor.Context) {
	defer supervise.Recover(ctx, a.log)
	if a.panicsIn(ctx.Message()) {
		explode()
	}
}

func explode() { panic(errRail) }

func ends(message any) bool {
	switch message.(type) {
	case *actor.Stopping, *actor.Stopped:
		return true
	}
	return false
}

func onFail(message any) bool { _, ok := message.(fail); return ok }

func newBrittle(panicsIn func(any) bool) (props *actor.Props, log *bytes.Buffer) {
	log = new(bytes.Buffer)
	logger := slog.New(slog.NewTextHandler(log, nil))
	return actor.PropsFromProducer(func() actor.Actor { return &brittle{logger, panicsIn} },
		actor.WithDispatcher(dispatch.Synchronized())), log
}

func TestPanicIsLoggedWithItsStackAndPassedOn(t *testing.T) {
	props, log := newBrittle(onFail)
	sys := newSystem()
	decided := make(chan supervise.Decision, 1)
	cfg := supervise.DefaultConfig()
	cfg.Decide = func(any) actor.Directive { return actor.StopDirective }
	cfg.Report = func(d supervise.Decision) { decided <- d }
	var child *actor.PID
	top := sys.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		if _, ok := ctx.Message().(*actor.Started); ok {
			child = ctx.Spawn(props)
		}
	}, supervise.New(cfg).Props(), actor.WithDispatcher(dispatch.Synchronized())))
	sys.Root.Send(child, fail{})
	if d := <-decided; d.Reason != errRail {
		t.Errorf("the supervisor heard %v", d.Reason)
	}
	for _, want := range []string{"the rail broke", "supervise_test.explode", "supervise_test.fail", child.Id} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
	if err := sys.Root.StopFuture(top).Wait(); err != nil {
		t.Error(err)
	}
	sys.Shutdown()
}

// TestAPanicThatWasAskedForHasNoStack: it has no cause to be found, and whoever asks for many reads
// what comes of them.
func TestAPanicThatWasAskedForHasNoStack(t *testing.T) {
	var log bytes.Buffer
	sys := newSystem()
	var panics supervise.Panics
	panics.Bind(sys)
	pid, err := sys.Root.SpawnNamed(actor.PropsFromFunc(func(ctx actor.Context) {
		defer supervise.Recover(ctx, slog.New(slog.NewTextHandler(&log, nil)))
		supervise.MayExplode(ctx)
	}, actor.WithDispatcher(dispatch.Synchronized())), "brittle-1")
	if err != nil {
		t.Fatal(err)
	}
	if n := panics.Throw("brittle"); n != 1 || panics.Met() != 1 {
		t.Errorf("%d actors were told, %d met it", n, panics.Met())
	}
	if text := log.String(); !strings.Contains(text, "brittle-1") || !strings.Contains(text, "was told to panic") || strings.Contains(text, "stack=") {
		t.Errorf("logged:\n%s", text)
	}
	if err := sys.Root.StopFuture(pid).Wait(); err != nil {
		t.Error(err)
	}
	sys.Shutdown()
}

func TestPanicAtTheEndDoesNotKeepTheActorAlive(t *testing.T) {
	props, log := newBrittle(ends)
	sys := newSystem()
	pid := sys.Root.Spawn(props)
	if err := sys.Root.StopFuture(pid).Wait(); err != nil {
		t.Errorf("the end never came: %v", err)
	}
	if n := strings.Count(log.String(), "actor panicked"); n != 2 {
		t.Errorf("%d panics logged, want 2", n)
	}
	sys.Shutdown()
}

func TestLogEventsNamesActorsAndIsBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		sys := newSystem()
		var buf bytes.Buffer
		unsubscribe := supervise.LogEvents(sys, slog.New(slog.NewTextHandler(&buf, nil)))
		nobody := actor.NewPID("nonhost", "nobody")
		for range 1000 {
			sys.Root.Send(nobody, fail{})
		}
		if n := strings.Count(buf.String(), "dead letter"); n != 10 {
			t.Errorf("%d lines, want 10", n)
		}
		if !strings.Contains(buf.String(), "actor=nobody message=supervise_test.fail") {
			t.Errorf("log:\n%s", &buf)
		}
		<-time.After(time.Second)
		sys.EventStream.Publish(&actor.SupervisorEvent{Child: nobody, Reason: errRail, Directive: actor.StopDirective})
		for _, want := range []string{`events left out" count=990`, `directive=StopDirective reason="the rail broke"`} {
			if !strings.Contains(buf.String(), want) {
				t.Errorf("the log lacks %q:\n%s", want, &buf)
			}
		}
		unsubscribe()
		before := buf.Len()
		sys.Root.Send(nobody, fail{})
		if buf.Len() != before {
			t.Error("heard an event after its end")
		}
		sys.Shutdown()
		<-time.After(2 * time.Second) // protoactor's own limiter of dead letters keeps a goroutine for a second
	})
}
