package secure

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net"
	"testing"
	"time"

	"github.com/polyrail/polyrail/railactors/transport"
)

func newTestSealer(t testing.TB) *sealer {
	t.Helper()
	s, err := newSealer(bytes.Repeat([]byte{7}, secretBytes))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A direction takes its next key after rekeyRecords, on both sides at the same record.
func TestTheKeyChangesInTime(t *testing.T) {
	near, far := newTestSealer(t), newTestSealer(t)
	near.number, far.number = rekeyRecords-1, rekeyRecords-1
	first := near.secret
	for range 3 {
		nonce, err := near.next()
		if err != nil {
			t.Fatal(err)
		}
		sealed := near.aead.Seal(nil, nonce, []byte("text"), nil)
		if nonce, err = far.next(); err != nil {
			t.Fatal(err)
		}
		if text, err := far.aead.Open(nil, nonce, sealed, nil); err != nil || string(text) != "text" {
			t.Fatalf("%q, %v", text, err)
		}
	}
	if bytes.Equal(first, near.secret) {
		t.Error("the key is the same")
	}
}

func TestNoNonceComesTwice(t *testing.T) {
	s := newTestSealer(t)
	seen := map[string]bool{}
	for range 1000 {
		nonce, err := s.next()
		if err != nil || seen[string(nonce)] {
			t.Fatalf("nonce %x again, or %v", nonce, err)
		}
		seen[string(nonce)] = true
	}
	s.number = math.MaxUint64 - 1
	if _, err := s.next(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.next(); !errors.Is(err, errExhausted) {
			t.Errorf("a number after the last one: %v", err)
		}
	}
	c := &conn{inner: &script{}}
	c.ready.Store(true)
	c.out.seal = s
	if _, err := c.Write([]byte("text")); !errors.Is(err, errExhausted) {
		t.Errorf("written without a number: %v", err)
	}
}

// script is a connection that reads a text, and takes what is written.
type script struct {
	text []byte
	got  bytes.Buffer
}

func (s *script) ReadFull(p []byte) (int, error) {
	n := copy(p, s.text)
	s.text = s.text[n:]
	switch {
	case n == len(p):
		return n, nil
	case n > 0:
		return n, io.ErrUnexpectedEOF
	}
	return n, io.EOF
}

func (s *script) Write(bufs ...[]byte) (n int64, err error) {
	for _, b := range bufs {
		k, _ := s.got.Write(b)
		n += int64(k)
	}
	return n, nil
}

func (s *script) TryWrite(bufs ...[]byte) (int64, error) { return s.Write(bufs...) }
func (s *script) Buffered() int                          { return len(s.text) }
func (s *script) Poll() (int, error)                     { return len(s.text), nil }
func (s *script) Await() error                           { return nil }
func (s *script) Drained() bool                          { return len(s.text) == 0 }
func (s *script) Hush(bool)                              {}
func (s *script) SetReadDeadline(time.Time) error        { return nil }
func (s *script) SetWriteDeadline(time.Time) error       { return nil }
func (s *script) LocalAddr() net.Addr                    { return nil }
func (s *script) RemoteAddr() net.Addr                   { return nil }
func (s *script) Close() error                           { return nil }

var _ transport.Poller = (*script)(nil)

// sealedText is what a connection with the key of newTestSealer writes of some texts.
func sealedText(t testing.TB, texts ...[]byte) []byte {
	t.Helper()
	s := &script{}
	c := &conn{inner: s}
	c.ready.Store(true)
	c.out.seal = newTestSealer(t)
	for _, b := range texts {
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	return s.got.Bytes()
}

// FuzzRecords: of whatever comes in place of records, only what was sealed is read, however it is
// asked for; and it takes little memory.
func FuzzRecords(f *testing.F) {
	text := bytes.Repeat([]byte("polyrail"), 800)
	good := sealedText(f, text[:100], text[100:1000], text[1000:])
	f.Add(good, 1000, true)
	f.Add(good[:200], 3, false)
	f.Add([]byte{1, 0, 0, 0, 'x', 1, 2, 3, 4}, 1, false)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, 1, true)
	f.Fuzz(func(t *testing.T, b []byte, piece int, polled bool) {
		s := &script{text: b}
		c := &pollConn{&conn{inner: s}, s}
		c.ready.Store(true)
		c.in.seal = newTestSealer(t)
		p := make([]byte, 1+uint(piece)%(128<<10))
		for at := 0; ; {
			if polled {
				if n, err := c.Poll(); n == 0 && (err != nil || len(s.text) == 0) {
					break
				}
			}
			n, err := c.ReadFull(p)
			if at+n > len(text) || !bytes.Equal(p[:n], text[at:at+n]) {
				t.Fatal("a text was read that nobody has sealed")
			}
			at += n
			if err != nil {
				break
			}
		}
		if cap(c.in.buf) > headerBytes+maxText+tagBytes {
			t.Errorf("%d bytes of memory", cap(c.in.buf))
		}
	})
}

// BenchmarkRecords seals and opens frames of 64 KiB.
func BenchmarkRecords(b *testing.B) { benchmarkFrames(b, newTestSealer(b), newTestSealer(b)) }

func benchmarkFrames(b *testing.B, writer, reader *sealer) {
	s := &script{}
	out, in := &conn{inner: s}, &conn{inner: s}
	out.ready.Store(true)
	in.ready.Store(true)
	out.out.seal, in.in.seal = writer, reader
	header, text := make([]byte, 116), make([]byte, maxText)
	b.SetBytes(maxText)
	b.ReportAllocs()
	for b.Loop() {
		s.got.Reset()
		if _, err := out.Write(header, text); err != nil {
			b.Fatal(err)
		}
		s.text = s.got.Bytes()
		if _, err := in.ReadFull(header); err != nil {
			b.Fatal(err)
		}
		if _, err := in.ReadFull(text); err != nil {
			b.Fatal(err)
		}
	}
}
