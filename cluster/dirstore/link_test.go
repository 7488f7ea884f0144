package dirstore

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Who may write beside the directories of clusters must not have this node write and remove files
// elsewhere.
func TestALinkInPlaceOfAClustersDirectoryIsNotFollowed(t *testing.T) {
	shared, elsewhere := t.TempDir(), t.TempDir()
	file := filepath.Join(elsewhere, "results.json")
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(file, long, long); err != nil {
		t.Fatal(err)
	}
	s, e := New(shared), entry("red", "a")
	if err := os.Symlink(elsewhere, s.of("red")); err != nil {
		t.Fatal(err)
	}
	if values, err := s.List(t.Context(), "red", ttl); err == nil {
		t.Errorf("List: %q", values)
	}
	if err := s.Put(t.Context(), e, ttl); err == nil {
		t.Error("Put follows it")
	}
	if err := s.Remove(t.Context(), e); err == nil {
		t.Error("Remove follows it")
	}
	left, err := os.ReadDir(elsewhere)
	if err != nil || len(left) != 1 || left[0].Name() != "results.json" {
		t.Errorf("elsewhere there is %v, %v", left, err)
	}
}
