package secure_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/mem"
	"github.com/polyrail/polyrail/railactors/transport/secure"
	"github.com/polyrail/polyrail/railactors/transport/secure/keys"
	"github.com/polyrail/polyrail/railactors/transport/tcp"
	"github.com/polyrail/polyrail/railactors/transport/transporttest"
)

// authority makes the keys of a cluster with some nodes.
func authority(t testing.TB, name string, nodes ...string) keys.Authority {
	t.Helper()
	a := keys.Authority{Dir: t.TempDir()}
	err := a.Init(name)
	for _, n := range nodes {
		err = errors.Join(err, a.Node(n))
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// current follows a node's files.
func current(t testing.TB, a keys.Authority, cluster, node string) func() *keys.Credentials {
	t.Helper()
	s, err := keys.NewSource(a.Files(node), keys.Identity{Cluster: cluster, Node: node}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s.Current
}

// proving makes the handshake with the connection: the suite writes before anybody reads.
type proving struct{ transport.Device }

func prove(c transport.Conn, err error) (transport.Conn, error) {
	if err != nil {
		return nil, err
	}
	if _, err := c.ReadFull(nil); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (p proving) Accept() (transport.Conn, error) { return prove(p.Device.Accept()) }

func (p proving) Dial(ctx context.Context, addr string) (transport.Conn, error) {
	return prove(p.Device.Dial(ctx, addr))
}

func TestConformance(t *testing.T) {
	k := authority(t, "test", "a", "b")
	a, b := current(t, k, "test", "a"), current(t, k, "test", "b")
	net := mem.NewNetwork()
	socket := tcp.New(tcp.Options{})
	for name, c := range map[string]struct {
		a, b   transport.Transport
		device string
	}{
		"sealed tcp":  {secure.Wrap(socket, a), secure.Wrap(socket, b), "127.0.0.1"},
		"sealed mem":  {secure.Wrap(net.Transport("a"), a), secure.Wrap(net.Transport("b"), b), "eth0"},
		"checked tcp": {secure.Check(socket), secure.Check(socket), "127.0.0.1"},
		"checked mem": {secure.Check(net.Transport("a")), secure.Check(net.Transport("b")), "eth1"},
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, func(t *testing.T) (transport.Device, transport.Device) {
				da, err := c.a.Open(c.device)
				if err != nil {
					t.Fatal(err)
				}
				db, err := c.b.Open(c.device)
				if err != nil {
					t.Fatal(err)
				}
				return proving{da}, proving{db}
			})
		})
	}
}

// wiretap is a transport that changes what is written to connections that it dialed.
type wiretap struct {
	transport.Transport
	wrote func([]byte) []byte // what is written in place of a buffer
}

func (w wiretap) Open(device string) (transport.Device, error) {
	d, err := w.Transport.Open(device)
	return tapDevice{d, w}, err
}

type tapDevice struct {
	transport.Device
	w wiretap
}

func (d tapDevice) Dial(ctx context.Context, addr string) (transport.Conn, error) {
	c, err := d.Device.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return tapConn{c, d.w}, nil
}

type tapConn struct {
	transport.Conn
	w wiretap
}

func (c tapConn) Write(bufs ...[]byte) (int64, error) {
	n := 0
	for _, b := range bufs {
		n += len(b)
		if out := c.w.wrote(bytes.Clone(b)); len(out) > 0 {
			if _, err := c.Conn.Write(out); err != nil {
				return 0, err
			}
		}
	}
	return int64(n), nil
}

// connect connects near, through the tap if there is one, to far, and makes the handshake. Without
// keys an end speaks plain text.
func connect(t *testing.T, a, b func() *keys.Credentials, tap func([]byte) []byte) (near, far transport.Conn, dialed, accepted error) {
	t.Helper()
	open := func(w transport.Transport, current func() *keys.Credentials) transport.Device {
		if current != nil {
			w = secure.Wrap(w, current)
		}
		d, err := w.Open("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	inner := tcp.New(tcp.Options{})
	db := open(inner, b)
	if tap != nil {
		inner = wiretap{inner, tap}
	}
	da := open(inner, a)
	ends := func(c transport.Conn, err error, first []byte) (transport.Conn, error) {
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { c.Close() })
		err = errors.Join(c.SetReadDeadline(time.Now().Add(10*time.Second)), c.SetWriteDeadline(time.Now().Add(10*time.Second)))
		if _, e := c.Write(first); err == nil && e != nil {
			err = e
		}
		if _, e := c.ReadFull(nil); err == nil && e != nil {
			err = e
		}
		return c, err
	}
	plain := bytes.Repeat([]byte("P"), 200)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := db.Accept()
		if b == nil {
			far, accepted = ends(c, err, plain)
		} else {
			far, accepted = ends(c, err, nil)
		}
		if accepted != nil && c != nil {
			c.Close()
		}
	}()
	c, err := da.Dial(t.Context(), db.Addr())
	if a == nil {
		near, dialed = ends(c, err, plain)
	} else {
		near, dialed = ends(c, err, nil)
	}
	<-done
	return near, far, dialed, accepted
}

func TestTheOtherEndIsWhoItsCertificateSays(t *testing.T) {
	k := authority(t, "test", "a", "b")
	near, far, err, accepted := connect(t, current(t, k, "test", "a"), current(t, k, "test", "b"), nil)
	if err := errors.Join(err, accepted); err != nil {
		t.Fatal(err)
	}
	for c, want := range map[transport.Conn]string{near: "b", far: "a"} {
		if node, ok := c.(transport.Authenticated).Identity(); !ok || node != want {
			t.Errorf("the other end is %q, %v, want %q", node, ok, want)
		}
	}
}

// stranger signs a certificate of another cluster with the authority of this one.
func stranger(t *testing.T, k keys.Authority) func() *keys.Credentials {
	c, err := k.Files("a").Load()
	if err != nil {
		t.Fatal(err)
	}
	c.Cluster = "other" // it believes to be of it
	return func() *keys.Credentials { return c }
}

func TestStrangersAreRefusedAndBothSidesAreTold(t *testing.T) {
	k, other := authority(t, "test", "a", "b"), authority(t, "test", "a")
	for name, c := range map[string]struct {
		dials, accepts   func() *keys.Credentials
		dialed, accepted string
	}{
		"another authority": {current(t, other, "test", "a"), current(t, k, "test", "b"), "unknown authority", "unknown authority"},
		"another cluster":   {stranger(t, k), current(t, k, "test", "b"), `certificate of cluster "test", want "other"`, `does not believe this one: keys: certificate of cluster`},
		"plain, accepted":   {nil, current(t, k, "test", "b"), "", "speaks plain text"},
		"plain, dialed":     {current(t, k, "test", "a"), nil, "speaks plain text", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, dialed, accepted := connect(t, c.dials, c.accepts, nil)
			for who, x := range map[string]struct {
				err  error
				want string
			}{"dialing": {dialed, c.dialed}, "accepting": {accepted, c.accepted}} {
				if x.want != "" && (x.err == nil || !strings.Contains(x.err.Error(), x.want)) {
					t.Errorf("%s: got %v, want %s", who, x.err, x.want)
				}
			}
		})
	}
}

