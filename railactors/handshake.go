package railactors

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/transport"
)

// refusal is what the other side of a connection says before it closes it.
type refusal struct {
	code   messages.Refuse_Code
	reason string
}

func (e *refusal) Error() string { return "refused: " + e.reason }

func refuse(code messages.Refuse_Code, format string, args ...any) *refusal {
	return &refusal{code: code, reason: clip(fmt.Sprintf(format, args...))}
}

// clip bounds a text that goes to, or comes from, another node.
func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxReasonBytes)], "") }

// isGone reports whether err says that the process, or its dealings with us, are over.
func isGone(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.code == messages.Refuse_GONE
}

// isNotYet reports whether err says that the other node lives and will want us later.
func isNotYet(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.code == messages.Refuse_NOT_YET
}

// isBusy reports whether err says that the other node lives and can't take a connection now.
func isBusy(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.code == messages.Refuse_BUSY
}

// isRefused reports whether err says that the host lives and nobody listens.
func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// message is a frame of the handshake.
func message(kind wire.Kind, m proto.Message) ([][]byte, error) {
	payload, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	var header [wire.Size]byte
	h := wire.Header{Kind: kind, Length: uint32(len(payload))}
	h.Encode(header[:])
	return [][]byte{header[:], payload}, nil
}

// writeMessage sends a frame of the handshake.
func writeMessage(conn transport.Conn, kind wire.Kind, m proto.Message) error {
	frame, err := message(kind, m)
	if err == nil {
		_, err = conn.Write(frame...)
	}
	return err
}

// readHello reads the first frame of a connection. A refusal is an error.
func readHello(conn transport.Conn) (*messages.Hello, error) {
	var header [wire.Size]byte
	if _, err := conn.ReadFull(header[:]); err != nil {
		return nil, err
	}
	if header[0] == tlsHandshake && header[1] == tlsMajor {
		return nil, refuse(messages.Refuse_OTHER, "the other node seals this rail, this one does not")
	}
	if bytes.HasPrefix(header[:], []byte(transport.CheckedPreface)) {
		return nil, refuse(messages.Refuse_OTHER, "the other node checks what arrives on this rail (integrity), this one does not")
	}
	var h wire.Header
	if err := wire.Decode(header[:], &h); err != nil {
		return nil, err
	}
	if h.Kind != wire.KindHello && h.Kind != wire.KindRefuse || h.Length > maxHelloBytes {
		return nil, fmt.Errorf("first frame is of kind %d with %d bytes, want a hello of at most %d", h.Kind, h.Length, maxHelloBytes)
	}
	payload := make([]byte, h.Length)
	if _, err := conn.ReadFull(payload); err != nil {
		return nil, err
	}
	if h.Kind == wire.KindRefuse {
		var r messages.Refuse
		if err := proto.Unmarshal(payload, &r); err != nil {
			return nil, fmt.Errorf("refusal: %w", err)
		}
		return nil, &refusal{code: r.Code, reason: clip(r.Reason)}
	}
	hello := new(messages.Hello)
	if err := proto.Unmarshal(payload, hello); err != nil {
		return nil, fmt.Errorf("hello: %w", err)
	}
	return hello, nil
}

// What a record of TLS begins with that holds a handshake. No frame does.
const tlsHandshake, tlsMajor = 22, 3

// vouched holds the name in a hello against the certificate of the connection.
func (r *rail) vouched(conn transport.Conn, h *messages.Hello) *refusal {
	if !r.sealed {
		return nil
	}
	a, ok := conn.(transport.Authenticated)
	if !ok {
		return refuse(messages.Refuse_OTHER, "a connection of rail %q without a certificate", r.name)
	}
	if node, ok := a.Identity(); !ok || node != h.Node {
		return refuse(messages.Refuse_OTHER, "a hello of node %q with the certificate of node %q", clip(h.Node), clip(node))
	}
	return nil
}

// deadline sets or clears both deadlines of a connection.
func deadline(conn transport.Conn, t time.Time) error {
	return errors.Join(conn.SetReadDeadline(t), conn.SetWriteDeadline(t))
}

// bigEndian is this host's byte order. Elements travel as they lie in memory.
var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// hello is what this side says on a rail. Generation is the one that it proposes, or decided on.
func (p *Peer) hello(rail int, generation uint64, probe bool) *messages.Hello {
	f := p.fabric
	p.mu.Lock()
	defer p.mu.Unlock()
	return &messages.Hello{
		Version: wire.Version, Cluster: f.cfg.Cluster, Node: f.cfg.Node, Incarnation: f.cfg.Incarnation,
		To: p.node, ToIncarnation: p.incarnation, Rail: f.rails[rail].name, Generation: generation, Probe: probe,
		Session: p.session, ToSession: p.remoteSession, CreditBytes: uint64(f.cfg.CreditBytes),
		BigEndian: bigEndian,
	}
}

