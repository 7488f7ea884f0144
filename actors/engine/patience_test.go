package engine

import (
	"testing"
	"time"
)

// A caller polls as long as frames come, and sleeps soon after they stop.
func TestFramesRenewPatience(t *testing.T) {
	const us = time.Microsecond
	p := patience{idle: 200 * us, longest: 4000 * us}
	for now := time.Duration(0); now <= 1500*us; now += 150 * us {
		if p.over(now, true) {
			t.Fatalf("over after %v, with a frame every 150 µs", now)
		}
	}
	if p.over(1650*us, false) {
		t.Error("over 150 µs after the last frame")
	}
	if !p.over(1710*us, false) {
		t.Error("not over 210 µs after the last frame")
	}
}

// Frames of other operations must not keep a caller from its context.
func TestPatienceEndsWhateverArrives(t *testing.T) {
	const longest = 4 * time.Millisecond
	p := patience{idle: longest, longest: longest}
	if p.over(longest, true) {
		t.Error("over too early")
	}
	if !p.over(longest+1, true) {
		t.Error("not over after the longest time")
	}
}
