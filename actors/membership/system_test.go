package membership

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
)

// The actors of a system with fewer maps are found, those that protoactor itself made included.
func TestASmallRegistryFindsItsActors(t *testing.T) {
	system := newSystem(slog.New(slog.DiscardHandler))
	defer system.Shutdown()
	if _, ok := system.ProcessRegistry.GetLocal("eventstream"); !ok {
		t.Error("protoactor's event stream is lost")
	}
	got := make(chan int, 1)
	props := actor.PropsFromFunc(func(ctx actor.Context) {
		if n, ok := ctx.Message().(int); ok {
			got <- n
		}
	})
	for i := range 100 {
		pid, err := system.Root.SpawnNamed(props, fmt.Sprint("actor", i))
		if err != nil {
			t.Fatal(err)
		}
		system.Root.Send(actor.NewPID(pid.Address, pid.Id), i) // by its name
		if n := <-got; n != i {
			t.Fatalf("actor %d got %d", i, n)
		}
		if err := system.Root.StopFuture(pid).Wait(); err != nil {
			t.Fatal(err)
		}
		if _, ok := system.ProcessRegistry.GetLocal(pid.Id); ok {
			t.Fatalf("actor %d has stopped, and is found", i)
		}
	}
}
