package cluster

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"
)

// guard is what stands between the network and memberlist where gossip has no keys. memberlist
// believes whatever it hears: one packet says that a node is dead, or raises its incarnation to the
// last number there is, after which nobody believes the node itself. What guard lets through does
// no more than a member may do: to suspect others, who then show that they live.
//
//   - "dead" is taken for "suspect", as memberlist itself takes it in an exchange of states.
//   - Incarnations may not jump (levels).
//   - Compressed messages are refused: this cluster sends none, and they cost much to unpack.
//   - Lengths are bounded, and so are the streams that are open.
type guard struct {
	memberlist.NodeAwareTransport
	label   string
	sealed  bool // with keys: memberlist knows what is authentic, and guard looks at lengths alone
	log     *slog.Logger
	levels  levels
	packets chan *memberlist.Packet
	streams chan net.Conn
	inbound streams
	done    chan struct{}
	stop    sync.Once
	running sync.WaitGroup
	refused atomic.Uint64

	strangers strangers
}

func newGuard(inner memberlist.NodeAwareTransport, label, self string, sealed bool, log *slog.Logger) *guard {
	g := &guard{NodeAwareTransport: inner, label: label, sealed: sealed, log: log,
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn), done: make(chan struct{}),
		levels: newLevels(self, time.Now())}
	g.running.Go(g.filter)
	return g
}

func (g *guard) PacketCh() <-chan *memberlist.Packet { return g.packets }
func (g *guard) StreamCh() <-chan net.Conn           { return g.streams }

func (g *guard) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return g.dialed(g.NodeAwareTransport.DialTimeout(addr, timeout))
}

func (g *guard) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return g.dialed(g.NodeAwareTransport.DialAddressTimeout(a, timeout))
}

// dialed has the answer on a stream checked, which comes without a label.
func (g *guard) dialed(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	return &guardedStream{Conn: c, guard: g}, nil
}

func (g *guard) Shutdown() error {
	err := g.NodeAwareTransport.Shutdown()
	g.stop.Do(func() { close(g.done) })
	g.running.Wait()
	return err
}

// filter passes on what is acceptable.
func (g *guard) filter() {
	for {
		select {
		case p := <-g.NodeAwareTransport.PacketCh():
			var err error
			if p.Buf, err = g.packet(p.Buf, time.Now()); err != nil {
				g.refused.Add(1)
				continue
			}
			select {
			case g.packets <- p:
			case <-g.done:
				return
			}
		case c := <-g.NodeAwareTransport.StreamCh():
			select {
			case g.streams <- g.inbound.add(&guardedStream{Conn: c, guard: g, label: g.label}):
			case <-g.done:
				c.Close()
				return
			}
		case <-g.done:
			return
		}
	}
}

// The types of memberlist's messages.
const (
	msgPing     = 0
	msgAck      = 2
	msgSuspect  = 3
	msgAlive    = 4
	msgDead     = 5
	msgPushPull = 6
	msgCompound = 7
	msgUser     = 8
	msgSealed   = 10
	msgNack     = 11
	msgCRC      = 12
	msgError    = 13
)

var errRefused = errors.New("gossip refused")

func refused(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errRefused, fmt.Sprintf(format, args...))
}

// accusation is what memberlist's suspect and dead have in common, and what matters here of alive.
// All three begin with these fields, in this order: a message may come as an array.
type accusation struct {
	Incarnation uint32
	Node        string
}

// packet checks a packet and returns it without label and checksum. Its bytes may be changed.
func (g *guard) packet(b []byte, now time.Time) ([]byte, error) {
	b, label, err := memberlist.RemoveLabelHeaderFromPacket(b)
	if err != nil || label != g.label {
		return nil, refused("label %q", label)
	}
	if g.sealed {
		if len(b) == 0 || b[0] != sealVersion {
			return nil, refused("a packet that is not sealed as this cluster does")
		}
		return b, nil
	}
	if len(b) >= 5 && b[0] == msgCRC {
		if crc32.ChecksumIEEE(b[5:]) != binary.BigEndian.Uint32(b[1:]) {
			return nil, refused("checksum")
		}
		b = b[5:]
	}
	if len(b) == 0 {
		return nil, refused("empty packet")
	}
	if b[0] != msgCompound {
		return b, g.message(b, now)
	}
	if len(b) < 2 || len(b) < 2+2*int(b[1]) {
		return nil, refused("compound packet without its lengths")
	}
	lengths, rest := b[2:2+2*int(b[1])], b[2+2*int(b[1]):]
	for ; len(lengths) > 0; lengths = lengths[2:] {
		n := int(binary.BigEndian.Uint16(lengths))
		if n > len(rest) {
			break // memberlist takes those before
		}
		if n > 0 {
			if err := g.message(rest[:n], now); err != nil {
				return nil, err
			}
		}
		rest = rest[n:]
	}
	return b, nil
}

// message checks one message of a packet.
func (g *guard) message(b []byte, now time.Time) error {
	switch b[0] {
	case msgSuspect, msgDead, msgAlive:
	case msgPing, 1, msgAck, msgNack, msgUser:
		return nil
	default:
		return refused("message of type %d in a packet", b[0])
	}
	var m accusation
	if err := codec.NewDecoderBytes(b[1:], new(codec.MsgpackHandle)).Decode(&m); err != nil {
		return refused("message of type %d: %v", b[0], err)
	}
	if b[0] == msgAlive {
		return g.levels.alive(m.Node, m.Incarnation, now)
	}
	b[0] = msgSuspect
	return g.levels.accused(m.Node, m.Incarnation, now)
}

