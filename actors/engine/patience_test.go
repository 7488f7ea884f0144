package engine

import (
	"runtime"
	"sync/atomic"
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

// It yields soon, and not at once.
func TestACallerLooksBeforeItYields(t *testing.T) {
	p := patience{start: 5 * time.Millisecond}
	if now := p.start + 300*time.Nanosecond; !p.hot(now) {
		t.Error("yields 300 ns after the first look")
	}
	if now := p.start + 1200*time.Nanosecond; p.hot(now) {
		t.Error("does not yield 1.2 µs after the first look")
	}
}

// ending is awaited by a caller that counts its looks.
type ending struct {
	looks int
	ended atomic.Bool
	paced pace
}

func (e *ending) over() bool            { e.looks++; return e.ended.Load() }
func (e *ending) Done() <-chan struct{} { return nil }
func (e *ending) pace() *pace           { return &e.paced }

// Operations for which polling is in vain are tried ever more rarely, and all again once one
// succeeds.
func TestPollingInVainIsTriedEverMoreRarely(t *testing.T) {
	var p pace
	pauses := func() (passed int) {
		for !p.due() {
			passed++
		}
		return passed
	}
	for i, want := range []int{0, 0, 1, 2, 4, 8, 16, 16} {
		if got := pauses(); got != want {
			t.Errorf("after %d in vain %d operations pass, want %d", i, got, want)
		}
		p.ended(false)
	}
	pauses()
	p.ended(true)
	p.ended(false)
	if !p.due() {
		t.Error("an operation passes after one in vain")
	}
}

// Where pollers have all processors, they let the process's other goroutines run before long.
func TestPollersPauseForOthersWhereNoProcessorIsLeft(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	g := &Group{engine: New(Config{WaitSpin: time.Hour})}
	var w ending
	go w.ended.Store(true)
	if !g.polls(t.Context(), nil, true, &w) {
		t.Fatal("not over")
	}
	if w.looks > 160 {
		t.Errorf("the other goroutine ran after %d looks", w.looks)
	}
}

// A processor without a poller runs goroutines that nobody is to wake a thread for. Other processes'
// ranks get theirs in any case.
func TestWhoRunsBetweenTwoRoundsOfPolling(t *testing.T) {
	for spare, want := range map[int32][2]int{1: {0, turnEvery}, 0: {1, turnEvery}, -1: {turnEvery, 1}, -7: {turnEvery, 1}} {
		var got [2]int
		for n := range turnEvery {
			goroutines, threads := yields(n, spare)
			if goroutines {
				got[0]++
			}
			if threads {
				got[1]++
			}
		}
		if got != want {
			t.Errorf("%d processors to spare: in %d rounds goroutines and threads run %v times, want %v", spare, turnEvery, got, want)
		}
	}
}
