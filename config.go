package polyrail

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"

	"github.com/polyrail/polyrail/cluster"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/collective/view"
	"github.com/polyrail/polyrail/railactors/affinity"
	"github.com/polyrail/polyrail/railactors/transport"
)

// Config is everything that a node needs to know. Start from DefaultConfig.
type Config struct {
	Name    string // this node's name in the cluster; unique
	Cluster string // nodes of different clusters ignore each other
	// Nodes is how many nodes the cluster is expected to have; 0: some tens. From 32 on gossip has
	// more patience with nodes that answer late, and finds a failed one in seconds instead of half a
	// second. Communicators notice losses themselves in either case.
	Nodes int
	// Bind is where gossip listens, ADDR:PORT; port 0 takes a free one. Advertise is what the
	// others are told instead, where they differ. A node that listens on 0.0.0.0 tells them its
	// address on the way to the first of Join that is an address, or else its first rail's, or else a
	// private one.
	Bind, Advertise string
	Join            []string // ADDR:PORT of nodes to join; some may be down, one may be this node
	// Rendezvous is a store by which nodes find each other, besides Join or in place of it.
	Rendezvous Rendezvous

	// Rails are this host's networks, 32 at most. Rails of equal names on different nodes belong
	// together: all members of a communicator have the same ones.
	Rails []Rail

	// Aggregate names the rails on which this node aggregates for others: it adds up what they send
	// it, in memory of up to AggregateMemory bytes. It need not be a member of their communicators.
	// Of that one job takes AggregateQuota bytes and AggregateGroups groups at most; 0: what there
	// is. A job is a communicator and those that are made of it.
	Aggregate       []string
	AggregateMemory int64
	AggregateQuota  int64
	AggregateGroups int
	// TreeFragment is what an aggregation node adds up at a time, in bytes: a multiple of 256 from
	// 256 B to 256 KiB. 16 of them are on their way at once. TreeRadix is how many children it has
	// at most, where there are nodes enough; 0: as many as there are. Rank 0's counts.
	TreeFragment, TreeRadix int
	// TreeResults says how results of up to 1 KiB go down a tree. Rank 0's counts.
	TreeResults TreeResults
	// Rack is where this node stands: the names of the switches above it, from the top down, with
	// slashes between ("row1/rack3"). Trees follow the switches at which nodes aggregate. Empty
	// where nothing is known.
	Rack string
	// Trees says which operations go over trees, where there are any. Rank 0's counts.
	Trees TreeMode

	// Host is where this node runs: nodes of equal hosts are on one. Empty: what the system says. Nodes of
	// one host that is told from others by nothing else can be given different ones.
	Host string
	// SharedMemory lets nodes of one host and user exchange data through memory in place of their
	// rails. These take over when that fails. Each direction of two nodes takes SharedMemoryRing
	// bytes, a power of two. It is less where all of them together, at this end, come near
	// SharedMemoryLimit. 0 of either is the default. Memory is not used where a rail has a Transport.
	SharedMemory      bool
	SharedMemoryRing  int
	SharedMemoryLimit int64

	// RankTimeout is how long it takes all to know that a rank is lost. Its runtime has then not
	// answered on any rail for 7/8 of it.
	RankTimeout      time.Duration
	RailTimeout      time.Duration // a rail on which the other host confirms nothing for this long is left while another one lives
	OperationTimeout time.Duration // an operation fails after this; 0: it may take as long as its ranks live

	// Balance says where the rails' shares come from. All nodes must have the same.
	Balance BalanceMode
	// PinFrames keeps each frame on the rail that its share names, while that is up. Without it a
	// sender gives a frame to another rail of the operation where that one delivers it clearly
	// sooner, as acknowledgements tell: weights that are wrong are then not kept to the byte.
	PinFrames bool
	// Order says whether the order of sums may follow the network. All nodes must have the same.
	Order OrderMode
	// Probe has each rail measured by itself when a communicator forms, for at most some 100 ms, so
	// that the first operations are divided well. All nodes must have the same.
	Probe bool

	// TuningFile keeps what is measured for the next process: what was learned about these rails
	// and as many ranks is in force when a communicator forms, and nothing is probed. It is written
	// when a communicator closes, and once a minute at most. Rank 0's counts; the others need none.
	// "": nothing is kept.
	TuningFile string

	// EagerBytes is the largest operation that is sent before the receiver has called it. Where all
	// ranks share memory, it is four times as large. All nodes must have the same.
	EagerBytes int
	// SplitBytes is the smallest operation that is divided over several rails. All nodes must have the
	// same.
	SplitBytes int
	// MaxInFlight is the number of operations of one communicator at which Start blocks.
	MaxInFlight int
	// BcubeBase is the largest group of the Bcube algorithm. All nodes must have the same.
	BcubeBase int
	// Algorithms overrides the choice of an algorithm by size; ranges ascend. All nodes must have the
	// same.
	Algorithms []AlgorithmRange
	// MemoryLimit bounds the runtime's own memory for partial sums and copies, in bytes.
	MemoryLimit int64
	// WaitSpin is how long after the last frame, at most, a caller polls before it sleeps, yielding
	// the processor. It does so for operations that go without a grant. Where that doesn't help it is
	// tried ever more rarely.
	WaitSpin time.Duration
	// Congestion is the congestion control of the TCP rails ("cubic"); empty: the system's. See
	// docs/performance.md.
	Congestion string

	// TLS seals the rails, and GossipKeys, a file with a key a line in base64, gossip: the first key
	// seals, all of them open. Both are read again while the node runs. Where there are any keys, only
	// the rails, and "gossip", that Plaintext names go without.
	TLS        TLS
	GossipKeys string
	Plaintext  []string
	// Integrity has rails without keys check what arrives: each record of up to 64 KiB has a CRC32C, and a
	// wrong one costs the connection, not the data. It is for networks that change bytes by accident, and
	// to be the same on all nodes. It does not concern memory within a host.
	Integrity bool

	// HTTP says where the node shows what it does.
	HTTP HTTP
	// Spans, if set, gets an OpenTelemetry span for each operation, a child of the one in the call's
	// context (docs/operations.md). It must not block: what exports spans does so in batches.
	Spans trace.TracerProvider

	Logger *slog.Logger // nil: slog.Default()
}

