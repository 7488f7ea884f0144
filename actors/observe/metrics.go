package observe

import (
	"context"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/actors/membership"
)

// The metrics. docs/metrics.md lists them; a test compares the two.
var (
	nodeInfo = gauge("polyrail_node_info", "What the node is: always 1.", "node", "cluster", "rack")
	ready    = gauge("polyrail_node_ready", "1 if the node can form communicators.")
	expiry   = gauge("polyrail_certificate_expiry_timestamp_seconds", "When the node's certificate ends, since 1970. Without keys there is none.")
	members  = gauge("polyrail_cluster_members", "Living nodes of the cluster as gossip knows them, this one included.")
	lost     = counter("polyrail_gossip_messages_lost_total", "Messages that gossip has lost or refused.", "reason")
	events   = counter("polyrail_events_total", "Events of the node (see Node.Events).", "kind")

	poolLimit   = gauge("polyrail_pool_limit_bytes", "Most memory that the runtime takes for partial sums and copies.")
	poolUsed    = gauge("polyrail_pool_in_use_bytes", "Memory of the pool that is handed out.")
	poolKept    = gauge("polyrail_pool_kept_bytes", "Memory of the pool that is kept for the next use.")
	poolGets    = counter("polyrail_pool_gets_total", "Buffers that were asked of the pool.")
	poolRefused = counter("polyrail_pool_refused_total", "Buffers that the pool had no room for: frames are borrowed, windows narrower.")
	poolMade    = counter("polyrail_pool_allocated_total", "Buffers that were allocated.")
	poolTrimmed = counter("polyrail_pool_released_total", "Buffers that were given back to the system.")

	railInfo     = gauge("polyrail_rail_info", "What the rail is: always 1.", "rail", "protocol", "device", "address")
	railUp       = gauge("polyrail_rail_up", "1 if the rail listens, its link is up, and it is connected to some peer if there are any.", "rail")
	railConns    = gauge("polyrail_rail_connections", "Connections to peers, by whether they are up.", "rail", "state")
	railSent     = counter("polyrail_rail_sent_bytes_total", "Payload sent, once for each time, by the lane that it belongs to.", "rail", "lane")
	railReceived = counter("polyrail_rail_received_bytes_total", "Payload received, by the lane that it belongs to.", "rail", "lane")
	framesSent   = counter("polyrail_rail_sent_frames_total", "Numbered frames sent.", "rail")
	framesGot    = counter("polyrail_rail_received_frames_total", "Numbered frames received.", "rail")
	resent       = counter("polyrail_rail_retransmitted_frames_total", "Frames sent again after a connection was lost.", "rail")
	resentBytes  = counter("polyrail_rail_retransmitted_bytes_total", "Payload of those.", "rail")
	reconnects   = counter("polyrail_rail_reconnections_total", "Connections after a pair's first one.", "rail")
	linkDowns    = counter("polyrail_rail_link_downs_total", "Times that the system said the rail's link is down.", "rail")
	silences     = counter("polyrail_rail_silences_total", "Connections closed because the other host confirmed nothing for the rail timeout.", "rail")
	falseAlarms  = counter("polyrail_rail_false_alarms_total", "Silences after which the rail could be connected again at once.", "rail")
	railQueued   = gauge("polyrail_rail_queued_bytes", "Data that waits for the rail, over all peers.", "rail")
	railInFlight = gauge("polyrail_rail_in_flight_bytes", "Data on its way and not acknowledged, over all peers.", "rail")
	railRate     = gauge("polyrail_rail_rate_bytes_per_second", "Rate of the rail's connections while they were busy, as acknowledgements tell: the mean over peers.", "rail")
	failovers    = histogram("polyrail_rail_failover_duration_seconds", "From giving a connection up until its frames had gone to other rails.", "rail")
	outages      = histogram("polyrail_rail_outage_duration_seconds", "From the loss of a connection until it was made again.", "rail")

	commOpen     = gauge("polyrail_communicators", "Communicators of that name that are open.", "communicator")
	commFormed   = counter("polyrail_communicators_formed_total", "Communicators of that name that were formed.", "communicator")
	commBroken   = counter("polyrail_communicators_broken_total", "Communicators of that name that have broken.", "communicator")
	commTables   = counter("polyrail_tables_changed_total", "Tables that came into force.", "communicator")
	commSize     = gauge("polyrail_communicator_ranks", "Members: the most of those of that name.", "communicator")
	commVersion  = gauge("polyrail_communicator_table_version", "Version of the table in force: the highest of those of that name.", "communicator")
	commInFlight = gauge("polyrail_communicator_in_flight_operations", "Operations and messages that were called here and are not over.", "communicator")
	commDegraded = gauge("polyrail_communicator_degraded", "1 if a rail to a member is down.", "communicator")
	commTrees    = gauge("polyrail_communicator_trees", "Aggregation trees that this rank is a member of.", "communicator")
	share        = gauge("polyrail_communicator_share_ratio", "Part of an operation that the rail is planned to carry, by family of kinds and size class.",
		"communicator", "family", "size", "rail")

	operations = histogram("polyrail_operation_duration_seconds", "From the call of an operation or a message until its end, of those that ended well.",
		"communicator", "kind", "size")
	operationBytes  = counter("polyrail_operation_bytes_total", "Sizes of those operations, summed up.", "communicator", "kind", "size")
	operationFailed = counter("polyrail_operations_failed_total", "Operations and messages that ended with an error.", "communicator", "kind", "size")

	aggregated = gauge("polyrail_aggregation_groups", "Groups that the node aggregates for.")
	aggReserve = gauge("polyrail_aggregation_reserved_bytes", "Memory that these have reserved.")
	aggLimit   = gauge("polyrail_aggregation_limit_bytes", "Most memory that they may have.")
)

