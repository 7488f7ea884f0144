package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/memberlist"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/view"
	"github.com/polyrail/polyrail/messages/wire"
)

// ProtocolVersion is what this build speaks, over gossip and over the rails. Nodes of other
// versions are refused by name. Rails can't do that: the other one could not read the refusal.
const ProtocolVersion = wire.Version

// Config is a node's part in the cluster. DefaultConfig has everything but
// Node, Incarnation and Bind.
type Config struct {
	Node        string // unique among the living nodes of the cluster
	Incarnation uint64 // of this process; a process that starts later has a higher one
	Path        string // Member.Path of this node
	Cluster     string // packets of clusters with another name are refused
	Bind        string // ADDR:PORT to listen on, TCP and UDP; port 0 takes a free one, an empty ADDR all interfaces
	// Advertise is ADDR:PORT for the others to use. Empty: what is bound. Of all interfaces that is
	// the one that leads to the first seed, or else the first of Reached, or else a private one.
	Advertise string
	// Reached are addresses, ADDR:PORT, at which others reach this host. Their ports don't matter.
	Reached []string
	// Join lists seeds, ADDR:PORT. They need not be up yet, and may include this node itself.
	Join []string
	// Store, if set, is where nodes leave their addresses for one another, besides Join.
	Store Store

	// Keys, if set, returns the keys of gossip: the first one seals, all of them open, and what is not
	// sealed is dropped. It is called again and again: what it returns may change. It must return one at
	// least, of 16, 24 or 32 bytes.
	Keys func() ([][]byte, error)
	// Signer, if set, signs the rendezvous messages that go out. Those that come in count when it knows
	// their sender by their signature.
	Signer Signer

	Logger  *slog.Logger // nil: slog.Default()
	Network Network      // nil: real sockets

	// JoinTimeout bounds WaitJoined, while the search for seeds goes on, and how long Start waits
	// for the Store.
	JoinTimeout time.Duration
	// RetryMin to RetryMax are the pauses between attempts to reach seeds before one was reached.
	RetryMin, RetryMax time.Duration
	// Rejoin is the pause between attempts to reach missing seeds and lost members afterwards.
	Rejoin time.Duration
	// StreamTimeout bounds connecting, reading and writing of one message.
	StreamTimeout time.Duration
	// EntryTTL is how long an entry stays in the Store unless it is renewed; the same on all nodes.
	EntryTTL time.Duration
	// StoreTimeout bounds one call of the Store.
	StoreTimeout time.Duration
	// LeaveTimeout bounds Leave where its context has no deadline.
	LeaveTimeout time.Duration

	// Failure detection: a member is probed every ProbeInterval, suspected when neither it nor those who
	// are asked to try answer, and given up after SuspicionMult · log(nodes) · ProbeInterval or more.
	ProbeInterval, ProbeTimeout time.Duration
	SuspicionMult               int
	// GossipInterval is the pause between packets of news, PushPullInterval between exchanges of
	// all that is known.
	GossipInterval, PushPullInterval time.Duration
	// RetransmitMult: a node sends each piece of news RetransmitMult · ⌈log10(nodes + 1)⌉ times, to nodes
	// that it draws. Those that nobody draws hear it by the next exchange.
	RetransmitMult int
}

// Network makes the sockets of a node; memnet.Network is one in memory.
type Network interface {
	Listen(bind string) (memberlist.NodeAwareTransport, error)
}

// DefaultConfig suits one data centre: a killed or stopped member is found in about half a second.
func DefaultConfig() Config {
	return Config{
		Cluster:       "polyrail",
		JoinTimeout:   30 * time.Second,
		RetryMin:      100 * time.Millisecond,
		RetryMax:      2 * time.Second,
		Rejoin:        5 * time.Second,
		StreamTimeout: time.Second,
		LeaveTimeout:  2 * time.Second,
		EntryTTL:      15 * time.Second,
		StoreTimeout:  2 * time.Second,

		ProbeInterval: 100 * time.Millisecond, ProbeTimeout: 40 * time.Millisecond, SuspicionMult: 3,
		GossipInterval: 20 * time.Millisecond, PushPullInterval: 2 * time.Second, RetransmitMult: 8,
	}
}

// ManyNodes is the size from which a cluster needs ForNodes.
const ManyNodes = 32

// ForNodes gives failure detection the patience that so many nodes need: memberlist's own values for
// a LAN. Among many nodes some are always late, and each false suspicion is a message of everybody
// to everybody. It can't be found out by itself: memberlist's timers are set when it is made. News
// is spread as quickly as the number of nodes allows.
func (c Config) ForNodes(n int) Config {
	if n < ManyNodes {
		return c
	}
	c.ProbeInterval, c.ProbeTimeout, c.SuspicionMult = time.Second, 500*time.Millisecond, 4
	c.GossipInterval, c.PushPullInterval, c.RetransmitMult = 50*time.Millisecond, 10*time.Second, 4
	c.StreamTimeout = 5 * time.Second
	return c
}

// Validate lists every fault at once; the error matches fault.ErrConfig.
func (c *Config) Validate() error {
	if faults := c.Faults(); len(faults) > 0 {
		return fmt.Errorf("%w: %w", fault.ErrConfig, errors.Join(faults...))
	}
	return nil
}