// BalanceMode says where the shares of a divided operation come from.
type BalanceMode int

// The modes.
const (
	// BalanceStatic: the rails' weights decide, equal ones where none are set.
	BalanceStatic BalanceMode = iota
	// BalanceMeasured: the rails' times decide, and what changes is followed. A weight on any rail
	// turns it off. It is the default.
	BalanceMeasured
)

func (m BalanceMode) String() string {
	if m == BalanceMeasured {
		return "measured"
	}
	return "static"
}

// ParseBalanceMode reads a mode by its name: measured or static.
func ParseBalanceMode(s string) (BalanceMode, error) {
	return parseMode("balance mode", s, BalanceMeasured, BalanceStatic)
}

// parseMode finds the one of two modes that has that name.
func parseMode[T fmt.Stringer](what, s string, a, b T) (T, error) {
	switch s {
	case a.String():
		return a, nil
	case b.String():
		return b, nil
	}
	var none T
	return none, fmt.Errorf("%w: %s %q (there are %v and %v)", fault.ErrConfig, what, s, a, b)
}

// OrderMode says what the order of a sum depends on, and so the last bits of inexact ones. Under
// both all ranks get the same bits.
type OrderMode int

// The modes.
const (
	// OrderFixed: on the number of elements and of ranks, the root, and which ranks share a host. Rails,
	// measurements and failures change no bit.
	OrderFixed OrderMode = iota
	// OrderFree: on the algorithm too, which is the one of several that is measured to be the
	// fastest for a size. It may change between two operations, on all ranks alike. It needs
	// BalanceMeasured. Sizes of Config.Algorithms, and calls with WithAlgorithm, keep theirs.
	OrderFree
)

func (m OrderMode) String() string {
	if m == OrderFree {
		return "free"
	}
	return "fixed"
}

// ParseOrderMode reads a mode by its name: fixed or free.
func ParseOrderMode(s string) (OrderMode, error) {
	return parseMode("order", s, OrderFixed, OrderFree)
}

