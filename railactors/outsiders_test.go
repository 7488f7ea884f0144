package railactors

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/mem"
	"github.com/polyrail/polyrail/railactors/transport/secure"
	"github.com/polyrail/polyrail/railactors/transport/secure/keys"
	"github.com/polyrail/polyrail/test/bubble"
)

// outsider may not speak for node a of a cluster with keys.
type outsider struct {
	keys   func() *keys.Credentials // nil: it has none
	answer string                   // to a hello in a's name
}

// outsiders are the kinds there are. Each of them believes the nodes of the cluster, so that it
// says all that it can.
func (r *ring) outsiders(dir string) map[string]outsider {
	other := newRing(r.t, filepath.Join(dir, "other"))
	believing := func(f keys.Files, cluster, node string) func() *keys.Credentials {
		all := filepath.Join(dir, cluster+"-"+node+"-ca.pem")
		var text []byte
		for _, name := range []string{f.CA, r.Files("a").CA} {
			b, err := os.ReadFile(name)
			if err != nil {
				r.t.Fatal(err)
			}
			text = append(text, b...)
		}
		if err := os.WriteFile(all, text, 0o600); err != nil {
			r.t.Fatal(err)
		}
		f.CA = all
		s, err := keys.NewSource(f, keys.Identity{Cluster: cluster, Node: node}, slog.New(slog.DiscardHandler))
		if err != nil {
			r.t.Fatal(err)
		}
		return s.Current
	}
	unbelieved := "the other node does not believe this one: keys: "
	return map[string]outsider{
		"no key": {nil, `refused: node "b" has keys and reads no plain text on rail "rail0"`},
		"a key of another authority": {believing(other.Files("a"), "test", "a"),
			unbelieved + "x509: certificate signed by unknown authority"},
		"a key of another cluster": {pretending(believing(r.issue(dir, "polyrail://else/a"), "else", "a")),
			unbelieved + `certificate of cluster "else", want "test"`},
		"a key of another node": {r.source("c").Current,
			`refused: a hello of node "a" with the certificate of node "c"`},
	}
}

// pretending takes nodes of the cluster under attack for its own.
func pretending(current func() *keys.Credentials) func() *keys.Credentials {
	c := *current()
	c.Cluster = "test"
	return func() *keys.Credentials { return &c }
}