// Limits of a stream.
const (
	maxStateNodes = 16384 // of an exchange of states
	maxStateBytes = 8 << 20
	maxStateOf    = 512      // of one node in it, on average
	maxShortBytes = 16 << 10 // of a ping, an answer to one, or an error

	// sealVersion is how memberlist seals. Another one that it knows panics where the padding is wrong.
	sealVersion = 1
	// leastSealed is a sealed byte, with version, nonce and tag: memberlist reads one without a look.
	leastSealed = 1 + 12 + 1 + 16
	// sealedHeader is what comes before what its length counts.
	sealedHeader = 5
)

// guardedStream checks the beginning of a stream as soon as somebody reads from it.
type guardedStream struct {
	net.Conn
	guard   *guard
	label   string // that it begins with; empty: none
	host    string // that opened it
	checked bool
	head    bytes.Buffer     // what was read to check it
	rest    io.LimitedReader // what may follow it
	err     error
}

func (s *guardedStream) Read(b []byte) (int, error) {
	if !s.checked {
		s.checked = true
		if s.err = s.check(time.Now()); s.err != nil && s.err != io.EOF {
			s.guard.refused.Add(1)
		}
	}
	if s.head.Len() > 0 && s.err == nil {
		return s.head.Read(b)
	}
	if s.err != nil {
		return 0, s.err
	}
	return s.rest.Read(b)
}

func (s *guardedStream) Close() error {
	s.guard.inbound.remove(s)
	return s.Conn.Close()
}

// check reads as much as says whether memberlist may have the stream, and keeps it for memberlist.
func (s *guardedStream) check(now time.Time) error {
	if s.label != "" {
		header := make([]byte, 2+len(s.label))
		if _, err := io.ReadFull(s.Conn, header); err != nil {
			return err
		}
		if _, label, err := memberlist.RemoveLabelHeaderFromPacket(header); err != nil || label != s.label {
			return s.stranger(header, now)
		}
	}
	// What is read beyond that is kept, too: a read for each value would cost more than the check.
	s.rest = io.LimitedReader{R: s.Conn, N: maxStateBytes + sealedHeader}
	in := bufio.NewReader(io.TeeReader(&s.rest, &s.head))
	if s.guard.sealed {
		return s.sealed(in)
	}
	var kind [1]byte
	if _, err := io.ReadFull(in, kind[:]); err != nil {
		return err
	}
	switch kind[0] {
	case msgPing, msgAck, msgError:
		s.rest.N = min(s.rest.N, maxShortBytes)
		return nil
	case msgUser:
		var h struct{ UserMsgLen int }
		if err := decode(in, &h); err != nil || h.UserMsgLen < 0 || h.UserMsgLen > maxMessageBytes {
			return refused("message of %d bytes (%v)", h.UserMsgLen, err)
		}
		s.expect(h.UserMsgLen)
		return nil
	case msgPushPull:
		return s.states(in, now)
	}
	if kind[0] == msgSealed {
		return refused("a sealed stream, and this node has no keys of gossip")
	}
	return refused("stream of type %d", kind[0])
}

// expect bounds a stream by the length that it begins with.
func (s *guardedStream) expect(bytes int) {
	if bytes > longStream {
		s.guard.inbound.lengthen(s)
	}
}

// sealed checks what a sealed stream begins with: what it says it is, its length, and how it is
// sealed. Whether it is authentic is memberlist's to judge.
func (s *guardedStream) sealed(in io.Reader) error {
	var h [sealedHeader + 1]byte
	if _, err := io.ReadFull(in, h[:1]); err != nil {
		return err
	}
	if h[0] != msgSealed {
		return refused("a stream that is not sealed, and this node has keys of gossip")
	}
	if _, err := io.ReadFull(in, h[1:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(h[1:])
	if n < leastSealed || n > maxStateBytes || h[5] != sealVersion {
		return refused("a sealed stream of %d bytes, version %d", n, h[5])
	}
	s.expect(int(n))
	return nil
}

// decode reads one value.
func decode(in io.Reader, v any) error {
	return codec.NewDecoder(in, new(codec.MsgpackHandle)).Decode(v)
}

// nodeState has the fields of memberlist's pushNodeState, in its order: a state may come as an
// array.
type nodeState struct {
	Name        string
	Addr        []byte
	Port        uint16
	Meta        []byte
	Incarnation uint32
	State       memberlist.NodeStateType
	Vsn         []uint8
}

// states checks what another node says of all that it knows.
func (s *guardedStream) states(in io.Reader, now time.Time) error {
	var h struct{ Nodes, UserStateLen int }
	d := codec.NewDecoder(in, new(codec.MsgpackHandle))
	if err := d.Decode(&h); err != nil {
		return refused("exchange of states: %v", err)
	}
	if h.Nodes < 0 || h.Nodes > maxStateNodes || h.UserStateLen != 0 {
		return refused("states of %d nodes, and %d bytes", h.Nodes, h.UserStateLen)
	}
	s.expect(h.Nodes * maxStateOf)
	if h.Nodes*maxStateOf <= longStream {
		s.rest.N = min(s.rest.N, longStream)
	}
	for range h.Nodes {
		var n nodeState
		err := d.Decode(&n)
		switch {
		case err != nil:
			return refused("exchange of states: %v", err)
		case n.State == memberlist.StateAlive:
			err = s.guard.levels.alive(n.Name, n.Incarnation, now)
		case n.State == memberlist.StateLeft: // ours never leave memberlist
			err = refused("node %q is said to have left", n.Name)
		default:
			err = s.guard.levels.accused(n.Name, n.Incarnation, now)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
