package tuning

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polyrail/polyrail/railactors/disk"
	"github.com/polyrail/polyrail/test/bubble"
)

// On a dead file server a call never returns. Who closes a communicator waits for the first one.
func TestAFileSystemThatDoesNotAnswerHoldsUpNobody(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, err := Open(filepath.Join(t.TempDir(), "tuning.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		answer := make(chan struct{})
		if err := s.patiently(func() error { <-answer; return nil }); !errors.Is(err, disk.ErrSilent) {
			t.Errorf("a call that hangs: %v", err)
		}
		began, e := time.Now(), example(2)
		if err := s.Put(e.Key, e.Saved, e.At); !errors.Is(err, disk.ErrSilent) {
			t.Errorf("then Put: %v", err)
		}
		if err := s.Writable(); !errors.Is(err, disk.ErrSilent) {
			t.Errorf("then Writable: %v", err)
		}
		if _, found, _ := s.Get(e.Key); found || time.Since(began) > 0 {
			t.Errorf("found %v, after %v", found, time.Since(began))
		}
		close(answer)
		synctest.Wait()
		if err := s.Put(e.Key, e.Saved, e.At); err != nil {
			t.Errorf("once it answers: %v", err)
		}
	})
}
