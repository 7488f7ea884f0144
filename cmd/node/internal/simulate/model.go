// Package simulate plans: it says how long an operation would take on a cluster that does not exist.
// It runs the project's own cores for every rank (programs, plans, tasks, and the parts of
// aggregation trees), unchanged, and models what lies between them: processors, rails, switches and
// nodes that aggregate. Time is simulated, bytes are counted and never moved. The same input gives
// the same result.
//
// What the model leaves out is listed in docs/simulate.md.
package simulate

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
)

// Cluster is what an operation runs on.
type Cluster struct {
	Hosts   int
	PerHost int // ranks of each; neighbours in rank share a host
	Rails   []Rail
	Local   Link // between ranks of one host
	Ranks   Processor
	// Processors that all ranks share, as the hosts of a test bed share one machine's; 0: each rank
	// has its own.
	Shared       int
	HostsPerLeaf int           // hosts below one switch; 0: all of them
	Switch       time.Duration // that one switch takes
	Faults       []Fault
}

// Link carries frames one after the other.
type Link struct {
	Startup time.Duration // from the end of a frame at one end to its end at the other, without switches
	Rate    float64       // bytes per second
	Burst   time.Duration // of a shaper: what it lets through at once after a pause takes so long at its rate
}

// Rail is a network that every host is connected to by one link.
type Rail struct {
	Link
	Tree *Tree // nodes that aggregate on it; nil: none
}

// Processor is what a rank, or a node that aggregates, takes.
type Processor struct {
	Begin time.Duration // to begin an operation
	Frame time.Duration // to send or receive a frame
	Copy  float64       // bytes per second that are copied to or from a socket
	Fold  float64       // bytes per second of one operand that are added to another one
}

// Tree is the aggregation tree of a rail. Its nodes stand at the switches.
type Tree struct {
	Node     Processor
	Ports    bool // each child has a link of its own, as at a switch; otherwise they share the node's
	Radix    int  // children of a node, at most; 0: any number
	Window   int  // fragments on their way
	Fragment int  // bytes
	// What an operation that goes over it begins at; smaller ones go over the ranks.
	From int
}

// Fault is a rail that dies: what is on its way is lost, and sent again over the others after Notice.
type Fault struct {
	Rail   int
	At     time.Duration
	Notice time.Duration
}

// Call is an operation that all ranks call at once.
type Call struct {
	Kind      op.Kind
	Algorithm op.Algorithm // op.Auto: by the fixed rule
	Bytes     int
	Shares    []float64 // of the rails; nil: by their rates above SplitBytes, else all on the quickest
	// Operations like it that were before, each with a barrier after it, as node bench has them. They
	// leave less in token buckets than a long pause does.
	Warmup int
}

// Result is what an operation took.
type Result struct {
	Time      time.Duration // from the call to the last rank's end; of the last operation, as all here
	Algorithm op.Algorithm
	Ranks     int
	Frames    int64 // of data
	Carried   int64 // bytes of them, over all rails and local links
	Resent    int64 // frames that a fault cost
	Events    int64
}

// SplitBytes is the size from which several rails share an operation where nobody says how.
const SplitBytes = 64 << 10

