package railactors

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

// stranger dials a node's first rail.
func stranger(t testing.TB, net *mem.Network, n *testNode) transport.Conn {
	t.Helper()
	return strangerAt(t, net, "stranger", n)
}

// strangerAt is one of a host.
func strangerAt(t testing.TB, net *mem.Network, host string, n *testNode) transport.Conn {
	t.Helper()
	return dialOver(t, net.Transport(host), "rail0", n)
}

// dialOver dials a node's first rail from a device.
func dialOver(t testing.TB, over transport.Transport, device string, n *testNode) transport.Conn {
	t.Helper()
	d, err := over.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	c, err := d.Dial(t.Context(), n.fabric.Rails()[0].Addr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestGarbageCostsOneConnection(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		for _, garbage := range [][]byte{make([]byte, 1000), payload("x", 1, 5000), {1, 2, 3}, nil} {
			c := stranger(b.t, net, n[1])
			_, _ = c.Write(garbage)
			if _, err := c.ReadFull(make([]byte, 1)); err == nil {
				t.Errorf("garbage of %d bytes was answered", len(garbage))
			}
			c.Close()
		}
		n[0].send(ab, 1, 0, 100, 0)
		n[1].expect("a", 1)
	})
}

func TestAHelloThatDoesNotFitIsRefusedWithTheReason(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		join(n[0], n[1])
		fits := func() *messages.Hello {
			return &messages.Hello{Version: wire.Version, Cluster: "test", Node: "c", Incarnation: 1, To: "b", Rail: "rail0",
				Generation: 1, Session: 1}
		}
		for want, change := range map[string]func(h *messages.Hello){
			"refused: protocol version 9":                  func(h *messages.Hello) { h.Version = 9 },
			"refused: the other byte order":                func(h *messages.Hello) { h.BigEndian = !h.BigEndian },
			`refused: cluster "other"`:                     func(h *messages.Hello) { h.Cluster = "other" },
			`refused: node "z" is meant`:                   func(h *messages.Hello) { h.To = "z" },
			"refused: incarnation 7":                       func(h *messages.Hello) { h.ToIncarnation = 7 },
			`refused: node "b" has no rail`:                func(h *messages.Hello) { h.Rail = "rail7" },
			"refused: a hello of":                          func(h *messages.Hello) { h.Node = "" },
			`refused: session 5 of node "b" has ended`:     func(h *messages.Hello) { h.ToSession = 5 },
			`refused: node "b" has not asked for node "c"`: func(*messages.Hello) {},
			`refused: incarnation 0 of node "a" is gone`:   func(h *messages.Hello) { h.Node, h.Incarnation = "a", 0 },
			`refused: session 999 of node "b" is meant`:    func(h *messages.Hello) { h.Node, h.ToSession, h.Session = "a", 999, 1 },
		} {
			h := fits()
			change(h)
			c := stranger(b.t, net, n[1])
			if err := writeMessage(c, wire.KindHello, h); err != nil {
				t.Fatal(err)
			}
			_, err := readHello(c)
			var r *refusal
			if !errors.As(err, &r) || len(err.Error()) < len(want) || err.Error()[:len(want)] != want {
				t.Errorf("got %v, want %s", err, want)
			}
			c.Close()
		}
	})
}

func TestARailThatCannotBeOpenedChangesNothing(t *testing.T) {
	for name, m := range map[string]*messages.RailOpened{
		"unknown rail": {Rail: "rail7", Addr: "mem:a/rail7#1"},
		"no address":   {Rail: "rail0"},
		"long address": {Rail: "rail0", Addr: strings.Repeat("x", maxAddrBytes+1)},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(b *bed, _ *mem.Network) {
				n := b.start("a", "b")
				ab, ba := join(n[0], n[1])
				before := ba.addrs[0]
				if err := ab.SendControl(&messages.Control{
					Body: &messages.Control_RailOpened{RailOpened: m}}); err != nil {
					t.Fatal(err)
				}
				<-time.After(100 * time.Millisecond)
				ba.mu.Lock()
				defer ba.mu.Unlock()
				if ba.addrs[0] != before {
					t.Errorf("the address is %.20q now", ba.addrs[0])
				}
				if n[1].fabric.rails[0].reconnects.Load() != 0 {
					t.Error("the connection broke")
				}
			})
		})
	}
}

func TestConnectionsThatSayNothingAreLimitedAndEnd(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		n := b.start("a")[0]
		entrance := &n.fabric.rails[0].entrance
		var conns []transport.Conn
		for range maxPerHost + 10 {
			conns = append(conns, stranger(b.t, net, n))
			synctest.Wait()
			if waiting := entrance.size(); waiting > maxPerHost {
				t.Fatalf("%d are waited for", waiting)
			}
		}
		<-time.After(3 * time.Second)
		synctest.Wait()
		if left := entrance.size(); left != 0 {
			t.Errorf("%d are still waited for", left)
		}
		for _, c := range conns {
			c.Close()
		}
	})
}

func TestConnectionsThatAreTurnedDownDoNotFillTheLog(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		var log bytes.Buffer
		b.tune = func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }
		n := b.start("a")[0]
		turn := func(host string, count int) int {
			before := bytes.Count(log.Bytes(), []byte("turned down"))
			for range count {
				c := strangerAt(b.t, net, host, n)
				c.Close()
				synctest.Wait()
			}
			return bytes.Count(log.Bytes(), []byte("turned down")) - before
		}
		if got := turn("x", 100); got != maxTurnedDownPerHost {
			t.Errorf("%d lines of one address", got)
		}
		if got := turn("y", 1); got != 1 {
			t.Errorf("%d lines of another one", got)
		}
		for i := range 100 {
			turn(fmt.Sprint("z", i), 1)
		}
		if got := bytes.Count(log.Bytes(), []byte("turned down")); got != maxTurnedDown {
			t.Errorf("%d lines of all", got)
		}
		<-time.After(turnedDownWindow)
		if got := turn("x", 1); got != 1 {
			t.Errorf("%d lines a minute later", got)
		}
	})
}

