package steady

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/polyrail/polyrail"
)

// work is a number of operations of each kind.
type work struct{ small, large int }

const (
	ranks = 2

	smallBytes, largeBytes = 8, 64 << 20

	// growthPercent is how much more resident memory a process may have in the end, and maxLeft how much
	// more live heap: queues and caches grow a little, a leak of ten bytes an operation is more.
	growthPercent, maxLeft = 5, 1 << 20
	// patience is how long goroutines and descriptors that gossip holds for a moment may last.
	patience = 20 * time.Second
)

// use is what a process has of what could grow.
type use struct {
	goroutines, descriptors int
	resident                int64 // bytes, as it is
	live                    int64 // bytes on Go's heap, without garbage
}

func (u use) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %.1f MiB resident, %.1f MiB of live heap",
		u.goroutines, u.descriptors, float64(u.resident)/(1<<20), float64(u.live)/(1<<20))
}

func TestOperationsLeaveNothingBehind(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector's own memory grows; and 64 MiB take long under it")
	}
	// The network's buffers and the pools grow with the worst backlog yet. What leaks grows
	// every time: of a few short batches the leanest counts, the long run is one batch.
	warmUp, batch, batches := work{500, 3}, work{2000, 4}, 4
	if *long {
		// Only then the heap has as much garbage as it will ever have between two collections.
		warmUp, batch, batches = work{100_000, 20}, work{100_000, 200}, 1
	}
	nodes := loopback(t, ranks, static)
	comms := form(t, nodes, "steady")
	var small, large [ranks][]float32
	for i := range ranks {
		small[i], large[i] = make([]float32, smallBytes/4), mapped(t, largeBytes)
	}
	run := func(w work) {
		each(t, ranks, func(i int) error {
			if err := repeat(t, comms[i], small[i], w.small); err != nil {
				return err
			}
			return repeat(t, comms[i], large[i], w.large) // the last ones: their scratch is still kept
		})
	}
	begin := time.Now()
	run(warmUp)
	before := measure(t)
	t.Logf("warm:  %v, after %d operations of %d bytes and %d of %d", before, warmUp.small, smallBytes, warmUp.large, largeBytes)
	for i := range batches {
		run(batch)
		after, err := compare(t, before)
		t.Logf("batch: %v, after %d and %d more, %v since the start", after, batch.small, batch.large, time.Since(begin).Round(time.Second))
		if err == nil {
			return
		}
		if i == batches-1 {
			t.Fatal(err)
		}
		before = after
	}
}

// mapped is memory outside of Go's heap, on which buffers of this size would set the collector's
// pace: as much garbage as there is live heap.
func mapped(t *testing.T, bytes int) []float32 {
	t.Helper()
	p, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(p); err != nil {
			t.Error(err)
		}
	})
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(p))), bytes/4)
}

func repeat(t *testing.T, c *polyrail.Communicator, buf []float32, times int) error {
	for range times {
		if err := polyrail.AllReduce(t.Context(), c, buf, polyrail.Sum); err != nil {
			return err
		}
	}
	return nil
}

// measure takes the least of goroutines and descriptors over a second: gossip has a few more now
// and then.
func measure(t *testing.T) use {
	t.Helper()
	u := use{goroutines: runtime.NumGoroutine(), descriptors: descriptors(t)}
	for end := time.After(time.Second); ; {
		select {
		case <-end:
			u.measureMemory(t)
			return u
		case <-time.After(10 * time.Millisecond):
			u.goroutines = min(u.goroutines, runtime.NumGoroutine())
			u.descriptors = min(u.descriptors, descriptors(t))
		}
	}
}

// compare waits until no more goroutines and descriptors are left than before, and says what
// is too much in the end.
func compare(t *testing.T, before use) (after use, err error) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		after = measure(t)
		if after.goroutines <= before.goroutines && after.descriptors <= before.descriptors {
			break
		}
		if time.Now().After(end) {
			return after, fmt.Errorf("more goroutines or descriptors than before: %v; before: %v\n%s", after, before, stacks())
		}
	}
	if after.resident > before.resident+before.resident*growthPercent/100 {
		return after, fmt.Errorf("more than %d %% more resident than before: %v; before: %v", growthPercent, after, before)
	}
	if after.live > before.live+maxLeft {
		return after, fmt.Errorf("more than %d bytes of heap left behind: %v; before: %v", maxLeft, after, before)
	}
	return after, nil
}

func stacks() []byte {
	buf := make([]byte, 1<<20)
	return buf[:runtime.Stack(buf, true)]
}

// measureMemory takes what is resident as it is, garbage included.
func (u *use) measureMemory(t *testing.T) {
	u.resident = resident(t)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.live = int64(m.HeapAlloc)
}

// resident is the process's memory, as the kernel counts it.
func resident(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		t.Fatalf("/proc/self/statm: %q: %v", text, err)
	}
	return pages * int64(os.Getpagesize())
}

// descriptors counts those that are open, without the one that it looks at them by.
func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list) - 1
}