// Faults are what Validate lists.
func (c *Config) Faults() (faults []error) {
	add := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	add(ValidPath(c.Path), "path %q: names with a slash between any two, at most %d bytes", c.Path, MaxPath)
	add(validNode(c.Node), "node name %q: 1 to %d bytes of printable text without blanks, '#' and '/'", c.Node, view.MaxNode)
	add(c.Incarnation > 0, "incarnation 0")
	add(validCluster(c.Cluster), "cluster name %q: 1 to %d bytes of text", c.Cluster, memberlist.LabelMaxSize)
	if err := checkAddr(c.Bind, true); err != nil {
		add(false, "bind address %q: %w", c.Bind, err)
	}
	if c.Advertise != "" {
		ap, err := netip.ParseAddrPort(c.Advertise)
		add(err == nil && ap.Port() != 0 && !ap.Addr().IsUnspecified(), "advertised address %q: an IP address and a port", c.Advertise)
	}
	for _, seed := range c.Join {
		if err := checkAddr(seed, false); err != nil {
			add(false, "join address %q: %w", seed, err)
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"JoinTimeout", c.JoinTimeout}, {"RetryMin", c.RetryMin}, {"RetryMax", c.RetryMax}, {"Rejoin", c.Rejoin},
		{"StreamTimeout", c.StreamTimeout}, {"LeaveTimeout", c.LeaveTimeout}, {"ProbeInterval", c.ProbeInterval},
		{"EntryTTL", c.EntryTTL}, {"StoreTimeout", c.StoreTimeout},
		{"ProbeTimeout", c.ProbeTimeout}, {"GossipInterval", c.GossipInterval},
		{"PushPullInterval", c.PushPullInterval},
	} {
		add(d.value > 0, "%s is %v, must be positive", d.name, d.value)
	}
	add(c.EntryTTL > 2*c.StoreTimeout, "EntryTTL %v is not above two StoreTimeouts of %v",
		c.EntryTTL, c.StoreTimeout)
	add(c.RetryMin <= c.RetryMax, "RetryMin %v is above RetryMax %v", c.RetryMin, c.RetryMax)
	add(c.ProbeTimeout < c.ProbeInterval, "ProbeTimeout %v is not below ProbeInterval %v", c.ProbeTimeout, c.ProbeInterval)
	add(c.SuspicionMult > 0, "SuspicionMult is %d, must be positive", c.SuspicionMult)
	add(c.RetransmitMult > 0, "RetransmitMult is %d, must be positive", c.RetransmitMult)
	return faults
}

func checkAddr(addr string, listen bool) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil:
		return fmt.Errorf("port %q is not a number below 65536", port)
	case !listen && host == "":
		return errors.New("no host")
	case !listen && n == 0:
		return errors.New("port 0")
	}
	return nil
}

func validCluster(name string) bool {
	return name != "" && len(name) <= memberlist.LabelMaxSize && utf8.ValidString(name)
}

// validNode reports whether a name can be a node's.
func validNode(name string) bool {
	return name != "" && len(name) <= view.MaxNode && utf8.ValidString(name) &&
		strings.IndexFunc(name, func(r rune) bool {
			return r == '#' || r == '/' || unicode.IsSpace(r) || !unicode.IsPrint(r)
		}) < 0
}

// memberlist translates the configuration.
func (c *Config) memberlist() (*memberlist.Config, error) {
	m := memberlist.DefaultLANConfig()
	m.Name = processName(c.Node, c.Incarnation)
	m.Label = c.Cluster
	m.TCPTimeout = c.StreamTimeout
	m.ProbeInterval, m.ProbeTimeout = c.ProbeInterval, c.ProbeTimeout
	m.SuspicionMult, m.SuspicionMaxTimeoutMult = c.SuspicionMult, 3
	m.GossipInterval, m.PushPullInterval = c.GossipInterval, c.PushPullInterval
	m.RetransmitMult = c.RetransmitMult
	m.EnableCompression = false // packets are small; it costs more than it saves
	m.Logger = memberlistLogger(c.Logger)
	var err error
	if m.Keyring, err = c.newKeyring(); err != nil {
		return nil, err
	}
	m.GossipVerifyIncoming, m.GossipVerifyOutgoing = true, true
	if c.Network != nil {
		t, err := c.Network.Listen(c.Bind)
		if err != nil {
			return nil, err
		}
		m.Transport = t
	} else {
		tcp, err := net.ResolveTCPAddr("tcp", c.Bind)
		if err != nil {
			return nil, err
		}
		if tcp.IP != nil && !tcp.IP.IsUnspecified() {
			m.BindAddr = tcp.IP.String()
		} else {
			// All interfaces, of both families. Under no other name memberlist looks for one to advertise.
			m.BindAddr, m.AdvertiseAddr = "0.0.0.0", cmp.Or(towards(c.Join), routed(c.Reached))
		}
		m.BindPort = tcp.Port
		m.AdvertisePort = tcp.Port
	}
	if err := c.guard(m); err != nil {
		return nil, err
	}
	if c.Advertise != "" {
		ap := netip.MustParseAddrPort(c.Advertise) // Validate has seen it
		m.AdvertiseAddr, m.AdvertisePort = ap.Addr().String(), int(ap.Port())
	}
	return m, nil
}

// portAttempts is how often a free port is looked for that both protocols can have.
const portAttempts = 10

// guard puts a guard before memberlist.
func (c *Config) guard(m *memberlist.Config) error {
	inner, _ := m.Transport.(memberlist.NodeAwareTransport)
	if inner == nil {
		attempts := 1
		if m.BindPort == 0 {
			attempts = portAttempts
		}
		var s *sockets
		var err error
		for range attempts {
			if s, err = listenSockets(m.BindAddr, m.BindPort, m.Logger); err == nil {
				break
			}
		}
		if err != nil {
			return err
		}
		if m.BindPort == 0 {
			m.BindPort = s.GetAutoBindPort()
			m.AdvertisePort = m.BindPort
		}
		inner = s
	}
	m.Transport, m.SkipInboundLabelCheck = newGuard(inner, m.Label, m.Name, m.Keyring != nil, c.Logger), true
	return nil
}
