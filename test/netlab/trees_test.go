//go:build linux

package netlab

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"
)

var treeFailures = flag.Int("tree-failures", 0, "how often an aggregation node fails in each way, held against what it may "+
	"cost (some 2 s each); 0: once in three ways, whatever it costs")

const (
	treeBytes   = 512 << 10
	treeJobs    = 2                      // that share the nodes
	treeSilence = 400 * time.Millisecond // what a failure may cost beside the bytes that are left
	treeBack    = 2 * time.Second        // with a second node that aggregates
)

// grove is four hosts with ranks, whose rail has trees, and two unshaped ones that aggregate.
type grove struct {
	t      *testing.T
	b      *Bed
	d      *diary
	random *rand.Rand
	nodes  map[int]*process // by host
	args   []string         // of theirs, beside those that all have
	late   []string         // what cost more than it may
}

// nodeFailures are the ways in which an aggregation node fails, and what ends that.
var nodeFailures = []struct {
	name      string
	hit, mend func(g *grove, host int)
}{
	{"killed", func(g *grove, host int) { g.signal(host, syscall.SIGKILL) },
		func(g *grove, host int) { g.nodes[host].await(g.t, patience); g.aggregate(host) }},
	{"silent cut", func(g *grove, host int) { g.b.Cut(host, 1, Silent) }, mendRail},
	{"stopped", func(g *grove, host int) { g.signal(host, syscall.SIGSTOP) },
		func(g *grove, host int) { g.signal(host, syscall.SIGCONT) }},
	{"carrier cut", func(g *grove, host int) { g.b.Cut(host, 1, Carrier) }, mendRail},
	{"admin cut", func(g *grove, host int) { g.b.Cut(host, 1, Admin) }, mendRail},
}

func mendRail(g *grove, host int) { g.b.Restore(host, 1) }

// Two jobs share two aggregation nodes, of which one fails again and again. No operation of either job
// fails or has a wrong element, none takes long, and the tree is soon made by the other node.
func TestAnAggregationNodeFails(t *testing.T) {
	ways, times := nodeFailures, *treeFailures
	if times == 0 {
		ways, times = ways[:3], 1
	}
	b := needProgram(t, Config{Hosts: cutHosts + 2, Rails: []Rate{rate}, Management: true})
	g := &grove{t: t, b: b, random: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1)), nodes: make(map[int]*process)}
	var end func()
	g.d, end = ranksOn(t, b, "sharp", treeJobs, treeBytes)
	for host := cutHosts + 1; host <= cutHosts+2; host++ {
		b.SetRate(host, 1, 0)
		g.aggregate(host)
	}
	g.d.until(t, "both jobs' first trees", func() bool {
		return g.up(jobName(0), time.Time{}).Node != "" && g.up(jobName(1), time.Time{}).Node != ""
	})
	g.settle(time.Now())
	table := tabwriter.NewWriter(t.Output(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "node\ttimes\tworst operation, median\tmost\ttree back, median\tmost")
	for _, way := range ways {
		var took, back []time.Duration
		for range times {
			worst, b := g.fail(way.name, way.hit, way.mend)
			took, back = append(took, worst), append(back, b)
		}
		ms := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
		fmt.Fprintf(table, "%s\t%d\t%v\t%v\t%v\t%v\n", way.name, times, ms(median(took)), ms(slices.Max(took)),
			ms(median(back)), ms(slices.Max(back)))
	}
	end()
	table.Flush()
	if *treeFailures > 0 && len(g.late) > 0 {
		t.Errorf("beyond the limits:\n%s", strings.Join(g.late, "\n"))
	}
	for _, o := range g.d.operations() {
		if o.Wrong > 0 {
			t.Errorf("operation %d: %d wrong elements", o.Operation, o.Wrong)
		}
	}
	for host := range g.nodes {
		g.signal(host, syscall.SIGTERM)
		g.nodes[host].await(t, patience)
	}
}

