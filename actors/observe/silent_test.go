package observe

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/polyrail/polyrail/test/bubble"
)

// pipes is a listener in memory: nothing is buffered on the way.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// Who asks and takes no answer must not keep a connection: there are few, and no token is needed for
// that.
func TestAnAnswerThatNobodyTakesKeepsNoConnection(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := &pipes{make(chan net.Conn), make(chan struct{})}
		l := &Listener{Config{Token: "0123456789abcdef", Log: slog.New(slog.DiscardHandler)},
			&limited{Listener: p}}
		s := l.Serve(nothing{})
		defer s.Close()
		here, there := net.Pipe()
		defer here.Close()
		p.accepted <- there
		if err := here.SetDeadline(time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		var err error
		for err == nil { // one request after the other, and no answer is read
			_, err = io.WriteString(here, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		}
		if !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the connection is open after an hour: %v", err)
		}
	})
}
