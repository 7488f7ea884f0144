package steady

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/polyrail/polyrail"
)

const (
	// maxIdlePercent is how much of a core idle communicators may take.
	maxIdlePercent = 1.0
	// maxIdleHeap is how much live heap an idle communicator may take on each rank.
	maxIdleHeap = 48 << 10
	// maxIdleGoroutines is how many goroutines an idle communicator may have on each rank.
	maxIdleGoroutines = 0
)

// What communicators cost that nobody uses, with everything at its default: memory, goroutines and
// descriptors, and in the long run, since that is a matter of minutes, processor time.
func TestIdleCommunicatorsCostLittle(t *testing.T) {
	communicators, periods := 50, 0
	const period = 10 * time.Second
	if *long {
		communicators, periods = 1000, 4
	}
	nodes := loopback(t, ranks, func(*polyrail.Config) {})
	form(t, nodes, "first") // the peers are connected
	load := func() (percent float64) {
		for range periods {
			before := processorTime(t)
			<-time.After(period)
			percent += 100 * float64(processorTime(t)-before) / float64(period) / float64(periods)
		}
		return percent
	}
	before, without := measure(t), load()
	begin := time.Now()
	for i := range communicators {
		form(t, nodes, fmt.Sprintf("idle%d", i))
	}
	t.Logf("%d communicators formed in %v", communicators, time.Since(begin).Round(time.Millisecond))
	with, after := load(), measure(t)
	t.Logf("%d nodes in one process: %v, %.2f %% of a core", ranks, before, without)
	t.Logf("%d idle communicators more: %v, %.2f %% of a core", communicators, after, with)
	heap := (after.live - before.live) / int64(ranks*communicators)
	t.Logf("each on each rank: %d bytes of live heap, %d resident",
		heap, (after.resident-before.resident)/int64(ranks*communicators))
	if heap > maxIdleHeap {
		t.Errorf("an idle communicator has %d bytes of heap on each rank, want at most %d", heap, maxIdleHeap)
	}
	if most := before.goroutines + maxIdleGoroutines*ranks*communicators; after.goroutines > most {
		t.Errorf("%d goroutines with %d idle communicators, want at most %d", after.goroutines,
			communicators, most)
	}
	if after.descriptors > before.descriptors {
		t.Errorf("%d idle communicators have descriptors of their own: %v; before: %v",
			communicators, after, before)
	}
	if with-without >= maxIdlePercent {
		t.Errorf("%d idle communicators take %.2f %% of a core, want less than %v %%",
			communicators, with-without, maxIdlePercent)
	}
}

// processorTime is the user and system time that this process has used.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
