package shout

import (
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/secure"
	"github.com/polyrail/polyrail/railactors/transport/secure/keys"
	"github.com/polyrail/polyrail/railactors/transport/tcp"
	"github.com/polyrail/polyrail/test/testbed"
)

// locksmith makes a cluster's keys, and those that do not fit.
type locksmith struct {
	t     *testing.T
	own   keys.Authority
	other keys.Authority // of the same name
	wrong []func() *keys.Credentials
}

// newLocksmith makes the keys of a cluster of the default name.
func newLocksmith(t *testing.T) *locksmith {
	l := &locksmith{t: t, own: keys.Authority{Dir: filepath.Join(t.TempDir(), "own")},
		other: keys.Authority{Dir: filepath.Join(t.TempDir(), "other")}}
	cluster := polyrail.DefaultConfig().Cluster
	if err := errors.Join(l.own.Init(cluster), l.other.Init(cluster)); err != nil {
		t.Fatal(err)
	}
	for _, w := range []struct {
		a    keys.Authority
		node string
	}{{l.other, testbed.NodeName(0)}, {l.own, "outsider"}} {
		if err := w.a.Node(w.node); err != nil {
			t.Fatal(err)
		}
		s, err := keys.NewSource(w.a.Files(w.node), keys.Identity{Cluster: cluster, Node: w.node}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		l.wrong = append(l.wrong, s.Current)
	}
	return l
}

// adapt gives a node keys.
func (l *locksmith) adapt(c *polyrail.Config) {
	if err := l.own.Node(c.Name); err != nil {
		l.t.Fatal(err)
	}
	c.TLS, c.GossipKeys = polyrail.TLS(l.own.Files(c.Name)), l.own.GossipFile()
}

// devices dial: the first one in plain text, the others with keys that do not fit, if there are any.
func (l *locksmith) devices(t *testing.T) (all []transport.Device) {
	t.Helper()
	transports := []transport.Transport{tcp.New(tcp.Options{})}
	if l != nil {
		for _, current := range l.wrong {
			transports = append(transports, secure.Wrap(transports[0], current))
		}
	}
	for _, tr := range transports {
		d, err := tr.Open("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		all = append(all, d)
	}
	return all
}
