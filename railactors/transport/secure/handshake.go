package secure

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/secure/keys"
)

const (
	exporterLabel   = "EXPORTER-polyrail-rail"
	maxVerdictBytes = 255

	tlsHeaderBytes = 5
	maxTLSBytes    = 16384 + 256 // of a record's body
	firstTLSType   = 20          // of a record: change cipher spec
	lastTLSType    = 23          // application data
)

// ErrUnbelieved begins the error of whoever was told that it is not believed.
var ErrUnbelieved = errors.New("the other node does not believe this one")

// prove is the handshake by certificates.
func (c *conn) prove(own *keys.Credentials) error {
	s := &stream{Conn: c.inner}
	var t *tls.Conn
	if c.dialed {
		t = tls.Client(s, own.TLS())
	} else {
		t = tls.Server(s, own.TLS())
	}
	if err := t.Handshake(); err != nil {
		c.plain = s.plain
		return shakeError(err)
	}
	peer, err := believe(t, own)
	if err != nil {
		return err
	}
	state := t.ConnectionState()
	secrets, err := state.ExportKeyingMaterial(exporterLabel, nil, 2*secretBytes)
	if err != nil {
		return fmt.Errorf("keys of a connection: %w", err)
	}
	to, from := secrets[:secretBytes], secrets[secretBytes:] // the dialing side's
	if !c.dialed {
		to, from = from, to
	}
	if c.out.seal, err = newSealer(to); err != nil {
		return err
	}
	c.peer = peer
	c.in.seal, err = newSealer(from)
	return err
}

// believe checks the other side's certificate and tells it the verdict, and hears its own: an empty
// text is "yes". So both sides know why a connection comes to nothing, which an alert of TLS would not
// say. Each hears the other out, whatever it says itself: to close on what was not read would take the
// verdict away again.
func believe(t *tls.Conn, own *keys.Credentials) (keys.Identity, error) {
	peer, fault := own.Verify(t.ConnectionState())
	verdict := make([]byte, 1, 1+maxVerdictBytes)
	if fault != nil {
		text := fault.Error()
		verdict = append(verdict, text[:min(len(text), maxVerdictBytes)]...)
		verdict[0] = byte(len(verdict) - 1)
	}
	_, unsent := t.Write(verdict)
	heard, err := hear(t)
	switch {
	case fault != nil:
		return peer, fault
	case heard != "":
		return peer, fmt.Errorf("%w: %s", ErrUnbelieved, heard)
	case unsent != nil:
		return peer, shakeError(unsent)
	case err != nil:
		return peer, shakeError(err)
	}
	return peer, nil
}

// hear reads the other side's verdict.
func hear(t *tls.Conn) (string, error) {
	var n [1]byte
	if _, err := io.ReadFull(t, n[:]); err != nil {
		return "", err
	}
	text := make([]byte, n[0])
	if _, err := io.ReadFull(t, text); err != nil {
		return "", err
	}
	return strings.ToValidUTF8(string(text), "?"), nil
}

// shakeError words what ended a handshake.
func shakeError(err error) error {
	switch op := (*net.OpError)(nil); {
	case errors.Is(err, transport.ErrPlain):
		return err
	case errors.As(err, &op) && op.Op == "remote error": // an alert
		return fmt.Errorf("%w: %w", ErrUnbelieved, err)
	}
	return fmt.Errorf("TLS: %.255w", err) // it may be of what a stranger's certificate says
}

// stream is a transport.Conn as TLS wants it during the handshake. It reads no further than a record
// of TLS, so that nothing of what follows is taken.
type stream struct {
	transport.Conn
	record []byte // what is left of the last one
	plain  bool   // the other side does not speak TLS
}

var _ net.Conn = (*stream)(nil)

func (s *stream) Read(b []byte) (int, error) {
	if len(s.record) == 0 {
		var header [tlsHeaderBytes]byte
		if _, err := s.ReadFull(header[:]); err != nil {
			return 0, err
		}
		n := int(binary.BigEndian.Uint16(header[3:]))
		if header[0] < firstTLSType || header[0] > lastTLSType || header[1] != 3 || n > maxTLSBytes {
			s.plain = true
			return 0, transport.ErrPlain
		}
		record := make([]byte, tlsHeaderBytes+n)
		copy(record, header[:])
		if _, err := s.ReadFull(record[tlsHeaderBytes:]); err != nil {
			return 0, err
		}
		s.record = record
	}
	n := copy(b, s.record)
	s.record = s.record[n:]
	return n, nil
}

func (s *stream) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	return int(n), err
}

// The handshake's deadlines and end are the connection's, whose owner sets them.
func (s *stream) SetDeadline(time.Time) error      { return nil }
func (s *stream) SetReadDeadline(time.Time) error  { return nil }
func (s *stream) SetWriteDeadline(time.Time) error { return nil }
func (s *stream) Close() error                     { return nil }
