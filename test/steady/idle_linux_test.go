package steady

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// maxIdlePercent is how much of a core idle communicators may take.
const maxIdlePercent = 1.0

// What communicators cost that nobody uses, in processor time: a matter of minutes, so for the long run only.
func TestIdleCommunicatorsCostNoProcessorTime(t *testing.T) {
	if !*long {
		t.Skip("long: make steady")
	}
	const communicators, periods, period = 1000, 3, 20 * time.Second
	nodes := start(t, loopback)
	form(t, nodes, "first") // the peers are connected
	load := func() (percent float64) {
		for range periods {
			before := processorTime(t)
			<-time.After(period)
			percent += 100 * float64(processorTime(t)-before) / float64(period) / periods
		}
		return percent
	}
	without := load()
	begin := time.Now()
	for i := range communicators {
		form(t, nodes, fmt.Sprintf("idle%d", i))
	}
	t.Logf("%d communicators formed in %v", communicators, time.Since(begin).Round(time.Millisecond))
	with := load()
	t.Logf("%d nodes in one process take %.2f %% of a core; with %d idle communicators %.2f %%", ranks, without, communicators, with)
	if with-without >= maxIdlePercent {
		t.Errorf("%d idle communicators take %.2f %% of a core, want less than %v %%", communicators, with-without, maxIdlePercent)
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
