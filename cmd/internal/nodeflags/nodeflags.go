// Package nodeflags defines the flags of a node that joins a cluster. The commands and the C
// library take the same ones.
//
// It owns their names, forms and help. Where their values come from is package settings'.
package nodeflags

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/internal/settings"
)

// Register defines the flags of a node that joins a cluster; they fill in cfg,
// whose values are the defaults.
func Register(fs *pflag.FlagSet, cfg *polyrail.Config) {
	fs.StringVar(&cfg.Name, "name", cfg.Name, "`NAME` of this node, unique in the cluster")
	RegisterSeeds(fs, cfg)
	settings.List(fs, &cfg.Rails, "rail", "NAME=tcp:DEVICE[,...]", " \t\n", polyrail.ParseRail, formatRail,
		"a rail: DEVICE is an interface, an address, a CIDR or auto; once for each rail. weight=W is its "+
			"share, cpus=0-3+8 its cores. Rails of equal names on different nodes belong together. With "+
			"sharp in place of tcp its sums are made by aggregation nodes where there are any")
	settings.List(fs, &cfg.Aggregate, "aggregate", "NAME,...", ",", settings.ParseAsIs, settings.AsIs,
		"rails on which this node is an aggregation node: it adds up for others what they send it")
	settings.Var(fs, &cfg.AggregateMemory, "aggregate-memory", "SIZE", parseLimit, formatLimit,
		"memory for what it adds up")
	settings.Var(fs, &cfg.AggregateQuota, "aggregate-quota", "SIZE", parseLimit, formatLimit,
		"memory of that for one job: a communicator and those made of it (0: all)")
	fs.IntVar(&cfg.AggregateGroups, "aggregate-groups", cfg.AggregateGroups,
		"`GROUPS` that one job may have here (0: as many as there are)")
	settings.SizeVar(fs, &cfg.TreeFragment, "tree-fragment",
		"what an aggregation node adds up at a time, 256 B to 256 KiB; rank 0's counts")
	settings.Var(fs, &cfg.TreeResults, "tree-results", "WAY", polyrail.ParseTreeResults, polyrail.TreeResults.String,
		"how small results get from an aggregation node to ranks: unicast, multicast (UDP on the rail's "+
			"device, what is lost is asked for) or both; rank 0's counts")
	fs.IntVar(&cfg.TreeRadix, "tree-radix", cfg.TreeRadix,
		"`CHILDREN` that an aggregation node has at most, where there are nodes enough for several "+
			"levels (0: any number); rank 0's counts")
	settings.Var(fs, &cfg.Trees, "trees", "MODE", polyrail.ParseTreeMode, polyrail.TreeMode.String,
		"what goes over aggregation trees: measured (large sums, and small ones and barriers where that "+
			"is faster), always or never; rank 0's counts")
	fs.StringVar(&cfg.HTTP.Addr, "http", cfg.HTTP.Addr,
		"`ADDR:PORT` where the node shows itself: a page, metrics, health and profiles")
	fs.StringVar(&cfg.HTTP.Token, "http-token", cfg.HTTP.Token,
		"`TOKEN` of 16 bytes or more that callers of --http must know; needed where others than this host "+
			"reach it. Better in the environment or the file than in the command line, which others see")
	settings.Var(fs, &cfg.HTTP.Sealed, "http-tls", "on|off", settings.ParseSwitch, settings.FormatSwitch,
		"--http speaks TLS with --tls-cert: who has a certificate of the cluster needs no token")
	fs.StringVar(&cfg.Rack, "rack", cfg.Rack,
		"`PATH` to where this node stands: the switches above it, as row1/rack3; trees follow them")
	registerHost(fs, cfg)
	RegisterKeys(fs, cfg)
	registerRuntime(fs, cfg)
}

