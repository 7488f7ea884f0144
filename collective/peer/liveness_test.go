package peer

import (
	"testing"
	"time"
)

const (
	timeout = 1600 * time.Millisecond
	every   = timeout / TicksPerTimeout
)

// watch ticks until the time is up; hear sets what was heard before each tick.
func watch(l *Liveness, from, until time.Duration, signals []Signal, hear func(now time.Duration)) (last Verdict, at time.Duration) {
	for now := from; now <= until; now += every {
		if hear != nil {
			hear(now)
		}
		if last = l.Tick(now, signals); last.Lost != "" {
			return last, now
		}
	}
	return last, until
}

func TestASilentNodeIsLostBeforeTheTimeout(t *testing.T) {
	l := NewLiveness(timeout, 2, 0)
	l.Connected(0)
	l.Connected(1)
	v, _ := watch(l, every, timeout/4, make([]Signal, 2), nil)
	if v.Ping != 0b11 || v.Fail != 0 || v.Lost != "" {
		t.Errorf("pings %b, fails %b, lost %q", v.Ping, v.Fail, v.Lost)
	}
	v, at := watch(l, timeout/4+every, 10*timeout, make([]Signal, 2), nil)
	if v.Lost == "" || at > timeout || at < timeout*3/4 {
		t.Errorf("lost %q after %v", v.Lost, at)
	}
	if v.Fail != 0 {
		t.Errorf("fails %b", v.Fail)
	}
}

// A ping that isn't answered is asked for again only after as long as a rail may be quiet: many nodes
// that are slow to answer would else be slower still. A new connection is asked at once.
func TestASlowNodeIsAskedNoMoreOftenThanAQuickOne(t *testing.T) {
	l := NewLiveness(timeout, 2, 0)
	l.Connected(0)
	l.Connected(1)
	pings := 0
	tick := func(from, until time.Duration) {
		for now := from; now <= until; now += every {
			// The other rail is heard: else the node would be lost.
			if l.Tick(now, []Signal{{}, {Heard: now, Sent: now}}).Ping.Has(0) {
				pings++
			}
		}
	}
	tick(every, timeout)
	if pings != 4 {
		t.Errorf("%d pings within the rank timeout, want 4", pings)
	}
	pings = 0
	tick(timeout+every, timeout+2*every)
	l.Disconnected(0)
	l.Connected(0)
	tick(timeout+3*every, timeout+3*every)
	if pings != 1 {
		t.Errorf("%d pings after it was connected anew, want 1", pings)
	}
}

func TestANodeThatNeedNotAnswerIsNotMissed(t *testing.T) {
	l := NewLiveness(timeout, 1, 0)
	if v, _ := watch(l, every, 10*timeout, make([]Signal, 1), nil); v != (Verdict{}) {
		t.Errorf("%+v", v)
	}
	l.Expect()
	if v, _ := watch(l, 10*timeout+every, 20*timeout, make([]Signal, 1), nil); v.Lost == "" {
		t.Error("it isn't missed when it should answer")
	}
}

func TestASilentRailFailsWhileAnotherIsHeard(t *testing.T) {
	l := NewLiveness(timeout, 2, 0)
	l.Connected(0)
	l.Connected(1)
	signals := make([]Signal, 2)
	v, _ := watch(l, every, timeout/2+every, signals, func(now time.Duration) { signals[1].Heard = now })
	if v.Fail != 0b01 || v.Lost != "" {
		t.Errorf("%+v", v)
	}
	l.Disconnected(0)
	v, _ = watch(l, timeout, 5*timeout, signals, func(now time.Duration) { signals[1].Heard = now })
	if v.Fail != 0 || v.Lost != "" || v.Ping.Has(0) {
		t.Errorf("%+v", v)
	}
}

func TestABusyReaderHearsNothingAndMissesNothing(t *testing.T) {
	l := NewLiveness(timeout, 1, 0)
	l.Connected(0)
	v, _ := watch(l, every, 10*timeout, []Signal{{Busy: true}}, nil)
	if v.Lost != "" || v.Fail != 0 || !v.Ping.Has(0) {
		t.Errorf("%+v: it has to show that it lives itself", v)
	}
	// It listens again, and is given the time to hear something.
	if v := l.Tick(10*timeout+every, []Signal{{}}); v.Lost != "" || v.Fail != 0 {
		t.Errorf("just done with a frame: %+v", v)
	}
	if _, at := watch(l, 10*timeout+2*every, 20*timeout, []Signal{{}}, nil); at > 11*timeout {
		t.Errorf("lost only %v after the reader was done", at-10*timeout)
	}
}

func TestANodeThatStoodStillGivesOthersTime(t *testing.T) {
	l := NewLiveness(timeout, 1, 0)
	l.Connected(0)
	watch(l, every, timeout/4, make([]Signal, 1), nil)
	if v := l.Tick(100*timeout, make([]Signal, 1)); v.Lost != "" {
		t.Errorf("lost: %s", v.Lost)
	}
	v, at := watch(l, 100*timeout+every, 200*timeout, make([]Signal, 1), nil)
	if v.Lost == "" || at-100*timeout < timeout*3/4 {
		t.Errorf("lost %q %v after it went on", v.Lost, at-100*timeout)
	}
}

func TestANodeWhoseHostRefusesOnAllRailsIsGone(t *testing.T) {
	l := NewLiveness(timeout, 2, 0)
	l.Connected(0)
	l.Connected(1)
	if l.Refused(0) {
		t.Error("gone, though connected")
	}
	l.Disconnected(0)
	if l.Refused(0) {
		t.Error("gone, though connected on another rail")
	}
	l.Disconnected(1)
	if !l.Refused(1) {
		t.Error("not gone")
	}
	l.Connected(0)
	l.Disconnected(0)
	if l.Refused(1) {
		t.Error("gone, though rail 0 was up since it refused")
	}
}

func TestBackoffGrowsUpToItsLimit(t *testing.T) {
	want := []time.Duration{0, 10, 20, 40, 80, 100, 100}
	for k, w := range want {
		if got := Backoff(k, 10, 100); got != w {
			t.Errorf("attempt %d waits %d, want %d", k, got, w)
		}
	}
}

// A node whose own ticks come late waits for others by that much longer.
func TestALateNodeGivesOthersItsLateness(t *testing.T) {
	const timeout = 1600 * time.Millisecond
	lost := func(period time.Duration) time.Duration {
		l := NewLiveness(timeout, 1, 0)
		l.Connected(0)
		for now := period; ; now += period {
			if l.Tick(now, []Signal{{}}).Lost != "" {
				return now
			}
		}
	}
	const period = timeout / TicksPerTimeout
	if got := lost(period); got > timeout {
		t.Errorf("lost after %v", got)
	}
	if got := lost(3 * period); got < timeout+timeout/2 || got > 2*timeout+3*period {
		t.Errorf("with late ticks lost after %v", got)
	}
}
