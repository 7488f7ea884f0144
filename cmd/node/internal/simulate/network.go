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

// processor says from when on a rank's processor is free; of shared ones, the first that is.
func (n *network) processor(rank int) *time.Duration {
	if n.cluster.Shared == 0 {
		return &n.cpus[rank]
	}
	free := &n.cpus[0]
	for k := range n.cpus {
		if n.cpus[k] < *free {
			free = &n.cpus[k]
		}
	}
	return free
}

// nodeProcessor is that of a tree's node.
func (n *network) nodeProcessor(rail, node int) *time.Duration {
	if n.cluster.Shared > 0 && !n.cluster.Rails[rail].Tree.Ports {
		return n.processor(0) // it is a process of the same machine
	}
	return &n.nodes[rail][node]
}

// work has a processor do something, and returns when it is done.
func work(free *time.Duration, now, takes time.Duration) time.Duration {
	*free = max(*free, now) + takes
	return *free
}

// leaving is from when on a frame's bytes can leave, and when the last of them can: they are on their
// way while a processor copies the others.
type leaving struct{ first, last time.Duration }

// send is what it takes to send a frame.
func (p *Processor) send(free *time.Duration, now time.Duration, bytes int) leaving {
	copying := over(bytes, p.Copy)
	done := work(free, now, p.Frame+copying)
	return leaving{done - copying, done}
}

// receive is what it takes to receive a frame that is in now, after it was coming for so long. An idle
// processor has copied meanwhile what was there.
func (p *Processor) receive(free *time.Duration, now time.Duration, bytes int, coming time.Duration) time.Duration {
	copying := over(bytes, p.Copy)
	return work(free, now-min(copying, coming), p.Frame+copying)
}

// onWire is the time that a payload takes at a rate.
func onWire(bytes int, rate float64) time.Duration { return over(bytes+wire.Size, rate) }

func over(bytes int, rate float64) time.Duration {
	return time.Duration(float64(bytes) / rate * float64(time.Second))
}

// leave sends bytes over a link that others may be leaving by, or over a port of their own: nil.
// Behind a token bucket out says until when what was sent takes at the rate: the bucket lets it
// through so much earlier.
func leave(out *time.Duration, l leaving, takes, burst time.Duration) leaving {
	if out == nil {
		out = new(time.Duration)
	}
	begins := max(*out-burst, l.first)
	*out = max(*out, l.first) + takes
	return leaving{begins, max(*out-burst, begins, l.last)}
}

// enter receives bytes over a link or a port, of which the first one comes now and the last one at a
// time that is given. Whoever comes first goes first. It returns when all is in, and how long that
// was coming.
func enter(in *time.Duration, now, last, takes, burst time.Duration) (there, coming time.Duration) {
	if in == nil {
		in = new(time.Duration)
	}
	comes := max(*in-burst, now)
	*in = max(*in, now) + takes
	there = max(*in-burst, last)
	return there, there - comes
}

// way is how long a bit takes from one host to another one.
func (n *network) way(rail, a, b int) time.Duration {
	return n.cluster.Rails[rail].Startup + time.Duration(n.cluster.switches(a, b))*n.cluster.Switch
}

// within sends a frame from one rank of a host to another one, whose memory takes what comes.
func (n *network) within(host, bytes int, leaves leaving) (there, coming time.Duration) {
	l := &n.cluster.Local
	leaves = leave(&n.local[host], leaves, onWire(bytes, l.Rate), 0)
	return enter(nil, leaves.first+l.Startup, leaves.last+l.Startup, onWire(bytes, l.Rate), 0)
}

// back is how long an acknowledgement takes.
func (n *network) back(rail, from, to int) time.Duration {
	a, b := n.cluster.host(from), n.cluster.host(to)
	if a == b {
		return n.cluster.Local.Startup
	}
	return n.way(rail, a, b)
}
