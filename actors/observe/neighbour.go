package observe

import (
	"time"

	"github.com/polyrail/polyrail/actors/membership"
)

// Neighbour is what a page shows of another node: a part of what that one has answered.
type Neighbour struct {
	Node, Rack    string
	Silent        float64 // seconds since its answer; -1: it has never answered
	Obstacles     []string
	Rails         []NeighbourRail
	Communicators []NeighbourCommunicator
	Operations    uint64 // that ended well; 0 where it doesn't count
	Failed        uint64
	Groups        int // of trees that it aggregates for
	InUse, Limit  int64
	Events        []membership.EventRecord
}

// NeighbourRail is a rail of another node.
type NeighbourRail struct {
	Name                string
	Up                  bool
	BytesSent, Received uint64
	Resent              uint64
}

// NeighbourCommunicator is a communicator of another node.
type NeighbourCommunicator struct {
	Name       string
	Rank, Size int
	InFlight   int
	Err        string
	Degraded   bool
}

func neighbourOf(k *membership.Neighbour, now time.Time) Neighbour {
	n := Neighbour{Node: k.Node, Rack: k.Rack, Silent: -1, Obstacles: k.Obstacles, Events: k.Events,
		InUse: k.Memory.InUse, Limit: k.Memory.Limit}
	if !k.Heard.IsZero() {
		n.Silent = max(now.Sub(k.Heard), 0).Seconds()
	}
	for i := range k.Rails {
		r := &k.Rails[i]
		n.Rails = append(n.Rails, NeighbourRail{r.Name, r.Up, r.BytesSent, r.BytesReceived, r.Resent})
	}
	for i := range k.Communicators {
		c := &k.Communicators[i]
		n.Communicators = append(n.Communicators, NeighbourCommunicator{c.Name, c.Rank, c.Size, c.InFlight, c.Err, c.Degraded})
	}
	for i := range k.Counts {
		for _, c := range k.Counts[i].Counts {
			n.Operations += c.Took.Count
			n.Failed += c.Failed
		}
	}
	if k.Aggregates != nil {
		n.Groups = len(k.Aggregates.Groups)
	}
	return n
}
