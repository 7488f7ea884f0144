package railactors

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/mem"
	"github.com/polyrail/polyrail/railactors/transport/secure"
	"github.com/polyrail/polyrail/railactors/transport/secure/keys"
)

// ring has the keys of nodes of a cluster in virtual time, which certificates are of.
type ring struct {
	t testing.TB
	keys.Authority
}

// newRing makes the keys of nodes a, b and c in a directory.
func newRing(t testing.TB, dir string) *ring {
	r := &ring{t, keys.Authority{Dir: dir}}
	err := r.Init("test")
	for _, n := range []string{"a", "b", "c"} {
		err = errors.Join(err, r.Node(n))
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *ring) source(node string) *keys.Source {
	s, err := keys.NewSource(r.Files(node), keys.Identity{Cluster: "test", Node: node}, slog.New(slog.DiscardHandler))
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// sealed runs a test on nodes with keys.
func sealed(t *testing.T, rails int, test func(b *bed, net *mem.Network, k *ring)) {
	dir := t.TempDir()
	virtual(t, rails, func(b *bed, net *mem.Network) {
		k := newRing(t, dir)
		b.also(func(c *Config) { c.Keys = k.source(c.Node) })
		b.as = func(node string) transport.Transport {
			return secure.Wrap(net.Transport(node), k.source(node).Current)
		}
		test(b, net, k)
	})
}

// also has the nodes that are started from now on tuned by f, too.
func (b *bed) also(f func(*Config)) {
	before := b.tune
	b.tune = func(c *Config) {
		if before != nil {
			before(c)
		}
		f(c)
	}
}

// eitherWay runs a test on a rail without keys, and on one with keys: what a member must not do.
func eitherWay(t *testing.T, test func(t *testing.T, b *bed)) {
	t.Run("plain", func(t *testing.T) {
		virtual(t, 1, func(b *bed, _ *mem.Network) { test(t, b) })
	})
	t.Run("sealed", func(t *testing.T) {
		sealed(t, 1, func(b *bed, _ *mem.Network, _ *ring) { test(t, b) })
	})
}

func TestSealedRailsCarryFramesAndSurviveCuts(t *testing.T) {
	sealed(t, 2, func(b *bed, _ *mem.Network, _ *ring) {
		n := b.start("a", "b")
		ab, ba := join(n[0], n[1])
		sizes := []int{0, 1, 100, 4 << 10, 16 << 10, 17 << 10, 100 << 10, 256 << 10}
		const frames = 200
		for seq := range uint64(frames) {
			n[0].send(ab, seq+1, int(seq)%2, sizes[seq%8], 0)
			n[1].send(ba, seq+1, int(seq)%2, sizes[(seq+3)%8], 0)
			if seq%20 == 10 {
				breakRail(ab, int(seq/20)%2)
			}
		}
		n[0].expect("b", frames)
		n[1].expect("a", frames)
		n[0].expectReleased(frames, nil)
		n[1].expectReleased(frames, nil)
		if s := n[0].fabric.Rails()[0]; s.Reconnects == 0 || s.Protocol != "mem+tls" {
			t.Errorf("the fault was not seen, or the rail is %s", s.Protocol)
		}
	})
}

func TestAMixedClusterIsRefusedAndBothSidesAreTold(t *testing.T) {
	for _, c := range []struct{ a, b, dialed, accepted string }{
		{"keys", "", "the other node speaks plain text, this one has keys", "the other node seals this rail, this one does not"},
		{"", "keys", `refused: node "b" has keys and reads no plain text on rail "rail0"`, "the other node speaks plain text, this one has keys"},
		{"keys", "others", "signed by unknown authority", "signed by unknown authority"},
		{"checks", "", "the other node does not check what arrives", "the other node checks what arrives"},
		{"", "checks", `refused: node "b" checks what arrives on rail "rail0" (integrity)`, "the other node does not check what arrives"},
		{"keys", "checks", "the other node speaks plain text, this one has keys", "the other node does not check what arrives"},
		{"checks", "keys", "the other node does not check what arrives", "the other node speaks plain text, this one has keys"},
	} {
		t.Run(c.a+" and "+c.b, func(t *testing.T) {
			mode := map[string]string{"a": c.a, "b": c.b}
			dirs := []string{t.TempDir(), t.TempDir()}
			virtual(t, 1, func(b *bed, _ *mem.Network) {
				k, other := newRing(t, dirs[0]), newRing(t, dirs[1])
				var said lines
				b.tune = func(cfg *Config) {
					switch mode[cfg.Node] {
					case "keys":
						cfg.Keys = k.source(cfg.Node)
					case "others":
						cfg.Keys = other.source(cfg.Node)
					case "checks":
						cfg.Integrity = true
					}
					if cfg.Node == "b" {
						cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
					}
				}
				n := b.start("a", "b")
				ab, _ := n[0].connect(n[1]), n[1].connect(n[0])
				<-time.After(time.Second)
				if n[0].fabric.Rails()[0].Up || n[1].fabric.Rails()[0].Up {
					t.Fatal("they are connected")
				}
				ab.mu.Lock()
				why := fmt.Sprint(ab.attempts[0])
				ab.mu.Unlock()
				if !strings.Contains(why, c.dialed) {
					t.Errorf("the dialing side was told: %s", why)
				}
				if !strings.Contains(said.String(), c.accepted) {
					t.Errorf("the accepting side was told: %s", said.String())
				}
			})
		})
	}
}

// lines is a log that several goroutines write.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Keys are rotated while frames flow and connections break.
func TestKeysAreRotatedUnderTheFlowOfFrames(t *testing.T) {
	sealed(t, 2, func(b *bed, _ *mem.Network, k *ring) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		seq := uint64(0)
		for _, step := range []keys.Step{keys.RotateAdd, keys.RotateUse, keys.RotateDrop} {
			if err := k.Rotate(step); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				seq++
				n[0].send(ab, seq, int(seq)%2, 100<<10, 0)
				if seq%10 == 5 {
					breakRail(ab, int(seq/10)%2)
				}
			}
			n[1].expect("a", seq)
			<-time.After(100 * time.Millisecond)
		}
		if r := n[0].fabric.Rails(); r[0].Reconnects+r[1].Reconnects < 3 {
			t.Error("the rails were not connected anew")
		}
	})
}
