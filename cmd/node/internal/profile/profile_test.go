package profile

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"

	pb "github.com/google/pprof/profile"
)

func TestStacksAreSortedByTheInnermostKnownFunction(t *testing.T) {
	const tcp = module + "railactors/transport/tcp."
	for _, c := range []struct {
		want  int
		stack []string
	}{
		{partWrite, []string{"internal/runtime/syscall/linux.Syscall6", "syscall.RawSyscall6", "golang.org/x/sys/unix.writev", tcp + "(*writer).drain"}},
		{partRead, []string{"internal/runtime/syscall/linux.Syscall6", "golang.org/x/sys/unix.Readv", tcp + "(*reader).fill"}},
		{partRead, []string{"internal/runtime/syscall/linux.Syscall6", "syscall.Syscall", tcp + "(*reader).fill"}},
		{partWrite, []string{"syscall.Syscall", tcp + "(*writer).drain"}},
		{partRead, []string{"syscall.RawSyscall", tcp + "vectored", tcp + "readVec", tcp + "(*reader).drain"}},
		{partWrite, []string{"syscall.RawSyscall", tcp + "vectored", tcp + "(*writer).drain"}},
		{partWaking, []string{"syscall.RawSyscall6", tcp + "hasInput", tcp + "(*awaiter).readable"}},
		{partPolling, []string{"internal/runtime/syscall/linux.Syscall6", "golang.org/x/sys/unix.RawSyscall", module + "railactors/transport.Yield", module + "actors/engine.(*Group).polls"}},
		{partPolling, []string{"syscall.RawSyscall", module + "railactors/transport.Yield", module + "actors/engine.(*Group).polls"}},
		{partPolling, []string{"time.Now", module + "actors/engine.(*Group).polls"}},
		{partWaking, []string{"internal/runtime/syscall.EpollWait", "runtime.netpoll", "runtime.findRunnable", "runtime.schedule"}},
		{partWaking, []string{"runtime.futex", "runtime.futexwakeup", "runtime.notewakeup", module + "actors/engine.(*Operation).step"}},
		{partReduction, []string{module + "collective/reduce.sumF32", module + "actors/engine.(*Operation).fold"}},
		{partCopies, []string{"runtime.memmove", module + "actors/engine.(*Operation).send"}},
		{partMemory, []string{"runtime.memclrNoHeapPointers", "runtime.mallocgc", "runtime.newobject", module + "actors/communicator.(*Communicator).Start"}},
		{partActors, []string{"runtime.mapaccess2", "github.com/asynkron/protoactor-go/actor.(*defaultMailbox).run"}},
		{partActors, []string{"sync.(*Mutex).Lock", module + "actors/engine.(*Operation).step", module + "railactors.(*reader).data"}},
		{partActors, []string{module + "railactors/dispatch.(*Warm).work"}},
		{partRails, []string{"hash/crc32.Update", module + "messages/wire.Decode", module + "railactors.(*reader).frame"}},
		{partRails, []string{"sync.(*Mutex).Lock", "internal/poll.(*fdMutex).rwlock", "internal/poll.(*FD).RawRead", tcp + "(*conn).ReadFull"}},
		{partCores, []string{module + "collective/task.(*Task).Step", module + "actors/engine.(*Operation).step"}},
		{partGossip, []string{"internal/runtime/syscall/linux.Syscall6", "syscall.Syscall6", "github.com/hashicorp/memberlist.(*Memberlist).gossip"}},
		{partBenchmark, []string{"internal/runtime/syscall/linux.Syscall6", "syscall.Getrusage", module + "cmd/node/internal/measure.ProcessTime"}},
		{partActors, []string{"github.com/polyrail/polyrail.AllReduceBytes", "main.group.AllReduce"}},
		{partRest, []string{"os/signal.loop"}},
		{partRest, nil},
	} {
		if got := partOf(c.stack); got != c.want {
			t.Errorf("%q is %s, want %s", c.stack, parts[got].name, parts[c.want].name)
		}
	}
}

// A rule whose function has another name by now sorts nothing.
func TestTheFunctionThatPollsHasTheNameOfItsRule(t *testing.T) {
	source, err := os.ReadFile("../../../../actors/engine/polling.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(source), "func (g *Group) polls(") {
		t.Error("actors/engine has no (*Group).polls: the share of polling is counted as another's")
	}
}

func TestSharesAddUpToAll(t *testing.T) {
	location := func(names ...string) *pb.Location {
		l := &pb.Location{}
		for _, n := range names { // inlined into one another
			l.Line = append(l.Line, pb.Line{Function: &pb.Function{Name: n}})
		}
		return l
	}
	r := sum(&pb.Profile{Sample: []*pb.Sample{
		{Value: []int64{3, 30e6}, Location: []*pb.Location{location("golang.org/x/sys/unix.Writev", module+"x")}},
		{Value: []int64{1, 10e6}, Location: []*pb.Location{location("strconv.Itoa"), location("fmt.Sprint", module+"collective/reduce.sumF32")}},
	}}, 80*time.Millisecond)
	if r.Samples != 4 || r.CPUSeconds != 0.04 || r.WallSeconds != 0.08 {
		t.Errorf("%+v", r)
	}
	if len(r.Parts) != 2 || r.Parts[0].Name != "write" || r.Parts[0].Share != 0.75 || r.Parts[1].Name != "reduction" || math.Abs(r.Parts[1].Share-0.25) > 1e-9 {
		t.Errorf("parts %+v", r.Parts)
	}
	if r := sum(&pb.Profile{}, time.Millisecond); r.Samples != 0 || len(r.Parts) != 0 {
		t.Errorf("of nothing: %+v", r)
	}
}

func TestCaptureTakesOneAtATime(t *testing.T) {
	c, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Start(); err == nil {
		t.Error("a second profile began while the first was taken")
	}
	p, err := c.Stop(nil)
	if err != nil || p.WallSeconds <= 0 {
		t.Errorf("%+v, %v", p, err)
	}
}
