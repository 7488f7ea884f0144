package secure

import (
	"crypto/tls"
	"errors"
	"path/filepath"
	"testing"

	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/secure/keys"
)

// FuzzHandshake: whatever comes in place of a handshake, to either side, makes no connection, and what
// does not even look like TLS is plain text.
func FuzzHandshake(f *testing.F) {
	a := keys.Authority{Dir: filepath.Join(f.TempDir(), "keys")}
	if err := errors.Join(a.Init("test"), a.Node("a")); err != nil {
		f.Fatal(err)
	}
	own, err := a.Files("a").Load()
	if err != nil {
		f.Fatal(err)
	}
	hello := &script{}
	_ = tls.Client(&stream{Conn: hello}, own.TLS()).Handshake() // nobody answers
	f.Add(hello.got.Bytes())
	answer := &script{text: hello.got.Bytes()}
	_ = tls.Server(&stream{Conn: answer}, own.TLS()).Handshake()
	f.Add(answer.got.Bytes())
	f.Add([]byte{22, 3, 1, 0xff, 0xff})
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, dialed := range []bool{false, true} {
			c := newConn(&script{text: b}, func(c *conn) error { return c.prove(own) }, dialed)
			_, err := c.ReadFull(make([]byte, 1))
			if err == nil {
				t.Fatal("it was read from")
			}
			if _, ok := c.Identity(); ok {
				t.Error("the other side has an identity")
			}
			if plain := errors.Is(err, transport.ErrPlain); plain != c.plain {
				t.Errorf("plain text: %v, %v", c.plain, err)
			}
			if len(b) >= tlsHeaderBytes && (b[0] < firstTLSType || b[1] != 3) && !c.plain {
				t.Errorf("no plain text: %v", err)
			}
		}
	})
}
