package sharp_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/polyrail/polyrail/test/seeds"
)

// rule is one that can be taken out of the model: then some runs must fail.
type rule int

const (
	nothing          rule = iota
	windowKept            // a rank sends less than a window beyond what it has
	settledByWindow       // a response settles what is a window before it, and that is the ranks' window
	slotsKept             // a slot is used again only when its result has left it
	placedSettled         // in place, a result is placed only when it is settled
	copiesKept            // the copy of an operand is kept until its fragment is settled
	fenced                // who reports takes and sends nothing any more
	settledReported       // what is reported is settled, not merely received
	highestFrom           // F* is the highest report
	agreedFrom            // all fold again from the same fragment on
	resultsKept           // a node keeps a result until all frames have let go of it
	resultsBounded        // a node folds only while there is room for results
	doneFirst             // a node opens the next fragment before it responds
	requestsCompared      // the children's requests are compared
	tornTaken             // an operand that was torn may come again
	foldWhole             // only whole operands are folded
	heldTold              // at an operation's end a rank says that it has the responses
	heldReceived          // it says so of what is here, not of what was sent
	heldByAll             // settled is what all children hold
	castsKept             // a result that was cast is kept until all have it
	askRemembered         // what is asked for before it is there comes by unicast
	rules
)

var ruleNames = [rules]string{
	windowKept: "window kept", settledByWindow: "settled by the ranks' window", slotsKept: "slots kept",
	placedSettled: "placed when settled", copiesKept: "copies kept", fenced: "fence",
	settledReported: "settled reported", highestFrom: "highest report", agreedFrom: "one F*",
	resultsKept: "results kept", resultsBounded: "results bounded", doneFirst: "done before responses",
	requestsCompared: "requests compared", tornTaken: "torn taken back", foldWhole: "whole operands",
	heldTold: "held told", heldReceived: "held is received", heldByAll: "held by all",
	castsKept: "casts kept", askRemembered: "ask remembered",
}

// leafWindow is what the ranks keep to.
func (w *world) leafWindow() int {
	switch w.without {
	case windowKept:
		return w.window + 1
	case settledByWindow:
		return 2 * w.window
	}
	return w.window
}

// nodeWindow is what the nodes have memory for.
func (w *world) nodeWindow() int {
	if w.without == settledByWindow {
		return 2 * w.window
	}
	return w.window
}

// TestEveryRuleIsNeeded takes the rules out one at a time. -seeds N counts how many of so many runs
// fail; else the first one will do.
func TestEveryRuleIsNeeded(t *testing.T) {
	if _, one := seeds.One(); one {
		t.Skip("a seed of the model")
	}
	const ordinary = 4000
	count := seeds.Count(ordinary, ordinary)
	for r := nothing + 1; r < rules; r++ {
		t.Run(ruleNames[r], func(t *testing.T) {
			failures, how := 0, map[string]int{}
			for seed := range count {
				f := newWorld(seed+1, r, nil).run()
				if f == nil {
					continue
				}
				failures++
				how[f.kind]++
				if count == ordinary {
					t.Logf("seed %d fails: %v", seed+1, f)
					break
				}
			}
			if failures == 0 {
				t.Errorf("all of %d runs are right", count)
			}
			if count != ordinary {
				t.Logf("%6d of %d fail: %s", failures, count, summary(how))
			}
		})
	}
}

func summary(how map[string]int) (s string) {
	for _, k := range slices.Sorted(maps.Keys(how)) {
		s += fmt.Sprintf("%s %d  ", k, how[k])
	}
	return s
}
