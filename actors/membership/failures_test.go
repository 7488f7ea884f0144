package membership

import (
	"fmt"
	"testing"
	"time"
)

func TestOutagesAreTimedHoweverManyNodesNeverCameBack(t *testing.T) {
	var f failures
	now := time.Unix(1, 0)
	happens := func(kind EventKind, node string) {
		now = now.Add(time.Second)
		f.note(&Event{Kind: kind, Time: now, Node: node, Rail: "a"})
	}
	for i := range maxDown {
		happens(RailDown, fmt.Sprint("gone", i))
	}
	happens(RailDown, "b")
	happens(RailMoved, "b")
	happens(RailUp, "b")
	if len(f.down) > maxDown {
		t.Errorf("%d connections are remembered", len(f.down))
	}
	rail := f.read()[0]
	if rail.Failovers.Count != 1 || rail.Failovers.Sum != time.Second || rail.Outages.Count != 1 ||
		rail.Outages.Sum != 2*time.Second {
		t.Errorf("%+v, want a failover of 1 s and an outage of 2 s", rail)
	}
}
