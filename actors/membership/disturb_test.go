package membership

import (
	"testing"
)

func TestARailToAMemberDisturbsWhatIsMeasured(t *testing.T) {
	n := &node{}
	n.groups.Store(&map[uint64]*member{})
	n.shared = n.share() // one rail: no balancer is to be told
	g := n.shared.NewGroup(7, "train", 0, []string{"a", "b"}, nil, nil)
	g.Announce()
	n.groups.Store(&map[uint64]*member{g.ID: {group: g}})
	for _, c := range []struct {
		node string
		want uint64
	}{{"c", 0}, {"b", 1}} {
		n.disturb(c.node)
		if got := g.Failovers.Load(); got != c.want {
			t.Errorf("after a failover to node %s: %d failovers are counted, want %d", c.node, got, c.want)
		}
	}
}
