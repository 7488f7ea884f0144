package peer

import (
	"math"
	"testing"
)

// A rail whose generation stood at the last number there is would never be connected again.
func TestGenerationsDoNotJump(t *testing.T) {
	c := fixture(t, 2)
	var fx Effects[string]
	for _, generation := range []uint64{2 + maxJump, math.MaxUint64 - 1, math.MaxUint64} {
		if c.Follows(0, generation) {
			t.Errorf("generation %d is said to follow", generation)
		}
		if err := c.PeerClosed(Statement{Rail: 0, Generation: generation}, &fx); err == nil {
			t.Errorf("generation %d is said to be closed", generation)
		}
	}
	if next := c.Propose(0, 0); next != 2 || !c.Follows(0, next) {
		t.Errorf("generation %d is next, want 2", next)
	}
}
