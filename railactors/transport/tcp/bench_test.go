package tcp_test

import (
	"io"
	"net"
	"testing"

	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/tcp"
)

const header = 96

// BenchmarkStream sends frames of a header and a payload one way, as pairs do, beside
// the same over net.Conn.
func BenchmarkStream(b *testing.B) {
	for name, payload := range map[string]int{"256KiB": 256 << 10, "64KiB": 64 << 10, "8B": 8} {
		head, body, dst := make([]byte, header), make([]byte, payload), make([]byte, payload)
		b.Run("raw/"+name, func(b *testing.B) {
			near, far := benchPair(b)
			b.SetBytes(int64(header + payload))
			go func() {
				bufs := [][]byte{head, body}
				for {
					if _, err := near.Write(bufs...); err != nil {
						return
					}
				}
			}()
			h := make([]byte, header)
			for b.Loop() {
				if _, err := far.ReadFull(h); err != nil {
					b.Fatal(err)
				}
				if _, err := far.ReadFull(dst); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("netConn/"+name, func(b *testing.B) {
			near, far := netPair(b)
			b.SetBytes(int64(header + payload))
			go func() {
				for {
					bufs := net.Buffers{head, body}
					if _, err := bufs.WriteTo(near); err != nil {
						return
					}
				}
			}()
			h := make([]byte, header)
			for b.Loop() {
				if _, err := io.ReadFull(far, h); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(far, dst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRoundTrip is the latency of 104 bytes there and back, read by who waits in the
// network poller and by who polls, as a caller that waits for a small operation does.
func BenchmarkRoundTrip(b *testing.B) {
	for name, read := range map[string]func(transport.Conn, []byte) error{"parked": parked, "polling": polling} {
		b.Run(name, func(b *testing.B) {
			near, far := benchPair(b)
			go func() {
				p := make([]byte, header+8)
				for {
					if err := read(far, p); err != nil {
						return
					}
					if _, err := far.Write(p); err != nil {
						return
					}
				}
			}()
			p := make([]byte, header+8)
			for b.Loop() {
				if _, err := near.Write(p); err != nil {
					b.Fatal(err)
				}
				if err := read(near, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func parked(c transport.Conn, p []byte) error {
	_, err := c.ReadFull(p)
	return err
}

func polling(c transport.Conn, p []byte) error {
	for {
		if n, err := c.(transport.Poller).Poll(); err != nil {
			return err
		} else if n > 0 {
			return parked(c, p)
		}
		transport.Yield()
	}
}

func benchPair(b *testing.B) (near, far transport.Conn) {
	b.Helper()
	tr := tcp.New(tcp.Options{})
	x, err := tr.Open("127.0.0.2")
	if err != nil {
		b.Fatal(err)
	}
	y, err := tr.Open("127.0.0.3")
	if err != nil {
		b.Fatal(err)
	}
	n, err := x.Dial(b.Context(), y.Addr())
	if err != nil {
		b.Fatal(err)
	}
	f, err := y.Accept()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { n.Close(); f.Close(); x.Close(); y.Close() })
	return n, f
}

func netPair(b *testing.B) (near, far net.Conn) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.3:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial("tcp", l.Addr().String()); err != nil {
		b.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}
