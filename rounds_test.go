package polyrail_test

import (
	"flag"
	"log/slog"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/polyrail/polyrail"
)

var rounds = flag.Int("rounds", 6, "how often a rank is killed and comes back")

// TestKillAndRejoinLeaveNothingBehind: in each round a rank dies in mid-operation, the others
// shrink and go on, it comes back under its name, and all form a communicator again. What runs and
// what is kept stays the same.
func TestKillAndRejoinLeaveNothingBehind(t *testing.T) {
	silent := func(c *Config) { c.Logger = slog.New(slog.DiscardHandler) } // the bed keeps what is logged
	inBed(t, 3, 2, silent, func(b *bed) {
		var goroutines, connections int
		var heap uint64
		for round := range *rounds {
			comms := b.form("train")
			dead := 1 + round%2 // node 0 is the seed of the gossip
			b.breakInMidOperation(comms, dead)
			left := []int{0, 3 - dead}
			rest, _, errs := b.shrink(comms, left...)
			b.goOn(rest, errs, left...)
			b.each(func(i int) error { return rest[i].Close(b.t.Context()) })
			b.restart(dead)
			again := b.form("train")
			b.each(func(i int) error { return again[i].Barrier(b.t.Context()) })
			b.each(func(i int) error { return again[i].Close(b.t.Context()) })
			<-time.After(5 * time.Minute) // what lingers ends, gossip forgets
			stacks, c, h := b.standing()
			g := len(stacks)
			const noise = 2 << 20 // what pools hold differs from round to round by a megabyte
			switch {
			case round == 1: // the first one fills pools
				goroutines, connections, heap = g, c, h
			case round > 1 && (g != goroutines || c != connections):
				t.Errorf("round %d: %d goroutines and %d connections, %d and %d after the second\n%s",
					round, g, c, goroutines, connections, strings.Join(stacks, "\n\n"))
			case round > 1 && h > heap+noise:
				t.Errorf("round %d: %d bytes in use, %d after the second", round, h, heap)
			}
			if testing.Verbose() {
				t.Logf("round %d: %d goroutines, %d connections, %d bytes", round, g, c, h)
			}
		}
	})
}

// standing takes the fewest goroutines, connections and bytes of the heap of a few looks: gossip
// talks now and then, for a moment each time.
func (b *bed) standing() (goroutines []string, connections int, heap uint64) {
	for look := range 3 {
		synctest.Wait()
		g, c, h := bubbled(), b.Rails.Connections(), heapInUse()
		if look == 0 || len(g) < len(goroutines) {
			goroutines = g
		}
		if look == 0 || c < connections {
			connections = c
		}
		if look == 0 || h < heap {
			heap = h
		}
		<-time.After(time.Minute + time.Second)
	}
	return goroutines, connections, heap
}

var inBubble = regexp.MustCompile(`^goroutine .*, (synctest bubble \d+)`)

// bubbled returns the stacks of the goroutines of the caller's bubble. Others, which earlier tests
// left, end in real time: while minutes pass here.
func bubbled() (stacks []string) {
	buf := make([]byte, 64<<10)
	n := runtime.Stack(buf, true)
	for ; n == len(buf); n = runtime.Stack(buf, true) {
		buf = make([]byte, 2*len(buf))
	}
	var own string
	for stack := range strings.SplitSeq(string(buf[:n]), "\n\n") {
		m := inBubble.FindStringSubmatch(stack)
		if own == "" { // the first one is the caller's
			own = m[1]
		}
		if m != nil && m[1] == own {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC() // what pools held is gone after two
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
