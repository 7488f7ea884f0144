package scale

import (
	"context"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/test/testbed"
)

// start brings a cluster up that ends with the test.
func start(t *testing.T, o testbed.Options) *testbed.Cluster {
	t.Helper()
	c, err := testbed.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return c
}

func form(t *testing.T, c *testbed.Cluster, name string) []*polyrail.Communicator {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	comms, err := c.Form(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	return comms
}

// byRank sorts handles: ranks ascend by the nodes' names.
func byRank(comms []*polyrail.Communicator) []*polyrail.Communicator {
	sorted := make([]*polyrail.Communicator, len(comms))
	for _, c := range comms {
		sorted[c.Rank()] = c
	}
	return sorted
}

// usage is what the process has of what grows with links.
type usage struct{ heap, goroutines, descriptors int64 }

func use() usage {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(sample)
	u := usage{heap: int64(sample[0].Value.Uint64() + sample[1].Value.Uint64()), goroutines: int64(runtime.NumGoroutine())}
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		u.descriptors = int64(len(open))
	}
	return u
}

// processorTime is what the process spends while f runs.
func processorTime(t *testing.T, f func()) time.Duration {
	t.Helper()
	spent := func() time.Duration {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			t.Fatal(err)
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	before := spent()
	f()
	return spent() - before
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