// Rail is one network of this host.
type Rail struct {
	Name string
	// Protocol is "tcp", or "sharp": the same, but that a communicator has aggregation trees made
	// over the rail where some node offers to aggregate on it (Config.Aggregate). Rank 0's counts.
	Protocol string
	// Device is an interface name, an address, or a CIDR that one address of this host is in.
	// Sockets are bound to it in both directions. "auto", as the only rail's device, stands for
	// every usable interface that is not loopback, each a rail named like its interface.
	Device string
	// Weight is the share of a divided operation, against the other rails'. 0 means 1, and leaves
	// the shares to measurement (Config.Balance). All nodes must have the same.
	Weight uint32
	// CPUs are the cores that the rail's reader and writer threads are bound to, among those that
	// the process may use; none: any. Small frames are written by whoever sends them, wherever that
	// runs. Binding pays where cores are plenty and rails compete for them; a bound thread is
	// slower to wake.
	CPUs []int
	// Transport, if set, is used in place of the protocol's own.
	Transport transport.Transport
}

// AlgorithmRange gives operations up to a size an algorithm.
type AlgorithmRange struct {
	MaxBytes  int64 // 0: all larger ones
	Algorithm Algorithm
}

// Table says how operations of each size class are divided; see Communicator.SetTable.
type Table = table.Table

// TableEntry is one size class of a Table.
type TableEntry = table.Entry

// DefaultConfig returns the defaults: a node on loopback, named after its host, without rails.
func DefaultConfig() Config {
	host, err := os.Hostname()
	if err != nil {
		host = "node"
	}
	return Config{
		Name: host, Cluster: "polyrail", Bind: "127.0.0.1:0",
		RankTimeout: 2 * time.Second, RailTimeout: 200 * time.Millisecond,
		SharedMemory: true, SharedMemoryRing: 1 << 20, SharedMemoryLimit: 64 << 20,
		Balance: BalanceMeasured, Probe: true,
		EagerBytes: 256 << 10, SplitBytes: 8 << 10,
		MaxInFlight: 16, BcubeBase: 2,
		MemoryLimit: 1 << 30, AggregateMemory: 256 << 20, TreeFragment: 64 << 10,
		WaitSpin: 400 * time.Microsecond,
	}
}

// ParseRail reads a rail as the command line writes it:
// NAME=PROTOCOL:DEVICE[,weight=W][,cpus=LIST], where LIST is like 0-3+8.
func ParseRail(s string) (Rail, error) {
	bad := func(why string) (Rail, error) {
		return Rail{}, fmt.Errorf("%w: rail %q: %s (want NAME=tcp:DEVICE or NAME=sharp:DEVICE, and then [,weight=W][,cpus=0-3+8])", fault.ErrConfig, s, why)
	}
	name, rest, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return bad("no name")
	}
	spec, options, hasOptions := strings.Cut(rest, ",")
	protocol, device, ok := strings.Cut(spec, ":")
	if !ok || protocol == "" || device == "" {
		return bad("no protocol or no device")
	}
	r := Rail{Name: name, Protocol: protocol, Device: device}
	if !hasOptions {
		return r, nil
	}
	for option := range strings.SplitSeq(options, ",") {
		key, value, _ := strings.Cut(option, "=")
		switch key {
		case "weight":
			w, err := strconv.ParseUint(value, 10, 24)
			if err != nil || w == 0 {
				return bad(fmt.Sprintf("weight %q is not a number from 1 to %d", value, table.MaxWeight-1))
			}
			r.Weight = uint32(w)
		case "cpus":
			cores, err := affinity.Parse(value)
			if err != nil {
				return bad(err.Error())
			}
			r.CPUs = cores
		default:
			return bad(fmt.Sprintf("unknown option %q", option))
		}
	}
	return r, nil
}

// ParseCPUs reads a list of cores for Rail.CPUs: "0-3,8" or "0-3+8".
func ParseCPUs(s string) ([]int, error) {
	return parsed(affinity.Parse(s))
}

// FormatCPUs writes cores as ParseCPUs reads them: "0-3+8".
func FormatCPUs(cores []int) string { return affinity.Format(cores) }

