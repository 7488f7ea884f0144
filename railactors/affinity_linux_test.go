package railactors

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/polyrail/polyrail/railactors/affinity"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

// boundTo counts the threads of this process that may run on exactly these cores.
func boundTo(t *testing.T, cores []int) (threads int) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		t.Fatal(err)
	}
	want := "Cpus_allowed_list:\t" + strings.ReplaceAll(affinity.Format(cores), "+", ",")
	for _, name := range files {
		status, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		for line := range bytes.Lines(status) {
			if string(bytes.TrimSpace(line)) == want {
				threads++
			}
		}
	}
	return threads
}

// A rail of one node is bound to one core, its other rail and the other node are not.
func TestReadersAndWritersRunOnTheRailsCores(t *testing.T) {
	allowed, err := affinity.Allowed()
	if err != nil || len(allowed) < 2 {
		t.Skipf("SKIPPED: needs two cores to tell one of them from all: %v, %v", allowed, err)
	}
	core := allowed[len(allowed)-1:]
	before := boundTo(t, core)
	network := mem.NewNetwork()
	b := &bed{t: t, rails: []string{"bound", "free"}, open: network.Transport}
	b.tune = func(c *Config) {
		if c.Node == "a" {
			c.Rails[0].CPUs = core
		}
	}
	nodes := b.start("a", "b")
	x, y := join(nodes[0], nodes[1])
	if cpus := nodes[0].fabric.Rails()[0].CPUs; len(cpus) != 1 || cpus[0] != core[0] {
		t.Errorf("status says cores %v, want %v", cpus, core)
	}
	// A frame too large to be written inline has passed a writer and a reader of each rail.
	for rail := range 2 {
		nodes[0].send(x, uint64(rail+1), rail, 4*inlineBytes, 0)
		nodes[1].send(y, uint64(rail+1), rail, 4*inlineBytes, 0)
	}
	nodes[0].expect("b", 2)
	nodes[1].expect("a", 2)
	if n := boundTo(t, core) - before; n != 2 {
		t.Errorf("%d threads are bound to core %v, want the reader's and the writer's", n, core)
	}
	b.close()
	if n := boundTo(t, core) - before; n != 0 { // the fabric has waited for its goroutines
		t.Errorf("%d threads are still bound to core %v after the end", n, core)
	}
}
