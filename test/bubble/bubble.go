// Package bubble runs tests in virtual time, as testing/synctest does. Every test of this module
// that has a bubble of synctest has it from here.
package bubble

import (
	"bytes"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Test runs f in a bubble of synctest.
//
// Under the race detector Go runs one thread at a time meanwhile, also of what else the process
// tests. In a bubble Go 1.26 runs a timer that is due on the thread that comes across it, and all
// of a bubble share one stack of the detector: two such timers at once crash the process (SIGSEGV
// in the detector's StackDepot). The detector needs no parallel threads to see a race.
func Test(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if raceDetector {
		threads.one()
		defer threads.many()
	}
	synctest.Test(t, f)
}

// Nodes runs f as Test does, and then waits until what libraries leave behind has ended, also after
// a failure. Actors of protoactor end after their system; a prober of memberlist waits for an answer
// for as long as 8 probe intervals after its shutdown. Virtual time stops when the test returns, and
// goroutines that wait for it would never end.
func Nodes(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	Test(t, func(t *testing.T) {
		t.Cleanup(func() { <-time.After(lingering) }) // the first to be registered runs last
		f(t)
	})
}

// lingering is more than any library goes on for.
const lingering = time.Minute

// Goroutines is how many goroutines the caller's bubble has; 0 outside one. What else the process runs
// is not among them, as it is in runtime.NumGoroutine: finalizers, say.
func Goroutines() int {
	for size := 1 << 18; ; size *= 2 {
		stacks := make([]byte, size)
		n := runtime.Stack(stacks, true)
		if n == size {
			continue
		}
		caller, _, _ := bytes.Cut(stacks[:n], []byte("\n")) // goroutine 7 [running, synctest bubble 5]:
		at := bytes.Index(caller, []byte("synctest bubble "))
		if at < 0 {
			return 0
		}
		return bytes.Count(stacks[:n], caller[at:])
	}
}

var threads counted

// counted is how many bubbles there are, and what GOMAXPROCS was before the first.
type counted struct {
	mu      sync.Mutex
	bubbles int
	before  int
}

func (c *counted) one() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bubbles++; c.bubbles == 1 {
		c.before = runtime.GOMAXPROCS(1)
	}
}

func (c *counted) many() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bubbles--; c.bubbles == 0 {
		runtime.GOMAXPROCS(c.before)
	}
}
