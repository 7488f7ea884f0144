// Package transport is the byte stream under a pair: what a rail's protocol must
// offer so that pairs can run over it. Implementations are in transport/tcp,
// transport/mem and, as decorators of any of them, transport/fault and transport/secure.
//
// It owns the interfaces. Framing, numbering and recovery are the pair's (railactors).
package transport

import (
	"context"
	"errors"
	"net"
	"time"
)

// ErrAbsent is what Open's error matches where the device may come later: an interface that is
// down, has no address that can be used, or does not exist.
var ErrAbsent = errors.New("device is absent")

// ErrPlain is what a read's or write's error matches where this side has keys, and the other one speaks
// plain text. What is written afterwards is plain: the other side can be told.
var ErrPlain = errors.New("the other node speaks plain text, this one has keys")

// ErrUnchecked is what a read's or write's error matches where this side checks what arrives, and the
// other one does not say that it does.
var ErrUnchecked = errors.New("the other node does not check what arrives on this rail, this one does (integrity)")

// CheckedPreface begins a connection whose bytes are checked. No frame does.
const CheckedPreface = "polyrail, with CRC32C\n"

// Transport opens devices of one protocol.
type Transport interface {
	// Protocol is the name used in configurations: "tcp", "mem".
	Protocol() string
	// Open selects the device (an interface name, an address, a CIDR, or "auto" resolved before),
	// binds a listener to it and returns it. The error names the device; it matches ErrAbsent where
	// trying again makes sense.
	Open(device string) (Device, error)
}

// Device is one NIC's end of a rail: it listens and dials, both bound to its own address.
// It survives restarts of the rail actor above it.
type Device interface {
	// Chosen describes what the selector chose ("eth1 10.1.0.7"), for logs and status.
	Chosen() string
	// Addr is where peers on this rail reach us ("10.1.0.7:40123").
	Addr() string
	// Accept waits for the next connection. After Close it returns net.ErrClosed.
	Accept() (Conn, error)
	// Dial connects to a peer's Addr from this device's own address. Where the other host
	// answers that nobody listens, the error is syscall.ECONNREFUSED (errors.Is). Where the address
	// is no longer the device's, it matches ErrAbsent.
	Dial(ctx context.Context, addr string) (Conn, error)
	Close() error
}

// Conn is a reliable ordered byte stream. One goroutine reads, one at a time writes.
// Both may block; both are ended by Close, and by their deadlines.
type Conn interface {
	// ReadFull fills p and returns how many bytes of p it filled; less than all only with an
	// error (io.EOF at the end of the stream, os.ErrDeadlineExceeded, net.ErrClosed). After
	// an expired deadline that was reset, reading goes on where it stopped.
	ReadFull(p []byte) (int, error)
	// Buffered returns how many bytes of input are at hand without a system call (0 if unknown).
	Buffered() int
	// Write sends all of the buffers in order (vectored where it can), blocking as needed.
	// It returns how many bytes were handed over; less than all only with an error.
	Write(bufs ...[]byte) (int64, error)
	// TryWrite hands over as much as goes without blocking; 0, nil when nothing goes now.
	TryWrite(bufs ...[]byte) (int64, error)
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
	// Close is safe to call more than once and from any goroutine.
	Close() error
}

// Poller is a Conn whose input can be looked for without waiting, beside a goroutine
// that waits for it. Whoever calls Poll or ReadFull has the reading side to itself meanwhile.
type Poller interface {
	// Await waits until there is input, or the stream has ended, and takes nothing. Only one goroutine
	// calls it, without having the reading side, when nothing is Buffered.
	Await() error
	// Poll takes in some of what is there, without waiting, and returns what is Buffered then.
	Poll() (int, error)
	// Drained reports whether the last read left nothing behind, as far as it could see:
	// neither Buffered nor in the system. Await finds what has come since.
	Drained() bool
	// Hush says whether Await may sleep through arriving input, since somebody polls for it: each
	// piece would wake a thread that finds nothing. Only the end of the stream, or more input than
	// polling leaves behind, ends Await then. Whoever has the reading side calls it; Hush(false)
	// misses nothing that has come meanwhile.
	Hush(on bool)
}

// Lender is a Conn whose input can be used where it lies, which spares a copy.
type Lender interface {
	// Lend is ReadFull of n bytes, for a borrower in place of memory to fill. What was Buffered before
	// is lent whatever happens meanwhile, or none of it.
	Lend(n int, to Borrower) (int, error)
}

// Borrower uses input, in the order of the stream.
type Borrower interface {
	// Borrow uses a piece of any length, which is the Lender's again when it returns. The other end
	// can change it at any moment: what is read twice may differ.
	Borrow(piece []byte)
}

// Progress is what a connection's host knows of the bytes that it sent.
type Progress struct {
	Awaiting bool          // the other host owes a confirmation: of bytes, or of an answer to a probe
	Acked    uint64        // bytes that it has confirmed
	LastAck  time.Duration // since its last confirmation of anything, however long nothing was due
	RTT      time.Duration // smoothed round trip; 0 if unknown
}

// Confirmer is a Conn that can tell what the other *host* has confirmed, whatever the process there
// is doing: that tells a dead rail from a rank that is slow or stopped. Progress may be called from
// any goroutine; false means that it can't tell now.
type Confirmer interface {
	Progress() (Progress, bool)
}

// Authenticated is a Conn that knows who is at its other end.
type Authenticated interface {
	// Identity is the node's name once the handshake is over; false before.
	Identity() (node string, ok bool)
}

// LinkWatcher is a Device that hears when its interface loses or regains its link (carrier pulled,
// interface set down), which resets no socket.
type LinkWatcher interface {
	// WatchLink calls report with the state at first and then with each change, until ctx ends or the
	// watch fails. It returns errors.ErrUnsupported where the system can't tell.
	WatchLink(ctx context.Context, report func(up bool)) error
}

// Caster is a Device that can send to many at once, in datagrams that are lost, doubled and reordered
// as it happens. What is sent to a group by a device reaches those who receive that group from it.
// Either error matches errors.ErrUnsupported where the device can't.
type Caster interface {
	// SendCasts opens this device's end for what it sends to a group.
	SendCasts(group uint64) (CastSender, error)
	// ReceiveCasts opens this device's end for what the device at addr (its Addr) sends to a group.
	ReceiveCasts(group uint64, addr string) (CastReceiver, error)
}

// MaxCast is the longest datagram of a Caster, in bytes: the packet of any network has room for it.
const MaxCast = 1400

// CastSender sends datagrams. Its methods may be called from any goroutine.
type CastSender interface {
	// Send hands over a datagram of up to MaxCast bytes. It does not block.
	Send(p []byte) error
	Close() error
}

// CastReceiver receives datagrams: Receive by one goroutine, until Close by any.
type CastReceiver interface {
	// Receive fills p, of MaxCast bytes, with the next datagram, and returns its length.
	Receive(p []byte) (int, error)
	Close() error
}
