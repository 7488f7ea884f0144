package observe

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/polyrail/polyrail/actors/membership"
)

// nothing is a node of which there is nothing to be seen.
type nothing struct{}

func (nothing) Status(context.Context, membership.Detail) (s membership.Status) { return s }
func (nothing) Obstacles() []string                                             { return nil }
func (nothing) AskOthers()                                                      {}
func (nothing) Others() []membership.Neighbour                                  { return nil }
func (nothing) Subscribe() (<-chan membership.Event, func())                    { return nil, func() {} }
func (nothing) Closing() <-chan struct{}                                        { return nil }

// Who announces a body and sends none must not keep a connection: there are few, and no token is
// needed for that.
func TestABodyThatDoesNotComeKeepsNoConnection(t *testing.T) {
	l, err := Listen(Config{Addr: "127.0.0.1:0", Token: "0123456789abcdef", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := l.Serve(nothing{})
	defer s.Close()
	for _, header := range []string{"", "Content-Length: 1", "Content-Length: 1000000", "Transfer-Encoding: chunked"} {
		for _, what := range []string{"GET /healthz", "GET /api/status", "POST /readyz"} {
			t.Run(what+" "+header, func(t *testing.T) {
				c, err := net.Dial("tcp", s.Addr())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil { // without the rule: for ever
					t.Fatal(err)
				}
				headers := []string{what + " HTTP/1.1", "Host: " + s.Addr()}
				if header == "" {
					headers = append(headers, "Connection: close")
				} else {
					headers = append(headers, header)
				}
				if _, err := fmt.Fprint(c, strings.Join(headers, "\r\n")+"\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				in := bufio.NewReader(c)
				answer, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				want := header != "" && strings.HasPrefix(what, "GET")
				if refused := answer.StatusCode == http.StatusBadRequest; refused != want {
					t.Errorf("answered with %s", answer.Status)
				}
				if _, err := io.Copy(io.Discard, in); err != nil {
					t.Errorf("the connection stays open: %v", err)
				}
			})
		}
	}
}

// Idle connections, of which each is asked for now and then, must not keep others out.
func TestManyConnectionsOfOneAddressKeepNobodyOut(t *testing.T) {
	l, err := Listen(Config{Addr: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := l.Serve(nothing{})
	defer s.Close()
	ask := func(from string) net.Conn {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := d.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil { // without the rule: a minute
			t.Fatal(err)
		}
		return c
	}
	healthy := func(c net.Conn) {
		t.Helper()
		if _, err := fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n", s.Addr()); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("answered with %v, %v", answer, err)
		}
	}
	first := ask("127.0.0.2")
	healthy(first)
	for range maxConnections + 10 {
		healthy(ask("127.0.0.1"))
	}
	healthy(first) // it is older than all of them
}
