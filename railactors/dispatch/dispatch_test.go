package dispatch_test

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/goleak"

	"github.com/polyrail/polyrail/railactors/dispatch"
)

// patience bounds a wait that ends at once unless something is broken.
const patience = 10 * time.Second

func await(t testing.TB, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s did not happen", what)
	}
}

func TestScheduleRunsEverythingWhileAllWorkersAreBusy(t *testing.T) {
	defer goleak.VerifyNone(t)
	w := dispatch.NewWarm(2)
	defer w.Close()
	const n = 50
	var started, finished sync.WaitGroup
	started.Add(n)
	finished.Add(n)
	hold := make(chan struct{})
	for range n { // none ends before all have started: none waits for another's worker
		w.Schedule(func() { started.Done(); <-hold; finished.Done() })
	}
	done := make(chan struct{})
	go func() { started.Wait(); close(hold); finished.Wait(); close(done) }()
	await(t, "every function's run", done)
}

func TestScheduleWorksAfterClose(t *testing.T) {
	defer goleak.VerifyNone(t)
	w := dispatch.NewWarm(4)
	w.Close()
	w.Close()
	done := make(chan struct{})
	w.Schedule(func() { close(done) })
	await(t, "the function's run", done)
}

func TestCloseEndsIdleWorkers(t *testing.T) {
	defer goleak.VerifyNone(t)
	w := dispatch.NewWarm(8)
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		w.Schedule(wg.Done)
	}
	wg.Wait()
	w.Close()
}

// ball goes to and fro between two actors until its hops are used up.
type ball struct {
	hops int
	done chan struct{}
}

type player struct{ other *actor.PID }

func (p *player) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.PID:
		p.other = m
	case *ball:
		if m.hops--; m.hops <= 0 {
			close(m.done)
			return
		}
		ctx.Send(p.other, m)
	}
}

// players returns two actors that know each other.
func players(t testing.TB, d actor.Dispatcher) (*actor.ActorSystem, *actor.PID) {
	t.Helper()
	sys := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
	props := actor.PropsFromProducer(func() actor.Actor { return &player{} }, actor.WithDispatcher(d))
	a, b := sys.Root.Spawn(props), sys.Root.Spawn(props)
	sys.Root.Send(a, b)
	sys.Root.Send(b, a)
	t.Cleanup(func() {
		for _, p := range []*actor.PID{a, b} {
			if err := sys.Root.StopFuture(p).Wait(); err != nil {
				t.Errorf("stop %v: %v", p, err)
			}
		}
		sys.Shutdown()
	})
	return sys, a
}

func TestActorsRunOnEachDispatcher(t *testing.T) {
	defer goleak.VerifyNone(t)
	warm := dispatch.NewWarm(4)
	defer warm.Close()
	for name, d := range map[string]actor.Dispatcher{"warm": warm, "synchronized": dispatch.Synchronized()} {
		t.Run(name, func(t *testing.T) {
			sys, a := players(t, d)
			b := &ball{hops: 10_000, done: make(chan struct{})}
			sys.Root.Send(a, b)
			await(t, "the last hop", b.done)
		})
	}
}

func TestSynchronizedRunsOnTheSendersGoroutine(t *testing.T) {
	sys, a := players(t, dispatch.Synchronized())
	b := &ball{hops: 1, done: make(chan struct{})}
	sys.Root.Send(a, b)
	select {
	case <-b.done:
	default:
		t.Fatal("Send returned before the message was worked off")
	}
}

// BenchmarkHop is one message from an actor to another one that had nothing to do.
func BenchmarkHop(b *testing.B) {
	warm := dispatch.NewWarm(4)
	defer warm.Close()
	for _, c := range []struct {
		name string
		d    actor.Dispatcher
	}{
		{"dispatcher=default", actor.NewDefaultDispatcher(300)},
		{"dispatcher=warm", warm},
		{"dispatcher=synchronized", dispatch.Synchronized()},
	} {
		b.Run(c.name, func(b *testing.B) {
			sys, a := players(b, c.d)
			m := &ball{hops: b.N, done: make(chan struct{})}
			b.ReportAllocs()
			b.ResetTimer()
			sys.Root.Send(a, m)
			<-m.done
		})
	}
	b.Run("channel", func(b *testing.B) {
		to, fro := make(chan int), make(chan int)
		go func() {
			for i := range to {
				fro <- i
			}
			close(fro)
		}()
		b.ReportAllocs()
		for i := 0; i < b.N; i += 2 { // two hops at a time
			to <- i
			<-fro
		}
		close(to)
		<-fro
	})
}
