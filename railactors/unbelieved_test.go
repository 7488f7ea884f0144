package railactors

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/polyrail/polyrail/railactors/transport/mem"
	"github.com/polyrail/polyrail/railactors/transport/secure/keys"
)

// Connections keep the keys with which they were made. Where they break and can't be made again, since
// the nodes' certificates are believed no more, the loss says so on both sides.
func TestALossForWantOfKeysSaysSo(t *testing.T) {
	dir, copied := t.TempDir(), t.TempDir()
	virtual(t, 1, func(b *bed, _ *mem.Network) {
		k := newRing(t, dir)
		if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		later := &ring{t, keys.Authority{Dir: copied}}
		b.also(func(c *Config) {
			if c.Node == "a" {
				c.Keys = later.source(c.Node)
			} else {
				c.Keys = k.source(c.Node)
			}
		})
		n := b.start("a", "b")
		ab, ba := join(n[0], n[1])
		for _, step := range []keys.Step{keys.RotateAdd, keys.RotateUse, keys.RotateDrop} {
			if err := later.Rotate(step); err != nil {
				t.Fatal(err)
			}
		}
		breakRail(ab, 0)
		<-time.After(10 * time.Second)
		for _, p := range []*Peer{ab, ba} {
			if err := p.Lost(); err == nil || !strings.Contains(err.Error(), "unknown authority") {
				t.Error(errors.Join(err, errors.New("names no certificate")))
			}
		}
	})
}