// RegisterKeys defines who the node is to others, and what it believes.
func RegisterKeys(fs *pflag.FlagSet, cfg *polyrail.Config) {
	fs.StringVar(&cfg.TLS.Cert, "tls-cert", cfg.TLS.Cert,
		"`FILE` with this node's certificate, of polyrail://CLUSTER/NODE: rails are sealed, and only nodes with keys are "+
			"talked to. node keys makes such files; they are read again for each connection")
	fs.StringVar(&cfg.TLS.Key, "tls-key", cfg.TLS.Key, "`FILE` with the private key of --tls-cert")
	fs.StringVar(&cfg.TLS.CA, "tls-ca", cfg.TLS.CA, "`FILE` with the authorities whose certificates are believed")
	fs.StringVar(&cfg.GossipKeys, "gossip-key", cfg.GossipKeys,
		"`FILE` with the keys of gossip, one a line in base64: the first seals, all open")
	settings.List(fs, &cfg.Plaintext, "plaintext", "NAME,...", ",", settings.ParseAsIs, settings.AsIs,
		"rails, and gossip, that go in plain text although there are keys; on all nodes alike")
	settings.Var(fs, &cfg.Integrity, "integrity", "on|off", settings.ParseSwitch, settings.FormatSwitch,
		"rails without keys check what arrives by a CRC32C, against accidents; on all nodes alike")
}

// registerHost defines where the node runs, and how it deals with others there.
func registerHost(fs *pflag.FlagSet, cfg *polyrail.Config) {
	fs.StringVar(&cfg.Host, "host", cfg.Host,
		"`NAME` of this node's host; nodes of equal ones share it (by default, what the system says)")
	settings.Var(fs, &cfg.SharedMemory, "shm", "on|off", settings.ParseSwitch, settings.FormatSwitch,
		"nodes of one host exchange data through memory; the rails take over when that fails")
	settings.SizeVar(fs, &cfg.SharedMemoryRing, "shm-ring",
		"memory of one direction between two nodes of a host, a power of two")
	settings.Var(fs, &cfg.SharedMemoryLimit, "shm-limit", "SIZE", parseLimit, formatLimit,
		"memory of all of them at this end; near it they get smaller (0: as by default; --shm=off uses none)")
}

// RegisterSeeds defines how a node finds the cluster, and is found.
func RegisterSeeds(fs *pflag.FlagSet, cfg *polyrail.Config) {
	fs.StringVar(&cfg.Bind, "bind", cfg.Bind, "`ADDR:PORT` that gossip listens on (port 0: any)")
	fs.StringVar(&cfg.Advertise, "advertise", cfg.Advertise, "`ADDR:PORT` where others reach --bind, if that differs")
	settings.List(fs, &cfg.Join, "join", "ADDR:PORT,...", ",", address, settings.AsIs, "members of the cluster to join by; a fixed list, the same on all nodes, will do")
	settings.Var(fs, &cfg.Rendezvous, "rendezvous", "URL", polyrail.ParseRendezvous, polyrail.Rendezvous.URL,
		"where nodes leave their addresses for each other, besides --join: "+
			"redis://[USER:PASSWORD@]HOST:PORT/DB, rediss:// for TLS, or dir:///PATH, a directory "+
			"that all hosts mount. --bind, or --advertise, must name an address that the others reach")
}

