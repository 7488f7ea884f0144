package bubble

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestTimeIsVirtualAndThreadsComeBack(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	Test(t, func(t *testing.T) {
		if n := runtime.GOMAXPROCS(0); raceDetector && n != 1 {
			t.Errorf("GOMAXPROCS is %d under the race detector", n)
		}
		start := time.Now()
		<-time.After(time.Hour)
		if passed := time.Since(start); passed != time.Hour {
			t.Errorf("%v have passed, want an hour of virtual time", passed)
		}
	})
	if n := runtime.GOMAXPROCS(0); n != before {
		t.Errorf("GOMAXPROCS was %d and is %d", before, n)
	}
}

func TestGoroutinesAreThoseOfTheBubble(t *testing.T) {
	if n := Goroutines(); n != 0 {
		t.Errorf("%d outside a bubble", n)
	}
	Test(t, func(t *testing.T) {
		before := Goroutines()
		end := make(chan struct{})
		for range 3 {
			go func() { <-end }()
		}
		synctest.Wait()
		if n := Goroutines(); before < 1 || n != before+3 {
			t.Errorf("%d, and %d with three more", before, n)
		}
		close(end)
		synctest.Wait()
		if n := Goroutines(); n != before {
			t.Errorf("%d before and %d after", before, n)
		}
	})
}
