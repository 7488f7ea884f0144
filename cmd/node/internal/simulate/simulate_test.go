package simulate

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
)

// gigabit is a cluster with round numbers: a frame's header takes 0.928 µs on the wire.
func gigabit(hosts, rails int) *Cluster {
	c := &Cluster{Hosts: hosts, PerHost: 1, Ranks: Processor{Begin: 2 * time.Microsecond, Frame: time.Microsecond, Copy: 10e9, Fold: 10e9},
		Local: Link{Startup: time.Microsecond, Rate: 5e9}}
	for range rails {
		c.Rails = append(c.Rails, Rail{Link: Link{Startup: 10 * time.Microsecond, Rate: 125e6}})
	}
	return c
}

func switches() *Tree {
	return &Tree{Node: Processor{Frame: 100 * time.Nanosecond, Copy: 100e9, Fold: 100e9}, Ports: true, Radix: 16, Window: 16, Fragment: 64 << 10}
}

func run(t *testing.T, c *Cluster, call Call) Result {
	t.Helper()
	r, err := Run(t.Context(), c, call)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func within(t *testing.T, what string, got, want time.Duration, tolerance float64) {
	t.Helper()
	if off := math.Abs(got.Seconds()/want.Seconds() - 1); off > tolerance {
		t.Errorf("%s: %v, want %v within %.0f %%", what, got, want, 100*tolerance)
	}
}

func TestTwoRanksTakeWhatTheirFramesTake(t *testing.T) {
	c := gigabit(2, 1)
	got := run(t, c, Call{Kind: op.KindAllReduce, Algorithm: op.RecursiveDoubling, Bytes: 8})
	copies := 2 * over(8, 10e9)
	want := 2*time.Microsecond + 2*time.Microsecond + copies + onWire(8, 125e6) + 10*time.Microsecond + over(8, 10e9)
	within(t, "8 bytes", got.Time, want, 0.001)
	if got.Frames != 2 || got.Carried != 16 {
		t.Errorf("%d frames, %d bytes", got.Frames, got.Carried)
	}
}

// Bytes are on their way while they are copied at both ends: the slowest of the three counts.
func TestAFrameIsCopiedWhileItIsOnItsWay(t *testing.T) {
	const bytes = 64 << 10
	for name, rate := range map[string]float64{"the link is slower": 4 * 125e6, "copying is slower": 125e6 / 4} {
		c := gigabit(2, 1)
		c.Ranks.Copy, c.Ranks.Fold = rate, 1e15
		got := run(t, c, Call{Kind: op.KindBroadcast, Algorithm: op.Tree, Bytes: bytes})
		within(t, name, got.Time, c.Ranks.Begin+2*c.Ranks.Frame+c.Rails[0].Startup+over(bytes, min(rate, 125e6)), 0.01)
	}
}

// A token bucket lets the first bytes after a pause through at once, and then keeps to its rate.
func TestABurstPassesAtOnceAfterAPause(t *testing.T) {
	took := func(burst time.Duration, bytes int) time.Duration {
		c := gigabit(2, 1)
		c.Rails[0].Burst = burst
		return run(t, c, Call{Kind: op.KindAllReduce, Algorithm: op.RecursiveDoubling, Bytes: bytes}).Time
	}
	const burst = 100 * time.Microsecond
	within(t, "8 bytes", took(0, 8)-took(burst, 8), onWire(8, 125e6), 0.001)
	within(t, "a frame of twice the burst", took(0, 25_000)-took(burst, 25_000), burst, 0.02)
	if got, least := took(burst, 16<<20), over(16<<20, 125e6)-2*burst; got < least || got > took(0, 16<<20) {
		t.Errorf("16 MiB: %v, want %v at least, and %v without a burst", got, least, took(0, 16<<20))
	}
}

// Where operations follow each other a bucket holds no more than what the pause between them
// brought, and takes the operations' bytes at its rate.
func TestOperationsInARowFindWhatTheLastOneLeftInABucket(t *testing.T) {
	const bytes, burst = 50_000, 200 * time.Microsecond
	took := func(burst time.Duration, warmup int) time.Duration {
		c := gigabit(2, 1)
		c.Rails[0].Burst = burst
		return run(t, c, Call{Kind: op.KindAllReduce, Algorithm: op.RecursiveDoubling, Bytes: bytes, Warmup: warmup}).Time
	}
	if alone, inARow := took(0, 0), took(0, 3); alone != inARow {
		t.Errorf("without a bucket: %v alone, %v in a row", alone, inARow)
	}
	pause := run(t, gigabit(2, 1), Call{Kind: op.KindBarrier}).Time
	within(t, "the first", took(burst, 0), took(0, 0)-burst, 0.02)
	within(t, "the fourth", took(burst, 3), over(bytes, 125e6)-pause, 0.05)
}

func TestOperationsInARowNeedRailsThatLive(t *testing.T) {
	for warmup, faults := range map[int][]Fault{-1: nil, 1: {{Rail: 0}}} {
		c := gigabit(2, 2)
		c.Faults = faults
		if _, err := Run(t.Context(), c, Call{Kind: op.KindBarrier, Warmup: warmup}); err == nil {
			t.Errorf("%d operations before, faults %v: no error", warmup, faults)
		}
	}
}

// A tree's lane is cut as the runtime cuts it: each block of the flat algorithm into fragments.
func TestATreesLaneIsCutIntoTheBlocksOfTheFlatAlgorithm(t *testing.T) {
	for a, fragments := range map[op.Algorithm]int64{op.RecursiveDoubling: 1, op.Ring: 4} {
		c := gigabit(4, 1)
		c.Rails[0].Tree = &Tree{Radix: 36, Window: 16, Fragment: 64 << 10, Ports: true,
			Node: Processor{Copy: 1e12, Fold: 1e12}}
		r := run(t, c, Call{Kind: op.KindAllReduce, Algorithm: a, Bytes: 64 << 10})
		if want := fragments * 2 * 4; r.Frames != want {
			t.Errorf("%v: %d frames, want %d", a, r.Frames, want)
		}
	}
}

func TestALargeRingReachesItsBound(t *testing.T) {
	for _, hosts := range []int{2, 4, 7} {
		const bytes = 64 << 20
		bound := time.Duration(2 * float64(hosts-1) / float64(hosts) * bytes / 125e6 * 1e9)
		one := run(t, gigabit(hosts, 1), Call{Kind: op.KindAllReduce, Bytes: bytes})
		two := run(t, gigabit(hosts, 2), Call{Kind: op.KindAllReduce, Bytes: bytes})
		within(t, fmt.Sprintf("%d hosts", hosts), one.Time, bound, 0.05)
		within(t, fmt.Sprintf("%d hosts, two rails", hosts), two.Time, bound/2, 0.06)
	}
}

func TestATreeCarriesLargeSumsOnceEachWay(t *testing.T) {
	const bytes = 64 << 20
	c := gigabit(8, 1)
	c.Rails[0].Tree = switches()
	got := run(t, c, Call{Kind: op.KindAllReduce, Bytes: bytes})
	within(t, "tree", got.Time, over(bytes, 125e6), 0.05)
	if want := int64(2 * 8 * bytes); got.Carried != want {
		t.Errorf("%d bytes carried, want %d", got.Carried, want)
	}
	c.Rails[0].Tree.Ports = false // one link for all: the node's receives n times as much
	got = run(t, c, Call{Kind: op.KindAllReduce, Bytes: bytes})
	within(t, "tree at a host", got.Time, 8*over(bytes, 125e6), 0.05)
}

func TestEveryAlgorithmEndsOnEveryNumberOfRanks(t *testing.T) {
	for _, kind := range []op.Kind{op.KindBarrier, op.KindAllReduce, op.KindReduce, op.KindBroadcast, op.KindReduceScatter,
		op.KindAllGather, op.KindGather, op.KindScatter, op.KindAllToAll, op.KindScan} {
		for _, a := range schedule.Algorithms(kind) {
			for hosts := 1; hosts <= 9; hosts++ {
				for _, bytes := range []int{0, 8 * hosts, 2520 * 256, 2520 * 512} {
					c := gigabit(hosts, 2)
					c.PerHost = 1 + hosts%3
					c.Rails[1].Rate /= 3
					got := run(t, c, Call{Kind: kind, Algorithm: a, Bytes: bytes * c.PerHost})
					if hosts > 1 && got.Time <= 0 {
						t.Errorf("%v by %v, %d hosts, %d bytes: %+v", kind, a, hosts, bytes, got)
					}
				}
			}
		}
	}
}

func TestARailThatDiesCostsItsNoticeAndWhatItCarried(t *testing.T) {
	const bytes = 32 << 20
	c := gigabit(4, 2)
	whole := run(t, c, Call{Kind: op.KindAllReduce, Bytes: bytes})
	c.Faults = []Fault{{Rail: 1, At: whole.Time / 2, Notice: 10 * time.Millisecond}}
	cut := run(t, c, Call{Kind: op.KindAllReduce, Bytes: bytes})
	if cut.Resent == 0 || cut.Time < whole.Time*5/4 || cut.Time > whole.Time*2+20*time.Millisecond {
		t.Errorf("%v whole, %v with a rail cut, %d frames again", whole.Time, cut.Time, cut.Resent)
	}
}

// A rail that dies later carries what another one lost until then.
func TestARailThatDiesLaterCarriesUntilThen(t *testing.T) {
	c, call := gigabit(4, 3), Call{Kind: op.KindAllReduce, Bytes: 32 << 20}
	half := run(t, c, call).Time / 2
	c.Faults = []Fault{{Rail: 0, At: half, Notice: 10 * time.Millisecond}}
	one := run(t, c, call)
	c.Faults = append(c.Faults, Fault{Rail: 1, At: time.Hour, Notice: 10 * time.Millisecond})
	if later := run(t, c, call); later != one {
		t.Errorf("%+v, where another rail dies after an hour %+v", one, later)
	}
	c.Faults[1].At = half + 11*time.Millisecond // with what it carries in place of the first
	if both := run(t, c, call); both.Time <= one.Time || both.Time > 4*half+40*time.Millisecond {
		t.Errorf("%+v, where another rail dies soon %+v", one, both)
	}
}

// No figure says how long an operation takes that ends nowhere, or with a tree that is gone.
func TestAFaultThatCannotBeSimulatedIsNamed(t *testing.T) {
	call := Call{Kind: op.KindAllReduce, Bytes: 32 << 20}
	c := gigabit(4, 2)
	c.Faults = []Fault{{Rail: 0}, {Rail: 1}}
	if _, err := Run(t.Context(), c, call); err == nil || !strings.Contains(err.Error(), "another one") {
		t.Errorf("all rails die: %v", err)
	}
	c.Faults, c.Rails[0].Tree = c.Faults[:1], switches()
	if _, err := Run(t.Context(), c, call); err == nil || !strings.Contains(err.Error(), "tree") {
		t.Errorf("a tree's rail dies: %v", err)
	}
	c.Faults[0].Rail = 1
	run(t, c, call)
}

func TestTheSameInputGivesTheSameResult(t *testing.T) {
	c := gigabit(16, 2)
	c.Shared = 2
	call := Call{Kind: op.KindAllReduce, Bytes: 1 << 20}
	if a, b := run(t, c, call), run(t, c, call); a != b {
		t.Errorf("%+v, then %+v", a, b)
	}
}

func TestManySmallRanksTakeByTheLogarithm(t *testing.T) {
	at := func(hosts int, withTree bool) time.Duration {
		c := gigabit(hosts, 1)
		c.HostsPerLeaf = 16
		if withTree {
			c.Rails[0].Tree = switches()
		}
		return run(t, c, Call{Kind: op.KindAllReduce, Algorithm: op.RecursiveDoubling, Bytes: 8}).Time
	}
	for _, hosts := range []int{16, 256, 1024} {
		flat, fold := at(hosts, false), at(hosts, true)
		if hosts > 16 && fold >= flat {
			t.Errorf("%d hosts: doubling takes %v, a tree %v", hosts, flat, fold)
		}
		if twice := at(2*hosts, false); twice < flat+10*time.Microsecond || twice > flat+30*time.Microsecond {
			t.Errorf("%d hosts take %v, twice as many %v: one step more", hosts, flat, twice)
		}
	}
}

func TestWrongClustersAreNamed(t *testing.T) {
	c := gigabit(0, 1)
	c.Rails[0].Rate, c.Ranks.Fold = 0, 0
	c.Faults = []Fault{{Rail: 3}}
	if _, err := Run(t.Context(), c, Call{Kind: op.KindBarrier}); err == nil {
		t.Error("accepted")
	}
}

func TestNumbersBeyondAllBoundsAreFaults(t *testing.T) {
	for _, ranks := range [][2]int{{-1, 1}, {4, -1}, {4, math.MaxInt / 2}, {math.MaxInt, 4}} {
		c := gigabit(ranks[0], 1)
		c.PerHost = ranks[1]
		if _, err := Run(t.Context(), c, Call{Kind: op.KindAllReduce, Bytes: 8}); err == nil {
			t.Errorf("%d hosts of %d ranks are simulated", ranks[0], ranks[1])
		}
	}
	for _, bytes := range []int{-1, MaxBytes + 1} {
		if _, err := Run(t.Context(), gigabit(2, 1), Call{Kind: op.KindAllReduce, Bytes: bytes}); err == nil {
			t.Errorf("%d bytes are simulated", bytes)
		}
	}
}

// Each of n ranks sends to all others, and none to one that another one sends to at the time: so no
// link is idle.
func TestFramesEnterALinkInTheOrderInWhichTheyCome(t *testing.T) {
	const n, part = 9, 28 << 10 // eager; Bcube has groups of three
	for _, algorithm := range []op.Algorithm{op.Direct, op.Bcube} {
		got := run(t, gigabit(n, 1), Call{Kind: op.KindReduceScatter, Algorithm: algorithm, Bytes: n * part})
		within(t, algorithm.String(), got.Time, (n-1)*over(part, 125e6), 0.1)
	}
}