// registerRuntime defines the flags that tune operations; they are to be the same on all nodes.
func registerRuntime(fs *pflag.FlagSet, cfg *polyrail.Config) {
	fs.StringVar(&cfg.Cluster, "cluster", cfg.Cluster, "`NAME` of the cluster; nodes of another one are refused")
	fs.IntVar(&cfg.Nodes, "nodes", cfg.Nodes, "how many nodes the cluster is expected to have (0: some tens); from 32 on gossip is more patient")
	fs.DurationVar(&cfg.RankTimeout, "rank-timeout", cfg.RankTimeout, "a rank not heard from for 7/8 of this is lost, and all know within it")
	fs.DurationVar(&cfg.RailTimeout, "rail-timeout", cfg.RailTimeout, "a rail on which another host confirms nothing for this long is left")
	fs.DurationVar(&cfg.OperationTimeout, "operation-timeout", cfg.OperationTimeout, "an operation that takes longer fails (0: no limit)")
	settings.Var(fs, &cfg.Balance, "balance", "MODE", polyrail.ParseBalanceMode, polyrail.BalanceMode.String,
		"shares of the rails: measured, or static by their weights (as soon as one is set; else equal)")
	settings.Var(fs, &cfg.PinFrames, "pin-frames", "on|off", settings.ParseSwitch, settings.FormatSwitch,
		"each frame keeps to the rail that its share names, even where another one delivers it clearly sooner")
	settings.Var(fs, &cfg.Order, "order", "MODE", polyrail.ParseOrderMode, polyrail.OrderMode.String,
		"order of sums: fixed, or free to follow the algorithm that is measured to be fastest")
	settings.Var(fs, &cfg.Probe, "probe", "on|off", settings.ParseSwitch, settings.FormatSwitch, "measure each rail when a communicator forms")
	fs.StringVar(&cfg.TuningFile, "tuning", cfg.TuningFile, "`FILE` that keeps what the balancer learns; rank 0's counts, the others need none")
	settings.SizeVar(fs, &cfg.EagerBytes, "eager-bytes", "operations up to this size are sent before the receiver asks")
	settings.SizeVar(fs, &cfg.SplitBytes, "split-bytes", "operations below this size use one rail")
	fs.IntVar(&cfg.MaxInFlight, "max-in-flight", cfg.MaxInFlight, "operations of one communicator at once")
	fs.IntVar(&cfg.BcubeBase, "bcube-base", cfg.BcubeBase, "largest group of a step of bcube")
	settings.Var(fs, &cfg.MemoryLimit, "memory-limit", "SIZE", parseLimit, formatLimit, "memory of the runtime for partial sums and copies")
	settings.List(fs, &cfg.Algorithms, "algorithm", "[SIZE=]NAME,...", ",", parseAlgorithmRange, formatAlgorithmRange,
		"algorithm of allreduces up to and including SIZE; a NAME without SIZE comes last and "+
			"is for all other sizes: "+strings.Join(algorithmNames(), ", "))
	fs.StringVar(&cfg.Congestion, "congestion", cfg.Congestion, "congestion control `NAME` of tcp rails, like cubic; by default the system's")
	fs.DurationVar(&cfg.WaitSpin, "wait-spin", cfg.WaitSpin, "how long a waiting goroutine polls before it sleeps")
}

func address(s string) (string, error) {
	if !strings.Contains(s, ":") {
		return "", fmt.Errorf("%q is not ADDR:PORT", s)
	}
	return s, nil
}

func formatRail(r polyrail.Rail) string {
	s := fmt.Sprintf("%s=%s:%s", r.Name, r.Protocol, r.Device)
	if r.Weight != 0 {
		s += fmt.Sprintf(",weight=%d", r.Weight)
	}
	if len(r.CPUs) > 0 {
		s += ",cpus=" + polyrail.FormatCPUs(r.CPUs)
	}
	return s
}

func parseLimit(s string) (int64, error) {
	n, err := settings.ParseSize(s)
	return int64(n), err
}

func formatLimit(n int64) string { return settings.FormatSize(int(n)) }

// parseAlgorithmRange reads SIZE=NAME, or NAME for the range without an end.
func parseAlgorithmRange(s string) (r polyrail.AlgorithmRange, err error) {
	size, name, sized := strings.Cut(s, "=")
	if !sized {
		r.Algorithm, err = polyrail.ParseAlgorithm(s)
		return r, err
	}
	n, err := settings.ParseSize(size)
	if err != nil {
		return r, fmt.Errorf("%q is not [SIZE=]NAME: %w", s, err)
	}
	if n == 0 {
		return r, fmt.Errorf("%q is an empty range of sizes", s)
	}
	r.MaxBytes = int64(n)
	r.Algorithm, err = polyrail.ParseAlgorithm(name)
	return r, err
}

func formatAlgorithmRange(r polyrail.AlgorithmRange) string {
	if r.MaxBytes > 0 {
		return settings.FormatSize(int(r.MaxBytes)) + "=" + r.Algorithm.String()
	}
	return r.Algorithm.String()
}

// algorithmNames are those that allreduces may have.
func algorithmNames() []string {
	names := []string{polyrail.Auto.String()}
	for _, a := range polyrail.Algorithms(polyrail.KindAllReduce) {
		names = append(names, a.String())
	}
	return names
}
