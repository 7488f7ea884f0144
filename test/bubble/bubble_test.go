package bubble

import (
	"runtime"
	"testing"
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
