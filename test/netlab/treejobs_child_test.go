//go:build linux

package netlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/polyrail/polyrail"
)

// treeJobsEnv makes this test's program a host with a rank of several jobs; its value is a
// treeJobsConfig.
const treeJobsEnv = "POLYRAIL_NETLAB_TREEJOBS"

// treeJobsConfig is what a host is told.
type treeJobsConfig struct {
	Host             int
	Bind, Join, Rail string
	Jobs             [][]int // the hosts of each
	Nodes            int     // that aggregate; they are there before the first job forms
	Outstanding      int     // operations of a job at a time
	Rounds           int     // of so many operations
	Watches          bool    // what the aggregation nodes hold
}

// treeJobsLine is what a host tells.
type treeJobsLine struct {
	Operations int
	Watched    treeWatch
	Done       bool // the last line
}

// treeWatch is what the aggregation nodes told of themselves, while operations ran.
type treeWatch struct {
	Answers   int      // of all nodes
	Inner     int      // of these, groups whose node stands below another one
	Fragments uint64   // the most that one group had folded
	Jobs      int      // the most that one node served at a time
	Reserved  int64    // the most that one node had reserved, in bytes
	Over      []string // what went beyond a limit
}

// limit is far more than all rounds take.
func (c *treeJobsConfig) limit() time.Duration {
	const round = 10 * time.Second
	return patience + time.Duration(c.Rounds)*round
}

func treeJobsChild(c treeJobsConfig) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.limit())
	defer cancel()
	cfg := polyrail.DefaultConfig()
	cfg.Name, cfg.Bind, cfg.Join = nameOf(c.Host), c.Bind, []string{c.Join}
	cfg.Rails = []polyrail.Rail{{Name: c.Rail, Protocol: "sharp", Device: c.Rail}}
	cfg.MaxInFlight, cfg.Trees, cfg.TreeRadix, cfg.TreeFragment = c.Outstanding, polyrail.TreesAlways, 2, 4<<10
	node, err := polyrail.Start(ctx, cfg)
	if err != nil {
		return err
	}
	for len(node.Members()) < cutHosts+c.Nodes { // a tree is laid over the nodes that rank 0 knows
		select {
		case <-ctx.Done():
			return fmt.Errorf("there are %d of %d nodes: %v", len(node.Members()), cutHosts+c.Nodes, node.Members())
		case <-time.After(10 * time.Millisecond):
		}
	}
	var told sync.Mutex
	out := json.NewEncoder(os.Stdout)
	say := func(l treeJobsLine) {
		told.Lock()
		defer told.Unlock()
		_ = out.Encode(l) // whoever listened is gone: the bed ends this process
	}
	watched := make(chan treeWatch, 1)
	watching, stop := context.WithCancel(ctx)
	go func() { watched <- watchTrees(watching, node, c.Watches) }()
	errs := make([]error, len(c.Jobs))
	var all sync.WaitGroup
	for i, hosts := range c.Jobs {
		if slices.Contains(hosts, c.Host) {
			all.Go(func() { errs[i] = treeJob(ctx, node, i, c, func(n int) { say(treeJobsLine{Operations: n}) }) })
		}
	}
	all.Wait()
	stop()
	err = errors.Join(append(errs, node.Close(ctx))...)
	say(treeJobsLine{Done: err == nil, Watched: <-watched})
	return err
}

// treeJob runs a job's rounds. Its sums are of whole numbers, which trees of any shape add up alike.
func treeJob(ctx context.Context, node *polyrail.Node, job int, c treeJobsConfig, say func(int)) error {
	hosts := c.Jobs[job]
	comm, err := node.Communicator(ctx, fmt.Sprintf("job-%d", job), len(hosts))
	if err != nil {
		return err
	}
	operand := func(host, op, i int) int32 { return int32(i*7 + op*13 + host*1009) }
	bufs := make([][]int32, c.Outstanding)
	for k := range bufs {
		bufs[k] = make([]int32, 1+(k*613+job*97)%3000) // up to three fragments
	}
	for round := range c.Rounds {
		works := make([]*polyrail.Work, len(bufs))
		for k, buf := range bufs {
			for i := range buf {
				buf[i] = operand(c.Host, round*len(bufs)+k, i)
			}
			if works[k], err = polyrail.StartAllReduce(ctx, comm, buf, polyrail.Sum); err != nil {
				return fmt.Errorf("job %d, round %d: %w", job, round, err)
			}
		}
		if err := polyrail.WaitAll(ctx, works...); err != nil {
			return fmt.Errorf("job %d, round %d: %w", job, round, err)
		}
		for k, buf := range bufs {
			for i, x := range buf {
				want := int32(0)
				for _, host := range hosts {
					want += operand(host, round*len(bufs)+k, i)
				}
				if x != want {
					return fmt.Errorf("job %d, round %d, operation %d: element %d is %d, not %d", job, round, k, i, x, want)
				}
			}
		}
		say(len(bufs))
	}
	return comm.Close(ctx)
}

// watchTrees asks the aggregation nodes what they hold, over and over.
func watchTrees(ctx context.Context, node *polyrail.Node, watches bool) (w treeWatch) {
	for watches && ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, time.Second)
		all, err := node.Aggregators(asking)
		cancel()
		if err != nil {
			continue // one is dead, or the jobs have ended
		}
		w.Answers++
		for _, a := range all {
			w.see(a)
		}
	}
	return w
}

func (w *treeWatch) see(a polyrail.Aggregator) {
	var reserved int64
	jobs := make(map[uint64]int64)
	for _, g := range a.Groups {
		reserved += g.ReservedBytes
		jobs[g.Job] += g.ReservedBytes
		w.Fragments = max(w.Fragments, g.Fragments)
		if g.Parent != "" {
			w.Inner++
		}
		if jobs[g.Job] > a.JobMemory {
			w.Over = append(w.Over, fmt.Sprintf("%s holds %d bytes for %s", a.Node, jobs[g.Job], g.Communicator))
		}
	}
	w.Jobs, w.Reserved = max(w.Jobs, len(jobs)), max(w.Reserved, reserved)
	if reserved > a.MemoryLimit {
		w.Over = append(w.Over, fmt.Sprintf("%s holds %d bytes", a.Node, reserved))
	}
}