// Metric is a family of metrics as it is defined.
type Metric struct {
	Name, Kind, Help string // Kind is gauge, counter or histogram
	Labels           []string
}

// Metrics are all that a node has of its own, in the order of their definition.
func Metrics() (list []Metric) {
	for _, m := range all {
		list = append(list, m.Metric)
	}
	return list
}

type metric struct {
	Metric
	desc      *prometheus.Desc
	valueType prometheus.ValueType
}

// all are the metrics in the order of their definition.
var all []*metric

func define(name, kind, help string, t prometheus.ValueType, labels []string) *metric {
	m := &metric{Metric{name, kind, help, labels}, prometheus.NewDesc(name, help, labels, nil), t}
	all = append(all, m)
	return m
}

func gauge(name, help string, labels ...string) *metric {
	return define(name, "gauge", help, prometheus.GaugeValue, labels)
}

func counter(name, help string, labels ...string) *metric {
	return define(name, "counter", help, prometheus.CounterValue, labels)
}

func histogram(name, help string, labels ...string) *metric {
	return define(name, "histogram", help, prometheus.UntypedValue, labels)
}

// collectorsOf are those of a node's registry.
func collectorsOf(source Source) []prometheus.Collector {
	return []prometheus.Collector{&collector{source}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})}
}

// collector makes metrics of a snapshot.
type collector struct{ source Source }

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range all {
		out <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
	defer cancel()
	s := c.source.Status(ctx, membership.Counted)
	e := emitter{out}
	e.node(&s)
	e.rails(&s)
	e.communicators(&s)
}

// emitter writes metrics.
type emitter struct{ out chan<- prometheus.Metric }

// set writes a value. Texts of other nodes and of configurations need not be UTF-8.
func (e emitter) set(m *metric, value float64, labels ...string) {
	for i := range labels {
		labels[i] = strings.ToValidUTF8(labels[i], "?")
	}
	e.out <- prometheus.MustNewConstMetric(m.desc, m.valueType, value, labels...)
}

func (e emitter) bool(m *metric, value bool, labels ...string) {
	v := 0.0
	if value {
		v = 1
	}
	e.set(m, v, labels...)
}