// violator is a peer of node b that has shaken hands and then does as it likes.
func violator(b *bed, n *testNode) (transport.Conn, *Peer) {
	b.t.Helper()
	d, err := b.as("a").Open("rail0")
	if err != nil {
		b.t.Fatal(err)
	}
	p, err := n.fabric.Connect(Remote{Node: "a", Incarnation: 1, Rails: []RailAddress{{"rail0", d.Addr()}}})
	if err != nil {
		b.t.Fatal(err)
	}
	c, err := d.Dial(b.t.Context(), n.fabric.Rails()[0].Addr)
	if err != nil {
		b.t.Fatal(err)
	}
	d.Close()
	hello := &messages.Hello{Version: wire.Version, Cluster: "test", Node: "a", Incarnation: 1, To: n.name, Rail: "rail0", Generation: 1, Session: 1}
	if err := writeMessage(c, wire.KindHello, hello); err != nil {
		b.t.Fatal(err)
	}
	if _, err := readHello(c); err != nil {
		b.t.Fatal(err)
	}
	return c, p
}

func TestAViolationOfTheProtocolClosesTheConnection(t *testing.T) {
	control := func(m *messages.Control) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, frame := range map[string]struct {
		h          wire.Header
		payload    []byte
		generation uint8 // added to the connection's
	}{
		"a number out of order":              {h: wire.Header{Kind: wire.KindWant, Number: 2}},
		"an acknowledgement out of thin air": {h: wire.Header{Kind: wire.KindAck, Ack: 100}},
		"credit that nobody spent":           {h: wire.Header{Kind: wire.KindAck, Credit: 1}},
		"a second hello":                     {h: wire.Header{Kind: wire.KindHello}},
		"a frame of another generation":      {h: wire.Header{Kind: wire.KindWant, Number: 1}, generation: 1},
		"a control message that is none":     {h: wire.Header{Kind: wire.KindControl, Number: 1}, payload: []byte{0xff, 0xff, 0xff}},
		"a statement about no rail": {h: wire.Header{Kind: wire.KindControl, Number: 1}, payload: control(&messages.Control{
			Body: &messages.Control_RailClosed{RailClosed: &messages.RailClosed{Rail: "none", Generation: 1}}})},
		"a frame that Land turns down": {h: wire.Header{Kind: wire.KindData, Number: 1, Seq: 66,
			Desc: dataDescriptor}},
	} {
		t.Run(name, func(t *testing.T) {
			eitherWay(t, func(t *testing.T, b *bed) {
				n := b.start("b")[0]
				n.land = func(*Peer, *wire.Header) (Landing, error) { return Landing{}, fmt.Errorf("no such thing") }
				c, p := violator(b, n)
				var header [wire.Size]byte
				frame.h.Length, frame.h.Generation = uint32(len(frame.payload)), 1+frame.generation
				frame.h.Encode(header[:])
				if _, err := c.Write(header[:], frame.payload); err != nil {
					t.Fatal(err)
				}
				for {
					var one [1]byte // an acknowledgement may come first
					if _, err := c.ReadFull(one[:]); err != nil {
						break
					}
				}
				// Its listener is gone: so is the peer.
				n.expectLost(p, "refuses")
				if !errors.Is(p.Lost(), fault.ErrRankLost) {
					t.Error(p.Lost())
				}
				c.Close()
			})
		})
	}
}

// tallied is a transport that knows how many of its connections were not closed.
type tallied struct {
	transport.Transport
	open *atomic.Int64
}

func (t tallied) Open(device string) (transport.Device, error) {
	d, err := t.Transport.Open(device)
	return talliedDevice{d, t.open}, err
}

type talliedDevice struct {
	transport.Device
	open *atomic.Int64
}

func (d talliedDevice) Accept() (transport.Conn, error) {
	c, err := d.Device.Accept()
	return d.tally(c), err
}

func (d talliedDevice) Dial(ctx context.Context, addr string) (transport.Conn, error) {
	c, err := d.Device.Dial(ctx, addr)
	return d.tally(c), err
}

func (d talliedDevice) tally(c transport.Conn) transport.Conn {
	if c == nil {
		return nil
	}
	d.open.Add(1)
	return &talliedConn{Conn: c, open: d.open}
}

type talliedConn struct {
	transport.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *talliedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// Each end closes a connection that was for a question, or that it has turned down: the other one may not.
func TestAConnectionThatIsNotUsedIsClosed(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		open := make(map[string]*atomic.Int64)
		b.open = func(node string) transport.Transport {
			open[node] = new(atomic.Int64)
			return tallied{net.Transport(node), open[node]}
		}
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		check := func(after string) {
			t.Helper()
			synctest.Wait()
			if a, b := open["a"].Load(), open["b"].Load(); a != 1 || b != 1 {
				t.Errorf("after %s node a has %d connections, node b %d", after, a, b)
			}
		}
		check("the start")
		if err := ab.attempt(b.t.Context(), 0, true); err != nil {
			t.Error(err)
		}
		check("a probe")
		c, taken := claimed(b, net, n[1], &messages.Hello{Node: "a", Incarnation: 1, Session: 1, Generation: 1})
		defer c.Close()
		if taken() == nil {
			t.Error("a claim is taken")
		}
		check("a claim")
		ab.incarnation++ // another process answers
		if err := ab.attempt(b.t.Context(), 0, true); err == nil {
			t.Error("another process passes for it")
		}
		ab.incarnation--
		check("a refusal")
	})
}