// check holds a hello against what every node of the cluster says.
func (f *Fabric) check(h *messages.Hello) *refusal {
	switch {
	case h.Version != wire.Version:
		return refuse(messages.Refuse_OTHER, "protocol version %d, node %q speaks %d", h.Version, f.cfg.Node, wire.Version)
	case h.BigEndian != bigEndian:
		return refuse(messages.Refuse_OTHER, "the other byte order than node %q has", f.cfg.Node)
	case h.Cluster != f.cfg.Cluster:
		return refuse(messages.Refuse_OTHER, "cluster %q, node %q belongs to %q", clip(h.Cluster), f.cfg.Node, f.cfg.Cluster)
	case h.To != f.cfg.Node:
		// Its address may have come here, and the node may live on its other rails.
		return refuse(messages.Refuse_OTHER, "node %q is meant, this is node %q", clip(h.To), f.cfg.Node)
	case h.ToIncarnation != 0 && h.ToIncarnation != f.cfg.Incarnation:
		return refuse(messages.Refuse_GONE, "incarnation %d of node %q is meant, this is %d", h.ToIncarnation, f.cfg.Node, f.cfg.Incarnation)
	case f.RailIndex(h.Rail) < 0:
		return refuse(messages.Refuse_OTHER, "node %q has no rail %q", f.cfg.Node, clip(h.Rail))
	case h.Node == "" || len(h.Node) > maxNameBytes || h.Node == f.cfg.Node || h.Session == 0:
		return refuse(messages.Refuse_OTHER, "a hello of node %q, session %d", clip(h.Node), h.Session)
	}
	return nil
}

// greet takes the identity in a hello. A refusal says that the other side is not, or no
// longer, the one that p deals with.
func (p *Peer) greet(h *messages.Hello) *refusal {
	fx := newEffects()
	p.mu.Lock()
	defer func() { p.unlock(fx) }()
	switch {
	case p.cause != nil:
		return p.fabric.over(p.session, p.cause)
	case p.farewell || p.parted:
		return p.parting()
	case h.ToSession != 0 && h.ToSession != p.session:
		return refuse(messages.Refuse_GONE, "session %d of node %q is meant, it has ended", h.ToSession, p.fabric.cfg.Node)
	case p.remoteSession != 0 && later(p.remoteSession, h.Session):
		return refuse(messages.Refuse_GONE, "session %d of node %q has ended", h.Session, p.node)
	case p.remoteSession != 0 && h.Session != p.remoteSession:
		return refuse(messages.Refuse_OTHER, "session %d of node %q does not exist", h.Session, p.node)
	case p.remoteSession == 0 && !h.Probe:
		p.remoteSession = h.Session
		p.core.Limit(h.CreditBytes, &fx.Effects)
	}
	return nil
}

var errSuperseded = errors.New("there is a connection, or nobody wants one any more")

// dial connects to the peer on a rail and puts the connection into use, or, as a probe, asks only
// whether the process is there. It takes its turn.
func (p *Peer) dial(ctx context.Context, rail int, probe bool) error {
	if err := p.awaitFarewell(ctx); err != nil {
		return err
	}
	attempts := p.fabric.cfg.Attempts
	if err := attempts.begin(ctx); err != nil {
		return err
	}
	defer attempts.end()
	if !p.needs(rail) {
		return errSuperseded
	}
	return p.attempt(ctx, rail, probe)
}

// awaitFarewell waits until the former session with the same process has ended.
func (p *Peer) awaitFarewell(ctx context.Context) error {
	p.mu.Lock()
	predecessor := p.predecessor
	p.mu.Unlock()
	if predecessor == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*p.fabric.cfg.RankTimeout)
	defer cancel()
	select {
	case <-predecessor.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("farewell to its former session: %w", ctx.Err())
	}
}

// attempt is what dial does in its turn.
func (p *Peer) attempt(ctx context.Context, rail int, probe bool) error {
	f := p.fabric
	addr, err := p.reachable(rail)
	if err != nil {
		return err
	}
	conn, err := f.connect(ctx, rail, addr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, f.cfg.RankTimeout,
		fmt.Errorf("nobody answered within %v: %w", f.cfg.RankTimeout, context.DeadlineExceeded))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	generation, err := p.offer(conn, rail, probe)
	if !stop() {
		err = context.Cause(ctx) // the connection is closed, which is all that offer knows
	}
	if err != nil || probe {
		conn.Close()
		return err
	}
	return p.connected(rail, generation, conn)
}

// connect waits for the other host for a short time only: TCP asks it again after 1, 3 and 7
// seconds, and a rail that comes back is to be found sooner.
func (f *Fabric) connect(ctx context.Context, rail int, addr string) (transport.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, max(leastConnect, f.cfg.RankTimeout/4))
	defer cancel()
	device := f.rails[rail].device()
	conn, err := device.Dial(ctx, addr)
	if errors.Is(err, transport.ErrAbsent) {
		f.strayed(rail, device, err)
	} else {
		f.rails[rail].astray.Store(nil)
	}
	return conn, err
}

