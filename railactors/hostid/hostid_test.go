package hostid_test

import (
	"runtime"
	"testing"

	"github.com/polyrail/polyrail/railactors/hostid"
)

func TestAHostIsTheSameEachTime(t *testing.T) {
	id := hostid.ID()
	if again := hostid.ID(); again != id {
		t.Errorf("%q, then %q", id, again)
	}
	if runtime.GOOS == "linux" && id == "" {
		t.Skip("SKIPPED: /proc doesn't tell which host this is")
	}
}
