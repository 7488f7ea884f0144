package observe

import (
	"fmt"
	"strings"
	"testing"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/railactors/transport/secure/keys"
	"github.com/polyrail/polyrail/test/testbed"
)

func TestTheEndOfTheCertificateIsShown(t *testing.T) {
	a := keys.Authority{Dir: t.TempDir() + "/keys"}
	if err := a.Init(polyrail.DefaultConfig().Cluster); err != nil {
		t.Fatal(err)
	}
	c := watched(t, 2, 1, func(cfg *polyrail.Config) {
		if cfg.Name != testbed.NodeName(0) {
			return // the two never meet
		}
		if err := a.Node(cfg.Name); err != nil {
			t.Fatal(err)
		}
		cfg.TLS, cfg.GossipKeys = polyrail.TLS(a.Files(cfg.Name)), a.GossipFile()
	})
	files, err := a.Files(testbed.NodeName(0)).Load()
	if err != nil {
		t.Fatal(err)
	}
	const name = "polyrail_certificate_expiry_timestamp_seconds"
	want := fmt.Sprintf("%s %v", name, float64(files.Until().Unix()))
	if _, text := get(t, c.Nodes[0], "/metrics"); !strings.Contains(text, want) {
		t.Errorf("with keys: no %s", want)
	}
	if _, text := get(t, c.Nodes[1], "/metrics"); strings.Contains(text, name) {
		t.Error("a node without keys has a certificate's end")
	}
}
