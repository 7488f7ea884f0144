package supervise_test

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/goleak"

	"github.com/polyrail/polyrail/railactors/dispatch"
	"github.com/polyrail/polyrail/railactors/supervise"
	"github.com/polyrail/polyrail/test/bubble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errRail = errors.New("the rail broke")

// fail makes a child panic.
type fail struct{ reason any }

// journal is what actors noted, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

// take returns what was noted since the last take.
func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	l := j.lines
	j.lines = nil
	return l
}

// worker is a child that notes its life.
type worker struct {
	name string
	j    *journal
}

func (w *worker) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		w.j.add("%s started", w.name)
	case *actor.Restarting:
		w.j.add("%s restarting", w.name)
	case *actor.Stopped:
		w.j.add("%s stopped", w.name)
	case fail:
		panic(m.reason)
	case string:
		w.j.add("%s got %s", w.name, m)
	}
}

// boss supervises the workers a and b.
type boss struct {
	s       *supervise.Strategy
	j       *journal
	kids    []*actor.PID
	follows bool // by itself, instead of Props
}

// stopChild tells boss to stop a child by hand.
type stopChild int

func (b *boss) Receive(ctx actor.Context) {
	if b.follows {
		b.s.Follow(ctx)
	}
	switch m := ctx.Message().(type) {
	case *actor.Started:
		for _, name := range []string{"a", "b"} {
			props := actor.PropsFromProducer(func() actor.Actor { return &worker{name, b.j} }, actor.WithDispatcher(dispatch.Synchronized()))
			pid, err := ctx.SpawnNamed(props, ctx.Self().Id+"/"+name)
			if err != nil {
				panic(err)
			}
			b.kids = append(b.kids, pid)
		}
	case stopChild:
		b.s.Stop(ctx, b.kids[m])
	case fail:
		panic(m.reason)
	case chan []*actor.PID:
		m <- b.kids
	}
}

type bed struct {
	*testing.T
	sys  *actor.ActorSystem
	boss *actor.PID
	a, b *actor.PID
	j    *journal

	mu        sync.Mutex
	decisions []supervise.Decision
}

// newBed runs f, once for each way to install a strategy, in virtual time, with a boss over two
// workers. Dead letters fail.
func newBed(t *testing.T, cfg supervise.Config, f func(*bed)) {
	t.Run("props", func(t *testing.T) { runBed(t, cfg, false, f) })
	t.Run("follow", func(t *testing.T) { runBed(t, cfg, true, f) })
}

func runBed(t *testing.T, cfg supervise.Config, follows bool, f func(*bed)) {
	bubble.Test(t, func(t *testing.T) {
		bd := &bed{T: t, j: &journal{}}
		bd.sys = newSystem()
		sub := bd.sys.EventStream.Subscribe(func(e any) {
			if d, ok := e.(*actor.DeadLetterEvent); ok {
				t.Errorf("dead letter %T for %v", d.Message, d.PID)
			}
		})
		defer bd.sys.EventStream.Unsubscribe(sub)
		cfg.Report = func(d supervise.Decision) {
			bd.mu.Lock()
			defer bd.mu.Unlock()
			bd.decisions = append(bd.decisions, d)
		}
		s := supervise.New(cfg)
		install := s.Props()
		if follows {
			install = actor.WithSupervisor(s)
		}
		bd.boss = bd.sys.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return &boss{s: s, j: bd.j, follows: follows} }, install))
		bd.findKids()
		f(bd)
		if err := bd.sys.Root.StopFuture(bd.boss).Wait(); err != nil {
			t.Errorf("stop the boss: %v", err)
		}
		bd.sys.Shutdown()
	})
}

func newSystem() *actor.ActorSystem {
	return actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
}

func (b *bed) findKids() {
	b.Helper()
	ask := make(chan []*actor.PID, 1)
	b.sys.Root.Send(b.boss, ask)
	kids := <-ask
	b.a, b.b = kids[0], kids[1]
	b.j.take()
}

func (b *bed) tell(pid *actor.PID, m any) {
	b.sys.Root.Send(pid, m)
	synctest.Wait()
}

func (b *bed) after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (b *bed) noted(want ...string) {
	b.Helper()
	if got := b.j.take(); !reflect.DeepEqual(got, want) {
		b.Fatalf("noted %q, want %q", got, want)
	}
}

// last returns the only decision since the last call.
func (b *bed) last() supervise.Decision {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.decisions) != 1 {
		b.Fatalf("%d decisions, want 1: %v", len(b.decisions), b.decisions)
	}
	d := b.decisions[0]
	b.decisions = nil
	return d
}

var config = supervise.Config{MinBackoff: 100 * time.Millisecond, MaxBackoff: time.Second, MaxRestarts: 3, Period: time.Minute}