// spread writes a histogram.
func (e emitter) spread(m *metric, d engine.Distribution, labels ...string) {
	for i := range labels {
		labels[i] = strings.ToValidUTF8(labels[i], "?")
	}
	buckets := make(map[float64]uint64, engine.DurationBuckets)
	sum := uint64(0)
	for i := range engine.DurationBuckets {
		if i < len(d.Buckets) {
			sum += d.Buckets[i]
		}
		buckets[engine.DurationLimit(i).Seconds()] = sum
	}
	e.out <- prometheus.MustNewConstHistogram(m.desc, d.Count, d.Sum.Seconds(), buckets, labels...)
}

func (e emitter) node(s *membership.Status) {
	e.set(nodeInfo, 1, s.Node, s.Cluster, s.Rack)
	e.bool(ready, len(s.Obstacles) == 0)
	if s.Certificate != nil {
		e.set(expiry, float64(s.Certificate.Unix()))
	}
	e.set(members, float64(len(s.Members)))
	e.set(lost, float64(s.Gossip.Undecodable), "undecodable")
	e.set(lost, float64(s.Gossip.Dropped), "dropped")
	e.set(lost, float64(s.Gossip.Stale), "stale")
	e.set(lost, float64(s.Gossip.Unsent), "unsent")
	for kind, n := range s.EventCounts {
		e.set(events, float64(n), kind)
	}
	p := s.Memory
	e.set(poolLimit, float64(p.Limit))
	e.set(poolUsed, float64(p.InUse))
	e.set(poolKept, float64(p.Kept))
	e.set(poolGets, float64(p.Gets))
	e.set(poolRefused, float64(p.Refused))
	e.set(poolMade, float64(p.Made))
	e.set(poolTrimmed, float64(p.Trimmed))
	if a := s.Aggregates; a != nil {
		reserved := int64(0)
		for _, g := range a.Groups {
			reserved += g.ReservedBytes
		}
		e.set(aggregated, float64(len(a.Groups)))
		e.set(aggReserve, float64(reserved))
		e.set(aggLimit, float64(a.MemoryLimit))
	}
}

func (e emitter) rails(s *membership.Status) {
	for i := range s.Rails {
		r := &s.Rails[i]
		e.set(railInfo, 1, r.Name, r.Protocol, r.Chosen, r.Addr)
		e.bool(railUp, r.Up, r.Name)
		for _, l := range r.Lanes {
			e.set(railSent, float64(l.BytesSent), r.Name, l.Lane)
			e.set(railReceived, float64(l.BytesReceived), r.Name, l.Lane)
		}
		e.set(framesSent, float64(r.FramesSent), r.Name)
		e.set(framesGot, float64(r.FramesReceived), r.Name)
		e.set(resent, float64(r.Resent), r.Name)
		e.set(resentBytes, float64(r.ResentBytes), r.Name)
		e.set(reconnects, float64(r.Reconnects), r.Name)
		e.set(linkDowns, float64(r.LinkDowns), r.Name)
		e.set(silences, float64(r.Silences), r.Name)
		e.set(falseAlarms, float64(r.FalseAlarms), r.Name)
		e.pairs(s, r.Name)
	}
	for i := range s.Failovers {
		f := &s.Failovers[i]
		e.spread(failovers, f.Failovers, f.Rail)
		e.spread(outages, f.Outages, f.Rail)
	}
}

// pairs sums a rail's connections up.
func (e emitter) pairs(s *membership.Status, rail string) {
	var up, down, queued, inFlight, known, rate float64
	for i := range s.Pairs {
		p := &s.Pairs[i]
		if p.Rail != rail {
			continue
		}
		if p.Up {
			up++
		} else {
			down++
		}
		queued += float64(p.Queued)
		inFlight += float64(p.InFlight)
		if p.Rate > 0 {
			rate += p.Rate
			known++
		}
	}
	e.set(railConns, up, rail, "up")
	e.set(railConns, down, rail, "down")
	e.set(railQueued, queued, rail)
	e.set(railInFlight, inFlight, rail)
	if known > 0 {
		e.set(railRate, rate/known, rail)
	}
}
