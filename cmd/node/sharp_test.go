package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/test/testbed"
)

func TestSharpShowsNothingOfAClusterThatItDoesNotFind(t *testing.T) {
	code, out, errs := node(t, "sharp", "trees", "--join", "127.0.0.1:1", "--bind", "127.0.0.1:0", "--timeout", "100ms")
	if code != exitFailure || out != "" || !strings.Contains(errs, "127.0.0.1:1") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errs)
	}
}

// TestSharpShowsWhoAggregates: two ranks, and a node that aggregates for them.
func TestSharpShowsWhoAggregates(t *testing.T) {
	c, err := testbed.Start(t.Context(), testbed.Options{
		Nodes: 3, Rails: 1, Over: testbed.Loopback, Gossip: testbed.Loopback,
		Adapt: func(cfg *polyrail.Config) {
			cfg.Cluster, cfg.Rails[0].Protocol = t.Name(), "sharp"
			if cfg.Name == testbed.NodeName(2) {
				cfg.Aggregate, cfg.Rack, cfg.AggregateQuota = []string{cfg.Rails[0].Name}, "row/a", 64<<20
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	events := c.Nodes[0].Events(t.Context())
	if err := c.Each(func(i int) (err error) {
		if i < 2 {
			_, err = c.Nodes[i].Communicator(t.Context(), "train", 2)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	limit := time.After(20 * time.Second)
	for up := false; !up; {
		select {
		case e := <-events:
			up = e.Kind == polyrail.TreeUp
		case <-limit:
			t.Fatal("no tree")
		}
	}
	for view, want := range map[string][]string{
		"trees":  {"train over rail0: group ", "\n  node2\n", "    rank 0 (node \"node0\")\n"},
		"groups": {"NODE   RAIL   COMMUNICATOR", "node2  rail0  train"},
		"quota":  {"node2  row/a  rail0  all    1       64  4MiB    256MiB", "train  1       -   4MiB    64MiB"},
	} {
		code, out, errs := node(t, "sharp", view, "--join", c.Nodes[0].GossipAddr(), "--cluster", t.Name())
		for _, w := range want {
			if code != exitOK || !strings.Contains(out, w) {
				t.Errorf("%s: exit code %d, no %q in\n%s\n%s", view, code, w, out, errs)
			}
		}
	}
	code, _, errs := node(t, "sharp", "trees", "--join", "127.0.0.1:1", "--timeout", "300ms")
	if code != exitFailure || !strings.Contains(errs, "127.0.0.1:1") {
		t.Errorf("nobody answers: exit code %d, %s", code, errs)
	}
	if code, _, errs := node(t, "sharp", "trees"); code != exitUsage || !strings.Contains(errs, "--join") {
		t.Errorf("nobody to ask: exit code %d, %s", code, errs)
	}
}

// --bind is an address of loopback by default. The nodes of other hosts seem to be there, and are
// silent.
func TestSharpSaysThatOtherHostsCannotAnswerToLoopback(t *testing.T) {
	silent := errors.New("no answer of b")
	err := withReach(silent, "127.0.0.1:7946")
	if !errors.Is(err, silent) || !strings.Contains(err.Error(), "--bind") {
		t.Errorf("%v does not name the cause", err)
	}
	if err := withReach(silent, "10.0.0.1:7946"); err != silent {
		t.Errorf("%v, want what was said", err)
	}
	if err := withReach(nil, "127.0.0.1:7946"); err != nil {
		t.Error(err)
	}
}

// Who has not answered may have trees.
func TestSharpSpeaksOfTheNodesThatHaveAnswered(t *testing.T) {
	var out strings.Builder
	err := showTrees(&out, []polyrail.Aggregator{{Node: "a"}})
	if err != nil || !strings.Contains(out.String(), "have answered") {
		t.Errorf("%v, shown is %q", err, out.String())
	}
}

// A tree is drawn whoever of its nodes does not answer.
func TestSharpDrawsTreesAroundNodesThatDoNotAnswer(t *testing.T) {
	part := func(node, parent string, children ...string) polyrail.Aggregator {
		return polyrail.Aggregator{Node: node, Groups: []polyrail.TreeGroup{
			{Group: 7, Communicator: "train", Rail: "r", Parent: parent, Children: children}}}
	}
	root := part("spine", "", `rank 2 (node "c")`, `aggregation node "a"`, `aggregation node "b"`)
	a, b := part("a", "spine", `rank 0 (node "d")`), part("b", "spine", `rank 1 (node "e")`)
	const head = "train over r: group 0000000000000007\n"
	for _, c := range []struct {
		answers []polyrail.Aggregator
		want    string
	}{
		{[]polyrail.Aggregator{a, b, root}, `
  spine
    rank 2 (node "c")
    a
      rank 0 (node "d")
    b
      rank 1 (node "e")
`},
		{[]polyrail.Aggregator{a, b}, `
  spine, which has not answered
    a
      rank 0 (node "d")
    b
      rank 1 (node "e")
`},
		{[]polyrail.Aggregator{b, root}, `
  spine
    rank 2 (node "c")
    aggregation node "a"
    b
      rank 1 (node "e")
`},
	} {
		var out strings.Builder
		if err := showTrees(&out, c.answers); err != nil || out.String() != head+c.want[1:] {
			t.Errorf("%v, drawn is\n%s\nnot\n%s", err, out.String(), c.want)
		}
	}
}
