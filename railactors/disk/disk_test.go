package disk_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polyrail/polyrail/railactors/disk"
	"github.com/polyrail/polyrail/test/bubble"
)

func TestAFileSystemThatDoesNotAnswerHoldsUpNobody(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var c disk.Calls
		broken, answer, began := errors.New("it is broken"), make(chan struct{}), time.Now()
		if err := c.Do(func() error { <-answer; return nil }); !errors.Is(err, disk.ErrSilent) {
			t.Errorf("a call that hangs: %v", err)
		}
		waited := time.Since(began)
		second := func() error { t.Error("a second call is made"); return nil }
		if err := c.Do(second); !errors.Is(err, disk.ErrSilent) {
			t.Errorf("the next one: %v", err)
		}
		if time.Since(began) > waited {
			t.Error("the next one waits")
		}
		close(answer)
		synctest.Wait()
		for _, want := range []error{nil, broken, nil} {
			if err := c.Do(func() error { return want }); err != want {
				t.Errorf("once it answers: %v, want %v", err, want)
			}
		}
	})
}
