package keys

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polyrail/polyrail/test/bubble"
)

// On a dead file server a read never returns.
func TestAFileSystemThatDoesNotAnswerHoldsUpNobody(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, answer := newPatient[int](), make(chan struct{})
		began := time.Now()
		first := func() (int, error) { <-answer; return 1, nil }
		if _, err := p.read(first); !errors.Is(err, errSilent) {
			t.Errorf("a read that hangs: %v", err)
		}
		waited := time.Since(began)
		second := func() (int, error) { t.Error("a second read hangs"); return 2, nil }
		if _, err := p.read(second); !errors.Is(err, errSilent) {
			t.Errorf("the next one: %v", err)
		}
		if time.Since(began) > waited {
			t.Error("the next one waits")
		}
		close(answer)
		synctest.Wait()
		if v, err := p.read(func() (int, error) { return 3, nil }); v != 3 || err != nil {
			t.Errorf("once it answers: %d, %v", v, err)
		}
	})
}

func TestASourceKeepsItsKeysWhileAReadHangs(t *testing.T) {
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
	<-s.disk.free // as a read has it
	if s.Current() != before {
		t.Error("the files were read")
	}
	s.disk.free <- struct{}{}
	if s.Current() == before {
		t.Error("the new certificate is not used")
	}
}