// Validate lists every fault at once, or returns nil.
func (c Config) Validate() error {
	var faults []error
	add := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	gossip := cluster.DefaultConfig() // Start is to find nothing else when rails are open
	gossip.Node, gossip.Incarnation, gossip.Cluster = c.Name, 1, "any"
	gossip.Bind, gossip.Advertise, gossip.Join = c.Bind, c.Advertise, c.Join
	faults = append(faults, gossip.Faults()...)
	if c.Cluster == "" || len(c.Cluster) > 128 || !utf8.ValidString(c.Cluster) {
		add("cluster %q: needs 1 to 128 bytes of text", c.Cluster)
	}
	faults = append(faults, c.Rendezvous.faults()...)
	if len(c.Rails) == 0 {
		add("no rails: name at least one network")
	}
	if len(c.Rails) > view.MaxRails {
		add("%d rails: a node has at most %d", len(c.Rails), view.MaxRails)
	}
	faults = append(faults, c.validateRails()...)
	if c.Nodes < 0 || c.Nodes > view.MaxMembers {
		add("%d nodes expected: can be 0 to %d", c.Nodes, view.MaxMembers)
	}
	if c.RankTimeout < 20*time.Millisecond {
		add("rank timeout %v: needs at least 20ms", c.RankTimeout)
	}
	if c.RailTimeout < 10*time.Millisecond {
		add("rail timeout %v: needs at least 10ms", c.RailTimeout)
	}
	if c.OperationTimeout < 0 || c.WaitSpin < 0 {
		add("operation timeout %v, wait spin %v: must not be negative", c.OperationTimeout, c.WaitSpin)
	}
	if c.Balance != BalanceMeasured && c.Balance != BalanceStatic {
		add("balance mode %d: must be BalanceMeasured or BalanceStatic", int(c.Balance))
	}
	switch {
	case c.Order != OrderFixed && c.Order != OrderFree:
		add("order %d: must be OrderFixed or OrderFree", int(c.Order))
	case c.Order == OrderFree && !c.measured():
		add("order free: algorithms are chosen by measurement, which needs the measured balance mode and no rail with a weight")
	}
	if c.EagerBytes < 0 || c.EagerBytes > maxEagerBytes {
		add("eager bytes %d: must be 0 to %d", c.EagerBytes, maxEagerBytes)
	}
	if c.SplitBytes < 0 {
		add("split bytes %d: must not be negative", c.SplitBytes)
	}
	if c.MaxInFlight < 1 || c.MaxInFlight > 1024 {
		add("max in flight %d: must be 1 to 1024", c.MaxInFlight)
	}
	if c.BcubeBase < 2 {
		add("bcube base %d: must be at least 2", c.BcubeBase)
	}
	if c.MemoryLimit < 1<<20 {
		add("memory limit %d: needs at least 1 MiB", c.MemoryLimit)
	}
	faults = append(faults, c.validateTrees()...)
	faults = append(faults, c.validateHosts()...)
	faults = append(faults, c.HTTP.faults(c.TLS)...)
	faults = append(faults, c.validateKeys()...)
	if _, err := c.table([]string{"any"}); err != nil {
		add("%w", err)
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", fault.ErrConfig, errors.Join(faults...))
}

// maxEagerBytes bounds an eager operation: a peer's credit must hold several.
const maxEagerBytes = 256 << 10

func (c Config) validateRails() (faults []error) {
	names := make(map[string]bool)
	for _, r := range c.Rails {
		switch {
		case r.Device == "auto" && len(c.Rails) > 1:
			faults = append(faults, fmt.Errorf("rail %q: auto takes every interface, and must be the only rail", r.Name))
		case r.Name == "" || len(r.Name) > view.MaxRail || !utf8.ValidString(r.Name):
			faults = append(faults, fmt.Errorf("rail %q: a name needs 1 to %d bytes of text", r.Name, view.MaxRail))
		case names[r.Name]:
			faults = append(faults, fmt.Errorf("rail %q: named twice", r.Name))
		case r.Transport == nil && r.Protocol != "tcp" && r.Protocol != protocolSharp:
			faults = append(faults, fmt.Errorf("rail %q: unknown protocol %q (there are tcp and sharp)", r.Name, r.Protocol))
		case r.Device == "":
			faults = append(faults, fmt.Errorf("rail %q: no device", r.Name))
		}
		if r.Weight > table.MaxWeight {
			faults = append(faults, fmt.Errorf("rail %q: weight %d is above %d", r.Name, r.Weight, table.MaxWeight))
		}
		if err := affinity.Check(r.CPUs); err != nil {
			faults = append(faults, fmt.Errorf("rail %q: %w", r.Name, err))
		}
		names[r.Name] = true
	}
	return faults
}