// Whoever dials a node without keys must say nothing in plain text.
func TestADialWithKeysSaysNothingInPlainText(t *testing.T) {
	k := authority(t, "test", "a")
	var seen bytes.Buffer
	near, _, _, _ := connect(t, current(t, k, "test", "a"), nil, func(b []byte) []byte { seen.Write(b); return b })
	if _, err := near.Write([]byte("secret")); !errors.Is(err, transport.ErrPlain) {
		t.Errorf("got %v", err)
	}
	if bytes.Contains(seen.Bytes(), []byte("secret")) {
		t.Error("it was written")
	}
}

func TestKeysAreReadAgainForEachHandshake(t *testing.T) {
	k := authority(t, "test", "a", "b")
	a, b := current(t, k, "test", "a"), current(t, k, "test", "b")
	try := func() error {
		_, _, dialed, accepted := connect(t, a, b, nil)
		return errors.Join(dialed, accepted)
	}
	former, _ := k.Files("a").Load()
	for _, step := range []keys.Step{keys.RotateAdd, keys.RotateUse, keys.RotateDrop} {
		if err := errors.Join(try(), k.Rotate(step), try()); err != nil {
			t.Fatalf("%s: %v", step, err)
		}
	}
	if _, _, _, accepted := connect(t, func() *keys.Credentials { return former }, b, nil); accepted == nil {
		t.Error("the former keys are still believed")
	}
}