// issue has the ring's authority sign a certificate of a name that it would not make.
func (r *ring) issue(dir, name string) keys.Files {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.Dir, "ca-key.pem"))
	if err != nil {
		r.t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	signing, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		r.t.Fatal(err)
	}
	if text, err = os.ReadFile(r.Files("a").CA); err != nil {
		r.t.Fatal(err)
	}
	block, _ = pem.Decode(text)
	authority, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		r.t.Fatal(err)
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		r.t.Fatal(err)
	}
	uri, err := url.Parse(name)
	if err != nil {
		r.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), URIs: []*url.URL{uri},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter}
	cert, err := x509.CreateCertificate(rand.Reader, template, authority, own.Public(), signing)
	if err != nil {
		r.t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		r.t.Fatal(err)
	}
	f := keys.Files{Cert: filepath.Join(dir, "odd.pem"), Key: filepath.Join(dir, "odd-key.pem"), CA: r.Files("a").CA}
	for file, b := range map[string]*pem.Block{f.Cert: {Type: "CERTIFICATE", Bytes: cert}, f.Key: {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(b), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	return f
}

// dial connects an outsider to a node's first rail, from a host of its own.
func (o outsider) dial(t testing.TB, net *mem.Network, host string, to *testNode) transport.Conn {
	t.Helper()
	if o.keys == nil {
		return strangerAt(t, net, host, to)
	}
	d, err := secure.Wrap(net.Transport(host), o.keys).Open("rail0")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	c, err := d.Dial(t.Context(), to.fabric.Rails()[0].Addr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// claims are hellos in the name of node a that would cost it dearly without keys.
func claims(ab, ba *Peer) map[string]*messages.Hello {
	all := map[string]*messages.Hello{
		"a later process":       {Incarnation: 2, Generation: 1, Session: 1},
		"the last process ever": {Incarnation: math.MaxUint64, Generation: 1, Session: 1},
		"it has started over":   {Incarnation: 1, Generation: 1, Session: ab.session + 1<<sessionBits},
		"a second connection":   {Incarnation: 1, Generation: 2, Session: ab.session, ToSession: ba.session},
		"the last connection":   {Incarnation: 1, Generation: math.MaxUint64, Session: ab.session, ToSession: ba.session},
		"a probe":               {Incarnation: 2, Generation: 1, Session: 1, Probe: true},
	}
	for _, h := range all {
		h.Version, h.Cluster, h.Node, h.To, h.Rail = wire.Version, "test", "a", "b", "rail0"
	}
	return all
}

func TestWithKeysANodeIsWhoItsCertificateSays(t *testing.T) {
	dir := t.TempDir()
	sealed(t, 1, func(b *bed, net *mem.Network, k *ring) {
		n := b.start("a", "b")
		ab, ba := join(n[0], n[1])
		for who, o := range k.outsiders(dir) {
			for what, h := range claims(ab, ba) {
				c := o.dial(b.t, net, "stranger", n[1])
				err := writeMessage(c, wire.KindHello, h)
				if err == nil {
					forge(c, h.Generation)
					_, err = readHello(c)
				}
				if err == nil || !strings.HasPrefix(err.Error(), o.answer) {
					t.Errorf("%s, %s: answered with %v, want %s", who, what, err, o.answer)
				}
				c.Close()
			}
		}
		b.undisturbed(ab, 0)
	})
}

// undisturbed fails unless the connection of a and b is the one that was made first, carries frames,
// and comes back after a cut. Frames 1 … last were sent before.
func (b *bed) undisturbed(ab *Peer, last uint64) {
	b.t.Helper()
	from, to := b.nodes[0], b.nodes[1]
	from.send(ab, last+1, 0, 100, 0)
	to.expect("a", last+1)
	if ab.Lost() != nil || to.fabric.Rails()[0].Reconnects != 0 {
		b.t.Errorf("the connection was disturbed: %v", ab.Lost())
	}
	breakRail(ab, 0)
	from.send(ab, last+2, 0, 100, 0)
	to.expect("a", last+2)
	to.mu.Lock()
	defer to.mu.Unlock()
	if len(to.frames) != int(last)+2 {
		b.t.Errorf("%d frames were delivered, %d were sent", len(to.frames), last+2)
	}
}

// Outsiders come in numbers, say nothing, garbage or hellos in many names, and stay. Frames flow
// meanwhile, and nothing is left of them in the end.
func TestOutsidersReachNothingBehindKeys(t *testing.T) {
	dir := t.TempDir()
	sealed(t, 1, func(b *bed, net *mem.Network, k *ring) {
		n := b.start("a", "b")
		ab, ba := join(n[0], n[1])
		synctest.Wait()
		before := bubble.Goroutines()
		all := k.outsiders(dir)
		kinds := slices.Sorted(maps.Keys(all))
		said := claims(ab, ba)
		names := slices.Sorted(maps.Keys(said))
		const connections = 1000
		var conns []transport.Conn
		for i := range connections {
			c := all[kinds[i%len(kinds)]].dial(b.t, net, fmt.Sprint("host", i%7), n[1])
			conns = append(conns, c)
			switch i / len(kinds) % 4 {
			case 0: // makes the handshake, if it has keys, and says nothing
				_, _ = c.ReadFull(nil)
			case 1:
				_, _ = c.Write(payload("x", uint64(i), 5000)) // it may be refused meanwhile
			case 2:
				h := &messages.Hello{Version: wire.Version, Cluster: "test", Node: fmt.Sprint("x", i, strings.Repeat("y", i%2*3000)),
					Incarnation: 1, To: "b", Rail: "rail0", Generation: 1, Session: 1}
				_ = writeMessage(c, wire.KindHello, h)
			case 3:
				h := said[names[i%len(names)]]
				if writeMessage(c, wire.KindHello, h) == nil {
					forge(c, h.Generation)
				}
			}
			if synctest.Wait(); i%200 == 0 {
				n[0].send(ab, uint64(i/200)+1, 0, 1000, 0)
			}
		}
		n[1].expect("a", connections/200)
		<-time.After(3 * time.Second) // the silent ones' time is up
		f := n[1].fabric
		f.mu.Lock()
		if left := f.rails[0].entrance.size(); left+f.held+len(f.awaited)+len(f.heldOf)+len(f.losses)+len(f.shaking) != 0 {
			t.Errorf("left: %d that say nothing, %d held, %v, %v", left, f.held, f.awaited, f.heldOf)
		}
		f.mu.Unlock()
		for _, c := range conns {
			c.Close()
		}
		synctest.Wait()
		if after := bubble.Goroutines(); after > before {
			t.Errorf("%d goroutines, %d before", after, before)
		}
		b.undisturbed(ab, connections/200)
	})
}

// A member whose certificate is in order keeps nobody out either, however many connections it makes.
func TestAMembersSilentConnectionsKeepNobodyOut(t *testing.T) {
	sealed(t, 1, func(b *bed, net *mem.Network, k *ring) {
		n := b.start("a", "b")
		member := outsider{keys: k.source("c").Current}
		var conns []transport.Conn
		for i := range 2 * maxPerHost {
			c := member.dial(b.t, net, "c", n[1])
			conns = append(conns, c)
			h := &messages.Hello{Version: wire.Version, Cluster: "test", Node: "c", Incarnation: 1, To: "b", Rail: "rail0",
				Generation: 1, Session: 1}
			if i%2 == 0 {
				if err := writeMessage(c, wire.KindHello, h); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
		}
		ab, _ := join(n[0], n[1])
		b.undisturbed(ab, 0)
		refused := 0
		<-time.After(3 * time.Second)
		for _, c := range conns {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			if _, err := readHello(c); errors.As(err, new(*refusal)) {
				refused++
			}
			c.Close()
		}
		if f := n[1].fabric; f.rails[0].entrance.size() != 0 || refused < maxPerHost {
			t.Errorf("%d are waited for, %d were refused", f.rails[0].entrance.size(), refused)
		}
	})
}
