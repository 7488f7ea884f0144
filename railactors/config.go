package railactors

import (
	"log/slog"
	"time"

	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/secure/keys"
)

// Config is what a Fabric needs to know. Zero values of the limits mean the defaults
// that their comments name. The root package validates what its users give.
type Config struct {
	Node        string // this node's id
	Incarnation uint64 // of this process; a later one has a higher number
	Cluster     string // only nodes of the same cluster are talked to
	Rails       []RailConfig
	// Memory, if set, connects this node to others of its host over one more rail, MemoryRail. Between two
	// nodes that it connects it carries everything, and the other rails what is left when it fails.
	Memory transport.Transport
	// Keys, if set, seal all rails but the plain ones: the node at the other end of a connection is who
	// its certificate says. MemoryRail needs none: it connects processes of one user.
	Keys *keys.Source
	// Integrity has a checksum of what arrives on rails that are not sealed, which is not read where that
	// is wrong. MemoryRail has none.
	Integrity bool

	RankTimeout   time.Duration // a peer unheard on all rails for this long is lost; 2 s
	RailTimeout   time.Duration // a rail on which the peer's host confirms nothing for this long is left; 200 ms
	AckBytes      int           // received bytes after which a lone acknowledgement goes out; 512 KiB
	AckDelay      time.Duration // time after which one goes out; 10 ms
	InFlightBytes int           // unacknowledged bytes in flight per pair; 2 MiB
	CreditBytes   int           // given to each peer for eager data; 1.25 MiB
	Linger        time.Duration // how long a peer that nobody uses stays connected; 5 s
	Attempts      Attempts      // shared by the nodes of a process; nil: this node has its own
	Logger        *slog.Logger  // nil: slog.Default()

	// Watch hears what becomes of pairs. Nil: nobody does. It is called on the goroutines that move
	// frames, without a lock, and must not block.
	Watch func(PairEvent)
	// Knocked hears that another process of the host may have shown something (Peer.Page) for which this
	// one sleeps. One goroutine calls it. Nil: nothing is shown.
	Knocked func()
}

// PairEventKind says what happened to a pair.
type PairEventKind uint8

// The kinds of PairEvent.
const (
	PairUp    PairEventKind = iota // it has a connection
	PairDown                       // it has lost it: Err, Unacknowledged, Waiting
	PairMoved                      // what it had on its way goes over other rails: Unacknowledged, Waiting, Resent, To
)

// PairEvent is something that happened to the pair with a node on a rail. Bytes are those of data frames
// with their headers.
type PairEvent struct {
	Kind           PairEventKind
	Node, Rail     string
	Err            error
	Unacknowledged int64            // sent, and not acknowledged when the connection was lost
	Waiting        int64            // not sent yet
	Resent         int64            // of the unacknowledged ones: the other node lacked them
	To             map[string]int64 // by rail; less than Waiting and Resent if no rail was up
}

// RailConfig is one rail of this node. Rails of equal names on different nodes belong together.
type RailConfig struct {
	Name      string
	Transport transport.Transport
	Device    string // what Transport.Open selects by
	CPUs      []int  // cores that the readers and writers of its pairs run on; none: any
	Plain     bool   // it isn't sealed, whatever Config.Keys is
}

// MemoryRail is the name of the rail between nodes of one host.
const MemoryRail = "shm"

// Limits that nobody needs to set.
const (
	maxNameBytes   = 128
	maxHeld        = 4096                        // connections that wait for Connect to be called here
	maxHeldPerHost = 512                         // of them, from one address
	maxHelloBytes  = 4 << 10                     //
	maxReasonBytes = 1 << 10                     // of a refusal
	inlineBytes    = 32<<10 + wire.Size          // a frame up to this is written by whoever sends it
	memoryInline   = wire.MaxPayload + wire.Size // likewise in memory: waking the writer takes longer than the copy
	maxBatchFrames = 16                          // frames that one vectored write carries
	revokeGrace    = 150 * time.Millisecond      // for a write in progress to end when its memory is revoked
	minBackoff     = 10 * time.Millisecond       // between attempts to connect
	maxBackoff     = time.Second
	leastConnect   = 500 * time.Millisecond // that an attempt waits for the other host; longer with a long rank timeout
	steady         = 5 * time.Second        // that a connection lives if its rail doesn't flap
)

// withDefaults fills in the limits.
func (c Config) withDefaults() Config {
	setDefault(&c.RankTimeout, 2*time.Second)
	setDefault(&c.RailTimeout, 200*time.Millisecond)
	setDefault(&c.AckBytes, 512<<10)
	setDefault(&c.AckDelay, 10*time.Millisecond)
	setDefault(&c.InFlightBytes, 2<<20)
	setDefault(&c.CreditBytes, 5<<18)
	setDefault(&c.Linger, 5*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Attempts == nil {
		c.Attempts = NewAttempts()
	}
	return c
}

func setDefault[T int | time.Duration](v *T, to T) {
	if *v == 0 {
		*v = to
	}
}
