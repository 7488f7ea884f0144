package steady

import (
	"fmt"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/polyrail/polyrail/test/bubble"
)

// Whatever a timer does, it does on a goroutine that is started for it. Nodes start as many of them in
// an idle time with communicators as without: for gossip and heartbeats.
func TestNothingTicksInAnIdleCommunicator(t *testing.T) {
	const ranks, communicators, minutes = 2, 50, 20 // virtual ones
	bubble.Nodes(t, func(t *testing.T) {
		nodes := inMemory(t, ranks, 1, static)
		form(t, nodes, "first") // the peers are connected
		idle := func() uint64 {
			before := goroutinesStarted()
			<-time.After(minutes * time.Minute)
			return goroutinesStarted() - before
		}
		without := idle()
		for i := range communicators {
			form(t, nodes, fmt.Sprintf("idle%d", i))
		}
		<-time.After(time.Minute) // what forming left to be done later
		with := idle()
		t.Logf("%d goroutines were started in %d minutes with %d idle communicators, %d without",
			with, minutes, communicators, without)
		// One tick in ten minutes would be many times more than gossip varies by.
		if tolerated := uint64(communicators * ranks * minutes / 10); with > without+tolerated {
			t.Errorf("that is more than %d too many", tolerated)
		}
	})
}

func goroutinesStarted() uint64 {
	sample := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