func TestOnlyTheFailedChildRestartsAndItsQueueSurvives(t *testing.T) {
	newBed(t, config, func(b *bed) {
		b.tell(b.a, fail{errRail})
		b.tell(b.a, "a message in the pause")
		b.tell(b.b, "hello")
		b.noted("b got hello")
		b.after(100 * time.Millisecond)
		b.noted("a restarting", "a started", "a got a message in the pause")
		d := b.last()
		if d.Reason != errRail || d.Directive != actor.RestartDirective || d.Failures != 1 || d.Child.Id != b.a.Id {
			b.Errorf("decision %v", d)
		}
	})
}

func TestBackoffGrowsToItsCap(t *testing.T) {
	cfg := config
	cfg.MaxRestarts = 6
	newBed(t, cfg, func(b *bed) {
		for _, full := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
			full *= time.Millisecond
			b.tell(b.a, fail{errRail})
			if d := b.last(); d.Backoff > full || d.Backoff < full/2 {
				b.Errorf("failure %d: pause %v, want %v … %v", d.Failures, d.Backoff, full/2, full)
			}
			b.after(full)
			b.noted("a restarting", "a started")
		}
	})
}

func TestChildThatFailsTooOftenIsStopped(t *testing.T) {
	newBed(t, config, func(b *bed) {
		for range config.MaxRestarts {
			b.tell(b.a, fail{errRail})
			b.after(time.Second)
			b.noted("a restarting", "a started")
			if d := b.last(); d.Exhausted {
				b.Fatalf("given up early: %v", d)
			}
		}
		b.tell(b.a, fail{errRail})
		b.noted("a stopped")
		d := b.last()
		if !d.Exhausted || d.Directive != actor.StopDirective || !strings.Contains(d.String(), "out of restarts") {
			b.Errorf("decision %v", d)
		}
		b.after(time.Minute)
		b.tell(b.b, "still there")
		b.noted("b got still there")
	})
}

func TestOldFailuresAreForgotten(t *testing.T) {
	newBed(t, config, func(b *bed) {
		for range 4 * config.MaxRestarts {
			b.tell(b.a, fail{errRail})
			if d := b.last(); d.Exhausted || d.Failures > config.MaxRestarts {
				b.Fatalf("decision %v", d)
			}
			b.after(config.Period / 2)
			b.noted("a restarting", "a started")
		}
	})
}

func TestDeciderChoosesByReason(t *testing.T) {
	cfg := config
	cfg.Decide = func(reason any) actor.Directive {
		if reason == errRail {
			return actor.StopDirective
		}
		return actor.ResumeDirective
	}
	newBed(t, cfg, func(b *bed) {
		b.tell(b.a, fail{"trifle"})
		if d := b.last(); d.Directive != actor.ResumeDirective {
			b.Errorf("decision %v", d)
		}
		b.tell(b.a, "hello")
		b.noted("a got hello")
		b.tell(b.a, fail{errRail})
		b.noted("a stopped")
		if d := b.last(); d.Directive != actor.StopDirective || d.Exhausted {
			b.Errorf("decision %v", d)
		}
	})
}

func TestChildStoppedInThePauseStaysStopped(t *testing.T) {
	newBed(t, config, func(b *bed) {
		b.tell(b.a, fail{errRail})
		b.tell(b.boss, stopChild(0))
		b.noted("a stopped")
		b.after(time.Minute)
		b.noted()
	})
}

func TestSupervisorStoppedInThePauseStaysStopped(t *testing.T) {
	newBed(t, config, func(b *bed) {
		b.tell(b.a, fail{errRail})
		if err := b.sys.Root.StopFuture(b.boss).Wait(); err != nil {
			b.Fatal(err)
		}
		b.j.take()
		b.after(time.Minute)
		b.noted()
		b.boss = b.sys.Root.Spawn(actor.PropsFromFunc(func(actor.Context) {})) // for newBed to stop
	})
}

func TestSupervisorRestartedInThePauseBeginsAfresh(t *testing.T) {
	newBed(t, config, func(b *bed) {
		b.tell(b.a, fail{errRail})
		b.tell(b.boss, fail{"the boss fails too"}) // the root's default strategy restarts it
		if got := b.j.take(); len(got) != 4 {
			b.Fatalf("noted %q, want two ends and two starts", got)
		}
		b.findKids()
		b.after(time.Minute)
		b.noted()
		b.last()
		b.tell(b.a, fail{errRail})
		if d := b.last(); d.Failures != 1 {
			b.Errorf("a new child inherits failures: %v", d)
		}
		b.after(time.Second)
		b.noted("a restarting", "a started")
	})
}

func TestNewRefusesImpossibleConfigurations(t *testing.T) {
	for _, cfg := range []supervise.Config{
		{},
		{MinBackoff: -1, MaxBackoff: 1, Period: 1},
		{MinBackoff: 2, MaxBackoff: 1, Period: 1},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("accepted %+v", cfg)
				}
			}()
			supervise.New(cfg)
		}()
	}
	supervise.New(supervise.DefaultConfig())
}
