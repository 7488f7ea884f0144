// Package secure is a decorator of any transport that closes its connections to strangers: TLS 1.3
// with certificates on both sides makes a connection, and records of this package follow, sealed with
// keys exported from it (docs/decisions/048).
//
// A record is a length (4 bytes, little-endian, at most 64 KiB), the sealed text, and a tag:
// AES-128-GCM. Its number in the connection and direction is its nonce. What transport.Conn promises
// stays: polling, deadlines, confirmations, vectored writes.
//
// Check makes connections of the same records without keys: a CRC32C stands in for the tag. It is for
// networks that change bytes by accident.
package secure

import (
	"context"
	"errors"

	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/secure/keys"
)

// Wrap decorates a transport. Current returns the node's credentials; it is called for each
// handshake.
func Wrap(inner transport.Transport, current func() *keys.Credentials) transport.Transport {
	return &secured{inner, "+tls", func(c *conn) error { return c.prove(current()) }}
}

// Check decorates a transport so that nothing is read that did not arrive as it was written. It keeps
// out nobody.
func Check(inner transport.Transport) transport.Transport {
	return &secured{inner, "+crc", (*conn).agree}
}

type secured struct {
	transport.Transport
	suffix string // of its protocol
	shake  handshake
}

// handshake makes one side's part of the handshake, and leaves the connection with a sealer for each
// direction.
type handshake func(c *conn) error

// Protocol implements transport.Transport.
func (s *secured) Protocol() string { return s.Transport.Protocol() + s.suffix }

// Open implements transport.Transport.
func (s *secured) Open(name string) (transport.Device, error) {
	d, err := s.Transport.Open(name)
	if err != nil {
		return nil, err
	}
	return &device{d, s.shake}, nil
}

type device struct {
	transport.Device
	shake handshake
}

// Accept does not wait for the handshake: a stranger holds up nobody else.
func (d *device) Accept() (transport.Conn, error) {
	inner, err := d.Device.Accept()
	if err != nil {
		return nil, err
	}
	return d.wrap(inner, false), nil
}

// Dial connects. The first write or read makes the handshake, within the connection's deadlines.
func (d *device) Dial(ctx context.Context, addr string) (transport.Conn, error) {
	inner, err := d.Device.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return d.wrap(inner, true), nil
}

func (d *device) wrap(inner transport.Conn, dialed bool) transport.Conn {
	c := newConn(inner, d.shake, dialed)
	if p, ok := inner.(transport.Poller); ok {
		return &pollConn{c, p}
	}
	return c
}

// WatchLink is the inner device's.
func (d *device) WatchLink(ctx context.Context, report func(up bool)) error {
	if w, ok := d.Device.(transport.LinkWatcher); ok {
		return w.WatchLink(ctx, report)
	}
	return errors.ErrUnsupported
}
