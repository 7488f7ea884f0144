//go:build linux

package netlab

import (
	"bufio"
	"encoding/json"
	"flag"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/polyrail/polyrail/test/program"
)

var treeRounds = flag.Int("tree-rounds", 3, "rounds of operations that each of the jobs over one grove has outstanding at a time")

// overlapping are the hosts of eight jobs; their trees have one level or two.
var overlapping = [][]int{{1, 2, 3, 4}, {1, 2, 3}, {2, 3, 4}, {1, 3}, {1, 2, 3, 4}, {2, 4}, {1, 3, 4}, {1, 2, 4}}

// Eight jobs that overlap share three aggregation nodes, which serve not all of them at once.
// Thousands of operations are outstanding, and a node is killed meanwhile: nothing waits for ever,
// each sum is right, and no node holds more than its quotas say.
func TestJobsShareTreesOfTwoLevels(t *testing.T) {
	const (
		nodes       = 3
		outstanding = 256 // of a job: 2,048 of all
	)
	b := needProgram(t, Config{Hosts: cutHosts + nodes, Rails: []Rate{rate}, Management: true})
	g := &grove{t: t, b: b, nodes: make(map[int]*process)}
	g.args = []string{"--aggregate-memory", "1MiB", "--aggregate-quota", "512KiB"}
	var operations atomic.Int64
	var watched treeWatch
	var done [cutHosts]bool
	var all sync.WaitGroup
	var errs [cutHosts]strings.Builder
	halfway := make(chan struct{})
	want := int64(0)
	for _, hosts := range overlapping {
		want += int64(len(hosts) * *treeRounds * outstanding)
	}
	var once sync.Once
	for host := 1; host <= cutHosts; host++ {
		c := treeJobsConfig{Host: host, Bind: b.Addr(host, 0) + ":7946", Join: b.Addr(1, 0) + ":7946", Rail: NIC(1),
			Jobs: overlapping, Nodes: nodes, Outstanding: outstanding, Rounds: *treeRounds, Watches: host == 1}
		cmd, _, out := spawn(t, b, host, treeJobsEnv, c, &errs[host-1])
		program.Limit(cmd, c.limit()+patience) // its own limit comes first, and says what failed
		all.Go(func() {
			for told := bufio.NewScanner(out); told.Scan(); {
				var l treeJobsLine
				if err := json.Unmarshal(told.Bytes(), &l); err != nil {
					t.Errorf("%s says %q", nameOf(host), told.Text())
				}
				if operations.Add(int64(l.Operations)) > want/2 {
					once.Do(func() { close(halfway) })
				}
				done[host-1] = l.Done
				if l.Done && host == 1 {
					watched = l.Watched
				}
			}
			ended(t, host, cmd, &errs[host-1])
			once.Do(func() { close(halfway) }) // a rank that fails
		})
	}
	for host := cutHosts + 1; host <= cutHosts+nodes; host++ {
		b.SetRate(host, 1, 0)
		g.aggregate(host)
	}
	<-halfway
	g.signal(cutHosts+1, syscall.SIGKILL)
	all.Wait()
	for host := range g.nodes {
		if host > cutHosts+1 {
			g.signal(host, syscall.SIGTERM)
		}
		g.nodes[host].await(t, patience)
	}
	t.Logf("%d operations; %+v", operations.Load(), watched)
	if slices.Contains(done[:], false) || operations.Load() != want {
		t.Errorf("%d of %d operations, hosts that ended well: %v", operations.Load(), want, done)
	}
	seen := watched.Fragments > 0
	if *treeRounds > 10 { // who looks now and then may miss in a few rounds what lasts some 100 ms
		seen = seen && watched.Inner > 0 && watched.Jobs > 1
	}
	if len(watched.Over) > 0 || !seen {
		t.Errorf("the aggregation nodes: %+v", watched)
	}
}
