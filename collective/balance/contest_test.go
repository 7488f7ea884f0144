package balance

import (
	"slices"
	"testing"
)

// On a noisy host, lines that promise much lead away from the baseline at once. Where a contest has led
// back there, they were wrong, and only another contest leads away.
func TestWhatAContestHasLedToIsLeftByAContest(t *testing.T) {
	noisyHome := func() (*Balancer, *class, []int) {
		b, k := exactly([]int{48, 48}, 1, 4)
		k.own.variance = 0.09 * 0.09
		return b, k, []int{77, 19}
	}
	b, k, promised := noisyHome()
	if left := b.leave(someClass, promised, -10); !left || k.mode != settling || !slices.Equal(k.shares, promised) {
		t.Errorf("without a contest: left %v, %v with %v", left, k.mode, k.shares)
	}
	b, k, promised = noisyHome()
	k.trials.double(samplePause)
	if left := b.leave(someClass, promised, -10); left || !k.atHome() {
		t.Errorf("right after a contest: left %v, %v with %v", left, k.mode, k.shares)
	}
	for !k.trials.due() {
		k.trials.tick()
	}
	if left := b.leave(someClass, promised, -10); !left || k.mode != comparing || !slices.Equal(k.shares, promised) {
		t.Errorf("after its pause: left %v, %v with %v", left, k.mode, k.shares)
	}
	for k.mode == comparing { // operations take as long with either
		k.contend(-10)
	}
	if !k.atHome() {
		t.Errorf("after a tie %v are in force", k.shares)
	}
}