// offer makes the dialing side's part of the handshake and returns the generation that the
// other side decided on.
func (p *Peer) offer(conn transport.Conn, rail int, probe bool) (uint64, error) {
	p.mu.Lock()
	proposal := p.core.Propose(rail, p.proposed[rail]+1)
	p.proposed[rail] = proposal
	p.mu.Unlock()
	if err := writeMessage(conn, wire.KindHello, p.hello(rail, proposal, probe)); err != nil {
		return 0, err
	}
	h, err := readHello(conn)
	if err != nil {
		return 0, err
	}
	if r := p.fabric.check(h); r != nil {
		return 0, r
	}
	if r := p.fabric.rails[rail].vouched(conn, h); r != nil {
		return 0, r
	}
	switch {
	case h.Node != p.node:
		return 0, refuse(messages.Refuse_OTHER, "node %q answers", clip(h.Node))
	case h.Incarnation != p.incarnation:
		return 0, refuse(messages.Refuse_GONE, "incarnation %d of it answers", h.Incarnation)
	case h.Rail != p.fabric.rails[rail].name:
		return 0, refuse(messages.Refuse_OTHER, "rail %q answers", clip(h.Rail))
	case h.Generation < proposal || !p.follows(rail, h.Generation):
		return 0, refuse(messages.Refuse_OTHER, "generation %d answers to %d", h.Generation, proposal)
	case probe:
		return 0, nil
	}
	if p.startedOver(h) {
		return 0, refuse(messages.Refuse_GONE, "it has started over, with session %d", h.Session)
	}
	if r := p.greet(h); r != nil {
		return 0, r
	}
	return h.Generation, deadline(conn, time.Time{})
}

// startedOver reports whether the other process has given up what it shared with p.
func (p *Peer) startedOver(h *messages.Hello) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.remoteSession != 0 && later(h.Session, p.remoteSession)
}

// admit makes the accepting side's part of the handshake. It runs on a goroutine of its own.
func (f *Fabric) admit(rail int, conn transport.Conn) {
	defer f.rails[rail].entrance.leave(conn)
	fail := func(err error) {
		var r *refusal
		switch {
		case errors.Is(err, transport.ErrPlain):
			r = refuse(messages.Refuse_OTHER, "node %q has keys and reads no plain text on rail %q", f.cfg.Node, f.rails[rail].name)
		case errors.Is(err, transport.ErrUnchecked):
			r = refuse(messages.Refuse_OTHER, "node %q checks what arrives on rail %q (integrity), the other one does not",
				f.cfg.Node, f.rails[rail].name)
		}
		if r != nil || errors.As(err, &r) {
			// Best effort: the reason helps whoever dialed.
			_ = writeMessage(conn, wire.KindRefuse, &messages.Refuse{Code: r.code, Reason: r.reason})
		}
		conn.Close()
		f.log.Log(f.ctx, f.turned.level(hostOf(conn.RemoteAddr()), time.Now()), "connection turned down",
			"rail", f.rails[rail].name, "from", conn.RemoteAddr(), "reason", err)
	}
	h, err := readHello(conn)
	if !f.rails[rail].entrance.leave(conn) {
		fail(refuse(messages.Refuse_BUSY, "node %q waits for the hellos of too many connections", f.cfg.Node))
		return
	}
	if err != nil {
		fail(err)
		return
	}
	if r := f.check(h); r != nil {
		fail(r)
		return
	}
	if r := f.rails[rail].vouched(conn, h); r != nil {
		fail(r)
		return
	}
	if i := f.RailIndex(h.Rail); i != rail {
		fail(refuse(messages.Refuse_OTHER, "rail %q is meant, this is rail %q", h.Rail, f.rails[rail].name))
		return
	}
	if err := f.welcome(rail, conn, h); err != nil {
		fail(err)
	}
}

// welcome answers an acceptable hello.
func (f *Fabric) welcome(rail int, conn transport.Conn, h *messages.Hello) error {
	host := hostOf(conn.RemoteAddr())
	p, err := f.expect(h, host)
	if err != nil {
		return err
	}
	if !p.reached().Has(rail) {
		return refuse(messages.Refuse_NOT_YET, "node %q has not heard that node %q is on its host", f.cfg.Node, p.node)
	}
	if p.dials && !h.Probe {
		return refuse(messages.Refuse_OTHER, "node %q dials node %q, not the other way round", f.cfg.Node, p.node)
	}
	if !h.Probe && !p.follows(rail, h.Generation) {
		return refuse(messages.Refuse_OTHER, "generation %d of rail %q does not follow", h.Generation, h.Rail)
	}
	if r := p.greet(h); r != nil {
		return r
	}
	if !h.Probe {
		if r := p.vacate(host, rail); r != nil {
			return r
		}
	}
	p.rouse(false)
	p.mu.Lock()
	generation := p.core.Propose(rail, h.Generation)
	p.mu.Unlock()
	if err := deadline(conn, time.Now().Add(f.cfg.RankTimeout)); err != nil {
		return err
	}
	if err := writeMessage(conn, wire.KindHello, p.hello(rail, generation, false)); err != nil {
		return err
	}
	if h.Probe {
		p.tellPair(rail, &railBack{})
		return conn.Close()
	}
	if err := deadline(conn, time.Time{}); err != nil {
		return err
	}
	if err := p.connected(rail, generation, conn); err != nil {
		return refuse(messages.Refuse_OTHER, "%v", err)
	}
	return nil
}