// Check lists every fault at once.
func (c *Cluster) Check() error {
	var faults []error
	add := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	add(c.Hosts >= 1 && c.PerHost >= 1 && c.PerHost <= schedule.MaxRanks/c.Hosts, // no overflow
		"%d hosts of %d ranks: 1 to %d ranks", c.Hosts, c.PerHost, schedule.MaxRanks)
	add(len(c.Rails) >= 1 && len(c.Rails) <= maxRails, "%d rails: 1 to %d", len(c.Rails), maxRails)
	link := func(name string, l Link) {
		add(inTime(l.Startup, l.Burst) && l.Rate >= minRate, "%s: startup %v, %g bytes/s, burst %v: %s", name, l.Startup, l.Rate, l.Burst, bounds)
	}
	processor := func(name string, p Processor) {
		add(inTime(p.Begin, p.Frame) && p.Copy >= minRate && p.Fold >= minRate, "%s: %+v: %s", name, p, bounds)
	}
	for i, r := range c.Rails {
		link(fmt.Sprintf("rail %d", i), r.Link)
		if t := r.Tree; t != nil {
			processor(fmt.Sprintf("the nodes of rail %d", i), t.Node)
			add(t.Window >= 1 && t.Fragment >= 1 && t.Radix != 1 && t.Radix >= 0,
				"tree of rail %d: window %d and fragments of %d bytes: 1 or more; radix %d: 2 or more, or 0 for any",
				i, t.Window, t.Fragment, t.Radix)
		}
	}
	if c.PerHost > 1 {
		link("the link within a host", c.Local)
	}
	processor("the ranks", c.Ranks)
	add(c.Shared >= 0 && c.HostsPerLeaf >= 0, "shared processors and hosts of a switch can't be negative")
	add(inTime(c.Switch), "a switch takes %v: %s", c.Switch, bounds)
	faults = append(faults, c.checkFaults()...)
	return errors.Join(faults...)
}

func (c *Cluster) checkFaults() (faults []error) {
	dead := make(map[int]bool)
	for _, f := range c.Faults {
		add := func(ok bool, format string, args ...any) {
			if !ok {
				faults = append(faults, fmt.Errorf("fault of rail %d at %v: "+format, append([]any{f.Rail, f.At}, args...)...))
			}
		}
		add(inTime(f.At, f.Notice), "it is noticed after %v: %s", f.Notice, bounds)
		if f.Rail < 0 || f.Rail >= len(c.Rails) {
			add(false, "there are rails 0 to %d", len(c.Rails)-1)
			continue
		}
		dead[f.Rail] = true
		add(len(dead) < len(c.Rails), "there has to be another one")
		add(c.Rails[f.Rail].Tree == nil, "it has a tree, whose repair is not simulated")
	}
	return faults
}

// Bounds of times and of rates, in bytes per second: sums of them don't overflow.
const (
	maxTime = time.Hour
	minRate = 125
	bounds  = "times are 0 to 1h, rates 0.001Mbit or more"
)

func inTime(times ...time.Duration) bool {
	return slices.Min(times) >= 0 && slices.Max(times) <= maxTime
}

const maxRails = 32

// Bounds of an operation in bytes: of one rank, and of all ranks together. Each frame and each span
// of a plan takes memory here, some 4 KiB for each MiB of a rank.
const (
	MaxBytes    = 16 << 30
	MaxAllBytes = 1 << 40
)

// CheckBytes says whether an operation of so many bytes can be simulated on so many ranks.
func CheckBytes(ranks, bytes int) error {
	switch {
	case bytes < 0 || bytes > MaxBytes:
		return fmt.Errorf("%d bytes: 0 to %d", bytes, MaxBytes)
	case bytes > MaxAllBytes/max(ranks, 1):
		return fmt.Errorf("%d bytes on %d ranks: all ranks together can have %d", bytes, ranks, MaxAllBytes)
	}
	return nil
}

func (c *Cluster) ranks() int { return c.Hosts * c.PerHost }

// host is where a rank runs.
func (c *Cluster) host(rank int) int { return rank / c.PerHost }

// Places are the ranks' hosts, as schedules have them. Check has found no fault.
func (c *Cluster) Places() *schedule.Hosts {
	numbers := make([]int, c.ranks())
	for rank := range numbers {
		numbers[rank] = c.host(rank)
	}
	return schedule.NewHosts(numbers)
}

// switches is how many a frame passes between two hosts.
func (c *Cluster) switches(a, b int) int {
	if c.HostsPerLeaf == 0 || a/c.HostsPerLeaf == b/c.HostsPerLeaf {
		return 1
	}
	return 3 // up to the spine, and down
}
