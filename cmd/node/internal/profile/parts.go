package profile

import "strings"

// part is one of the things that processor time is spent on.
type part struct{ name, meaning string }

// The parts, in the order in which they are reported.
const (
	partWrite = iota
	partRead
	partPolling
	partWaking
	partReduction
	partCopies
	partActors
	partRails
	partCores
	partMemory
	partGossip
	partBenchmark
	partRest
)

var parts = [...]part{
	partWrite:     {"write", "system calls that send"},
	partRead:      {"read", "system calls that receive"},
	partPolling:   {"polling", "a caller that spins before it sleeps (--wait-spin), but for its reads"},
	partWaking:    {"waking", "goroutines and threads put to sleep and woken: the Go scheduler, futex, epoll"},
	partReduction: {"reduction", "kernels"},
	partCopies:    {"copies", "memory copied"},
	partActors:    {"actors", "mailboxes, operations, coordinator, workers"},
	partRails:     {"rails", "peers and pairs: frames numbered, acknowledged, encoded"},
	partCores:     {"cores", "task, plan, schedule, table: what to do next"},
	partMemory:    {"memory", "allocation and garbage collection"},
	partGossip:    {"gossip", "membership"},
	partBenchmark: {"benchmark", "the measurement itself: checks, clocks"},
	partRest:      {"rest", "everything else"},
}

const module = "github.com/polyrail/polyrail/"

// rules sort functions by the beginnings of their names; the first that fits counts. A
// function that none fits is its caller's business.
var rules = []struct {
	part     int
	prefixes []string
}{
	{partCopies, []string{"runtime.memmove"}},
	{partMemory, []string{"runtime.mallocgc", "runtime.newobject", "runtime.growslice", "runtime.makeslice", "runtime.nextFreeFast",
		"runtime.gc", "runtime.bgsweep", "runtime.bgscavenge", "runtime.(*mcache)", "runtime.(*mcentral)", "runtime.(*mheap)",
		"runtime.(*mspan)", "runtime.(*sweepLocked)", "runtime.scanobject", "runtime.greyobject", "runtime.wbBufFlush"}},
	{partWaking, []string{"runtime.futex", "runtime.netpoll", "runtime.schedule", "runtime.findRunnable", "runtime.park_m", "runtime.mcall",
		"runtime.mstart", "runtime.goready", "runtime.ready", "runtime.gopark", "runtime.gosched", "runtime.goexit0", "runtime.startm", "runtime.wakep",
		"runtime.note", "runtime.exitsyscall", "runtime.entersyscall", "runtime.reentersyscall", "runtime.sysmon", "runtime.handoffp",
		"runtime.retake", "runtime.stopm", "runtime.startlockedm", "runtime.stoplockedm", "runtime.chansend", "runtime.chanrecv", "runtime.closechan",
		"runtime.selectgo", "runtime.selectnb", "runtime.lock2", "runtime.unlock2", "runtime.(*timer", "runtime.sem", "internal/poll.runtime_",
		"internal/sync.runtime_", "sync.runtime_"}},
	{partPolling, []string{module + "railactors/transport.Yield", module + "actors/engine.(*Group).polls"}},
	{partReduction, []string{module + "collective/reduce."}},
	{partCores, []string{module + "collective/"}},
	{partRails, []string{module + "railactors/transport", module + "railactors.", module + "messages", "google.golang.org/protobuf", "internal/poll."}},
	{partActors, []string{module + "actors/", module + "railactors/", "github.com/asynkron/protoactor-go/"}},
	{partGossip, []string{module + "cluster", "github.com/hashicorp/"}},
	{partBenchmark, []string{module + "cmd/node", "main."}},
	// The root package only passes calls on.
	{partActors, []string{"github.com/polyrail/polyrail."}},
}

// partOf sorts a stack, innermost function first.
func partOf(stack []string) int {
	system := false
	for _, name := range stack {
		if isSystemCall(name) {
			system = true
			switch call := strings.ToLower(name[strings.LastIndexByte(name, '.')+1:]); {
			case !strings.HasPrefix(name, "golang.org/x/sys/unix."):
			case strings.Contains(call, "read"), strings.Contains(call, "recv"):
				return partRead
			case strings.Contains(call, "writ"), strings.Contains(call, "send"):
				return partWrite
			}
			continue
		}
		if system && strings.HasPrefix(name, module+"railactors/transport/") {
			if part, ok := direction(name); ok {
				return part
			}
			continue // its caller knows
		}
		for _, r := range rules {
			for _, p := range r.prefixes {
				if strings.HasPrefix(name, p) {
					return r.part
				}
			}
		}
	}
	return partRest
}

func isSystemCall(name string) bool {
	for _, p := range []string{"internal/runtime/syscall", "syscall.", "golang.org/x/sys/unix."} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// direction tells a transport's system calls, made without a wrapper that names them, by who makes them.
func direction(name string) (part int, ok bool) {
	switch {
	case strings.Contains(name, "waiter"), strings.Contains(name, "Await"):
		return partWaking, true
	case strings.Contains(name, "reader"), strings.Contains(name, "read"), strings.Contains(name, "Read"):
		return partRead, true
	case strings.Contains(name, "writer"), strings.Contains(name, "write"), strings.Contains(name, "Write"):
		return partWrite, true
	}
	return 0, false
}
