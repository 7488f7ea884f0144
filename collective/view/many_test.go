package view

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/test/seeds"
)

var from = flag.Uint64("from", 1, "first seed of the groups of many nodes")

// many are numbers of nodes whose ranks are not all connected with each other, and of seeds.
var many = []struct {
	nodes         int
	seeds, shorts uint64
}{{64, 3, 1}, {256, 1, 0}}

// TestManyNodesForm runs large groups against the faults of TestAgreementUnderChaos, and then in quiet.
func TestManyNodesForm(t *testing.T) {
	simulateMany(t, func(w *world) error {
		w.chaos(time.Duration(1+w.rng.Intn(4)) * time.Second)
		w.calm()
		return w.err
	})
}

// TestManyNodesLoseSome lets up to half of a large group die, twice; the others always go on.
func TestManyNodesLoseSome(t *testing.T) {
	simulateMany(t, func(w *world) error {
		s := newShrinkWorldIn(w)
		s.root()
		for range 2 {
			if w.err == nil {
				s.death()
			}
		}
		s.checkLineage()
		return w.err
	})
}

// simulateMany runs all numbers of nodes and seeds, or the one that is to be replayed.
func simulateMany(t *testing.T, run func(w *world) error) {
	for _, m := range many {
		t.Run(fmt.Sprint(m.nodes), func(t *testing.T) {
			simulateSeeds(t, *from, seeds.Count(m.seeds, m.shorts), func(seed int64, logf func(string, ...any)) error {
				return run(newWorldOf(m.nodes, seed, logf))
			})
		})
	}
}

// The lowest of many gives up. Others have not heard of each other by then, and accuse nobody.
func TestOfManyNobodyIsSaidNotToAskUntold(t *testing.T) {
	nodes := manyNodes()
	s := newStage(t, nodes...)
	s.ask("x", 40, nodes[:39]...)
	s.pass(10 * time.Second) // the lowest tells all by and by
	s.step("n00", Cancel{1, "x", "deadline exceeded"})
	s.expectFailed("n00", "39 of 40 nodes have asked", "not asking: n39")
	s.run()
	s.step("n20", Cancel{1, "x", "deadline exceeded"})
	if text := s.failed["n20"].Error(); strings.Contains(text, "n10") || strings.Contains(text, "n38") {
		t.Error(text)
	}
}

// Of many nodes the lowest alone hears of all. Another one accuses nobody, and says whom to ask.
func TestOfManyOnlyTheLowestSaysWhoDoesNotShrink(t *testing.T) {
	nodes := manyNodes()
	s, v := shrinkers(t, nodes...)
	s.shrink(v, nil, nodes[:20]...)
	s.step("n19", Cancel{2, ShrinkName(v.ID), "deadline exceeded"})
	s.expectFailed("n19", `"n00", the lowest known to shrink, counts who does`)
	if e := s.failed["n19"].(*fault.ViewError); e.Node != "" {
		t.Errorf("node %q is accused", e.Node)
	}
	s.step("n00", Cancel{2, ShrinkName(v.ID), "deadline exceeded"})
	s.expectFailed("n00", `node "n20"`, "20 of 40 nodes want to go on (n00, ", " and 4 more)",
		"shrinking: n20, n21, ", "n35 and 4 more")
}

// A text that lists hundreds of nodes hides what it says.
func TestAMinorityOfManyNamesAFew(t *testing.T) {
	nodes := manyNodes()
	s, v := shrinkers(t, nodes...)
	s.shrink(v, nil, nodes[:19]...)
	for _, node := range nodes[19:] {
		s.loseNode(node)
	}
	s.expectMinority("n00", "19 nodes left (n00, ", " and 3 more)", "missing: n19, ", " and 5 more")
}

func manyNodes() (nodes []string) {
	for i := range 40 {
		nodes = append(nodes, fmt.Sprintf("n%02d", i))
	}
	return nodes
}
