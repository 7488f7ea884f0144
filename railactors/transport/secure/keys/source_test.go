package keys

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/polyrail/polyrail/railactors/disk"
	"github.com/polyrail/polyrail/test/bubble"
)

func TestASourceKeepsItsKeysWhileAReadHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := Authority{t.TempDir()}
		if err := errors.Join(a.Init("test"), a.Node("a")); err != nil {
			t.Fatal(err)
		}
		s, err := NewSource(a.Files("a"), Identity{"test", "a"}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		before := s.Current()
		if err := a.Node("a"); err != nil { // a new certificate
			t.Fatal(err)
		}
		answer := make(chan struct{})
		if err := s.disk.Do(func() error { <-answer; return nil }); !errors.Is(err, disk.ErrSilent) {
			t.Fatal(err)
		}
		if err := s.look(); !errors.Is(err, ErrKeys) {
			t.Errorf("what the log gets: %v", err)
		}
		if s.Current() != before {
			t.Error("the files were read")
		}
		close(answer)
		synctest.Wait()
		if s.Current() == before {
			t.Error("the new certificate is not used")
		}
	})
}
