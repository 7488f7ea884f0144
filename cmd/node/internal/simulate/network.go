package simulate

import (
	"time"

	"github.com/polyrail/polyrail/messages/wire"
)

// network is what frames wait for: processors, and both directions of each host's links.
type network struct {
	cluster *Cluster
	cpus    []time.Duration   // by rank, or of the shared processors: free from then on
	out, in [][]time.Duration // by rail and host
	local   []time.Duration   // by host
	nodes   [][]time.Duration // by rail and tree node: its processor
	nodeOut [][]time.Duration
	nodeIn  [][]time.Duration
}

func newNetwork(c *Cluster) *network {
	n := &network{cluster: c, cpus: make([]time.Duration, c.ranks()), local: make([]time.Duration, c.Hosts)}
	if c.Shared > 0 {
		n.cpus = make([]time.Duration, c.Shared)
	}
	for range c.Rails {
		n.out = append(n.out, make([]time.Duration, c.Hosts))
		n.in = append(n.in, make([]time.Duration, c.Hosts))
		n.nodes, n.nodeOut, n.nodeIn = append(n.nodes, nil), append(n.nodeOut, nil), append(n.nodeIn, nil)
	}
	return n
}

// work has a rank's processor do something, and returns when it is done.
func (n *network) work(rank int, now, takes time.Duration) time.Duration {
	i := rank
	if n.cluster.Shared > 0 {
		i = 0
		for k := range n.cpus {
			if n.cpus[k] < n.cpus[i] {
				i = k
			}
		}
	}
	n.cpus[i] = max(n.cpus[i], now) + takes
	return n.cpus[i]
}

// nodeWork is work of a tree's node.
func (n *network) nodeWork(rail, node int, now, takes time.Duration) time.Duration {
	if n.cluster.Shared > 0 && !n.cluster.Rails[rail].Tree.Ports {
		return n.work(0, now, takes) // it is a process of the same machine
	}
	free := &n.nodes[rail][node]
	*free = max(*free, now) + takes
	return *free
}

// wire is the time that a payload takes at a rate.
func onWire(bytes int, rate float64) time.Duration { return over(bytes+wire.Size, rate) }

func over(bytes int, rate float64) time.Duration {
	return time.Duration(float64(bytes) / rate * float64(time.Second))
}

// pass sends bytes over two directions of links, one behind the other: the second one begins to
// receive when the first one's frame has begun to leave. It returns when all is sent, and when all
// is in. Behind a token bucket out and in say until when what was sent takes at the rate: the
// bucket lets it through so much earlier.
func pass(out, in *time.Duration, now, way, takes, burst time.Duration) (sent, there time.Duration) {
	begins := max(*out-burst, now)
	*out = max(*out, now) + takes
	sent = max(*out-burst, begins)
	*in = max(*in, begins+way) + takes
	return sent, max(*in-burst, sent+way)
}

// between sends a frame from one rank to another one.
func (n *network) between(rail, from, to, bytes int, now time.Duration) (sent, there time.Duration) {
	a, b := n.cluster.host(from), n.cluster.host(to)
	if a == b {
		l := &n.cluster.Local
		free := &n.local[a]
		*free = max(*free, now) + onWire(bytes, l.Rate)
		return *free, *free + l.Startup
	}
	l := &n.cluster.Rails[rail].Link
	way := l.Startup + time.Duration(n.cluster.switches(a, b))*n.cluster.Switch
	return pass(&n.out[rail][a], &n.in[rail][b], now, way, onWire(bytes, l.Rate), l.Burst)
}

// back is how long an acknowledgement takes.
func (n *network) back(rail, from, to int) time.Duration {
	a, b := n.cluster.host(from), n.cluster.host(to)
	if a == b {
		return n.cluster.Local.Startup
	}
	return n.cluster.Rails[rail].Startup + time.Duration(n.cluster.switches(a, b))*n.cluster.Switch
}