// What is changed, repeated, left out or exchanged on the way is never read, and nothing after it is.
func TestWhatIsTamperedWithIsNotRead(t *testing.T) {
	k := authority(t, "test", "a", "b")
	var held []byte
	once := func(on bool, f func([]byte) []byte) func(int, []byte) []byte {
		return func(r int, b []byte) []byte {
			if (r == 1) == on {
				return f(b)
			}
			return b
		}
	}
	for name, tamper := range map[string]func(record int, b []byte) []byte{
		"a bit of the text":    once(true, func(b []byte) []byte { b[40] ^= 1; return b }),
		"a bit of the tag":     once(true, func(b []byte) []byte { b[len(b)-1] ^= 1; return b }),
		"a bit of the length":  once(true, func(b []byte) []byte { b[0] ^= 1; return b }),
		"a record is missing":  once(true, func([]byte) []byte { return nil }),
		"a record comes twice": once(true, func(b []byte) []byte { return append(b, b...) }),
		"two change places": func(r int, b []byte) []byte {
			switch r {
			case 1:
				held = b
				return nil
			case 2:
				return append(b, held...)
			}
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			var on atomic.Bool
			record := -1
			near, far, err, accepted := connect(t, current(t, k, "test", "a"), current(t, k, "test", "b"), func(b []byte) []byte {
				if !on.Load() {
					return b
				}
				record++
				return tamper(record, b)
			})
			if err := errors.Join(err, accepted); err != nil {
				t.Fatal(err)
			}
			on.Store(true)
			text := bytes.Repeat([]byte("polyrail"), 1000)
			go func() {
				for range 5 {
					_, _ = near.Write(text)
				}
			}()
			got, good := make([]byte, len(text)), 0
			for {
				if _, err = far.ReadFull(got); err != nil {
					break
				}
				if !bytes.Equal(got, text) {
					t.Fatal("other bytes were read")
				}
				good++
			}
			want := 1
			if name == "a record comes twice" {
				want = 2
			}
			if good != want || !strings.Contains(err.Error(), "record") {
				t.Errorf("%d of 5 were read, want %d, and then: %v", good, want, err)
			}
			if _, again := far.ReadFull(got); again == nil || again.Error() != err.Error() {
				t.Errorf("read on after that: %v", again)
			}
		})
	}
}

func TestNothingOfTheTextIsSeenOnTheWay(t *testing.T) {
	k := authority(t, "test", "a", "b")
	secret := bytes.Repeat([]byte("known text "), 20)
	var seen bytes.Buffer
	near, far, err, accepted := connect(t, current(t, k, "test", "a"), current(t, k, "test", "b"), func(b []byte) []byte {
		seen.Write(b)
		return b
	})
	if err := errors.Join(err, accepted); err != nil {
		t.Fatal(err)
	}
	if _, err := near.Write(secret, secret); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 2*len(secret))
	if _, err := far.ReadFull(got); err != nil || !bytes.Equal(got[:len(secret)], secret) {
		t.Fatal(err)
	}
	if seen.Len() < len(got) || bytes.Contains(seen.Bytes(), []byte("known")) {
		t.Errorf("the text is in %d bytes", seen.Len())
	}
}

// What waits for input hears that a record was forged, though another goroutine found it.
func TestAwaitEndsWhenARecordIsForged(t *testing.T) {
	k := authority(t, "test", "a", "b")
	var on atomic.Bool
	near, far, err, accepted := connect(t, current(t, k, "test", "a"), current(t, k, "test", "b"), func(b []byte) []byte {
		if on.Load() {
			b[len(b)-1] ^= 1
		}
		return b
	})
	if err := errors.Join(err, accepted); err != nil {
		t.Fatal(err)
	}
	on.Store(true)
	p := far.(transport.Poller)
	waited := make(chan error, 1)
	go func() {
		err := error(nil)
		for err == nil {
			err = p.Await()
		}
		waited <- err
	}()
	if _, err := near.Write([]byte("text")); err != nil {
		t.Fatal(err)
	}
	for {
		if n, err := p.Poll(); n > 0 {
			t.Fatal("it was opened")
		} else if err != nil {
			break
		}
	}
	if err := <-waited; err == nil || !strings.Contains(fmt.Sprint(err), "not authentic") {
		t.Errorf("got %v", err)
	}
}
