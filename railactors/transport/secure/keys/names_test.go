package keys

import (
	"os"
	"testing"
)

func TestNoNodesCertificateTakesThePlaceOfAKey(t *testing.T) {
	a := Authority{Dir: t.TempDir()}
	if err := a.Init("prod"); err != nil {
		t.Fatal(err)
	}
	if err := a.Node("a"); err != nil {
		t.Fatal(err)
	}
	for node, file := range map[string]string{"a-key": a.path("a-key.pem"), "ca-key": a.path(caKeyFile)} {
		before, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Node(node); err == nil {
			t.Errorf("node %q has got a certificate", node)
		}
		if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
			t.Errorf("node %q: %s has changed, error %v", node, file, err)
		}
	}
	if _, err := a.Files("a").Load(); err != nil {
		t.Error(err)
	}
	if err := a.Node("b"); err != nil {
		t.Error(err)
	}
}
