package hostid

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestAHostIsTheSameEachTime(t *testing.T) {
	id, err := ID()
	if err != nil {
		t.Skipf("SKIPPED: which host this is: %v", err)
	}
	if again, err := ID(); again != id || err != nil {
		t.Errorf("%q, then %q, %v", id, again, err)
	}
	if runtime.GOOS == "linux" && id == "" {
		t.Error("this host has no name")
	}
}

func TestWhatDoesNotTellTheHostIsNamed(t *testing.T) {
	dir := t.TempDir()
	told, empty := filepath.Join(dir, "told"), filepath.Join(dir, "empty")
	missing := filepath.Join(dir, "missing")
	for name, text := range map[string]string{told: "a boot\n", empty: "\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, culprit := range []string{empty, missing} {
		id, err := of([]string{told, culprit})
		if id != "" || err == nil || !strings.Contains(err.Error(), culprit) {
			t.Errorf("%q, %v; want an error with %s", id, err, culprit)
		}
	}
}