// aggregate starts a node on a host that aggregates for others.
func (g *grove) aggregate(host int) {
	p := &process{name: nameOf(host), ended: make(chan struct{})}
	args := []string{"run", "--name", p.name, "--bind", g.b.Addr(host, 0) + ":7946",
		"--join", g.b.Addr(1, 0) + ":7946", "--rail", NIC(1) + "=sharp:" + NIC(1), "--aggregate", NIC(1)}
	p.Cmd = g.b.Command(host, node, append(args, g.args...)...)
	p.Stdout, p.Stderr = &p.out, &p.errs
	if err := p.Start(); err != nil {
		g.t.Fatal(err)
	}
	go func() { p.err = p.Wait(); close(p.ended) }()
	g.nodes[host] = p
}

func (g *grove) signal(host int, s syscall.Signal) {
	if err := g.nodes[host].Process.Signal(s); err != nil {
		g.t.Errorf("%v to %s: %v", s, nameOf(host), err)
	}
}

// up is the last event of a job's trees at rank 0, if it is of one that came up after a moment.
func (g *grove) up(job string, after time.Time) (last line) {
	g.d.mu.Lock()
	defer g.d.mu.Unlock()
	for _, l := range g.d.lines[0] {
		if l.Communicator == job && l.Begin.After(after) && (l.Kind == "tree up" || l.Kind == "tree down") {
			last = l
		}
	}
	if last.Kind != "tree up" {
		return line{}
	}
	return last
}

// settle waits until both nodes aggregate, and for some operations after a moment.
func (g *grove) settle(from time.Time) {
	g.t.Helper()
	g.d.until(g.t, "both nodes' offers", func() bool {
		out, err := g.b.Command(1, node, "sharp", "quota", "--join", g.b.Addr(1, 0)+":7946", "--bind", g.b.Addr(1, 0)+":0").CombinedOutput()
		return err == nil && strings.Contains(string(out), nameOf(cutHosts+1)) && strings.Contains(string(out), nameOf(cutHosts+2))
	})
	g.d.until(g.t, "operations in peace", func() bool {
		all := g.d.operations()
		return len(all) > 6 && all[len(all)-6].Begin.After(from)
	})
}

// fail has the node that makes the first job's sums fail in mid-operation, and judges what it cost: the
// longest operation until the job had another tree, and the time until then.
func (g *grove) fail(name string, hit, mend func(*grove, int)) (worst, back time.Duration) {
	g.t.Helper()
	var serving line
	g.d.until(g.t, "a tree", func() bool { serving = g.up(jobName(0), time.Time{}); return serving.Node != "" })
	host := cutHosts + 1
	if serving.Node == nameOf(host+1) {
		host++
	}
	var usual []time.Duration
	all := g.d.operations()
	for _, o := range all[len(all)-5:] {
		usual = append(usual, o.Took)
	}
	<-time.After(time.Duration(g.random.Int64N(int64(median(usual)))))
	at := time.Now()
	hit(g, host)
	var up line
	g.d.until(g.t, name+": another tree", func() bool { up = g.up(jobName(0), at); return up.Node != "" })
	if back = up.Begin.Sub(at); back > treeBack {
		g.late = append(g.late, fmt.Sprintf("%s: a tree after %v", name, back))
	}
	g.d.until(g.t, "an operation after that", func() bool {
		all := g.d.operations()
		return all[len(all)-1].Begin.After(up.Begin)
	})
	for _, o := range g.d.operations() {
		if o.Begin.Add(o.Took).After(at) && o.Begin.Before(up.Begin) {
			worst = max(worst, o.Took)
		}
	}
	// Flat, each job's bytes take a rank's link 2(n-1)/n times.
	left := time.Duration(float64(treeJobs*treeBytes*2*(cutHosts-1)/cutHosts) * 8 / float64(rate) * float64(time.Second))
	if limit := median(usual) + treeSilence + left; worst > limit {
		g.late = append(g.late, fmt.Sprintf("%s: an operation took %v, the limit is %v", name, worst, limit))
	}
	g.t.Logf("%s: the longest operation took %v, %v before; a tree by %s after %v", name, worst, median(usual), up.Node, back)
	mended := time.Now()
	mend(g, host)
	g.settle(mended)
	return worst, back
}
