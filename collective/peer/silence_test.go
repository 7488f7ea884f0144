package peer

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestASilentRailIsFoundWithinTheTimeout begins the silence at each phase of the checks.
func TestASilentRailIsFoundWithinTheTimeout(t *testing.T) {
	const timeout, every = 200 * time.Millisecond, 200 * time.Millisecond / ChecksPerTimeout
	for phase := time.Duration(0); phase < every; phase += time.Millisecond {
		s := NewSilence(timeout, 2)
		cut := 10*every + phase
		for now := time.Duration(0); ; now += every {
			alive := Progress{Awaiting: true, Acked: uint64(now), LastAck: time.Millisecond}
			p := alive
			if now > cut {
				p.Acked, p.LastAck = uint64(cut), now-cut
			}
			s.Observe(0, now, p)
			s.Observe(1, now, alive)
			if dead := s.Dead(3); dead != 0 {
				if took := now - cut; dead != 1 || took > timeout || took < timeout/2 {
					t.Errorf("phase %v: rails %b dead after %v", phase, dead, took)
				}
				break
			}
			if now > cut+timeout {
				t.Fatalf("phase %v: not found", phase)
			}
		}
	}
}

func TestWhatIsNoSilence(t *testing.T) {
	const ms = time.Millisecond
	alive := func(time.Duration) Progress { return Progress{} }
	for name, rail := range map[string]func(now time.Duration) Progress{
		"idle for long": func(now time.Duration) Progress { return Progress{LastAck: now} },
		"answers only probes, as for a stopped process": func(now time.Duration) Progress {
			return Progress{Awaiting: now%(400*ms) == 0, Acked: 7, LastAck: now % (400 * ms)}
		},
		"confirms the same byte again and again": func(now time.Duration) Progress {
			return Progress{Awaiting: true, Acked: 7, LastAck: now % (100 * ms)}
		},
		"moves every 100 ms": func(now time.Duration) Progress {
			return Progress{Awaiting: true, Acked: uint64(now / (100 * ms)), LastAck: now % (100 * ms)}
		},
		"begins anew after long idleness": func(now time.Duration) Progress {
			return Progress{Awaiting: now%(10*time.Second) < 100*ms, Acked: 7, LastAck: now % (10 * time.Second)}
		},
		"a long way": func(now time.Duration) Progress {
			return Progress{Awaiting: true, Acked: uint64(now / (700 * ms)), LastAck: now % (700 * ms), RTT: 600 * ms}
		},
	} {
		s := NewSilence(200*ms, 2)
		for now := time.Duration(0); now < 30*time.Second; now += 25 * ms {
			s.Observe(0, now, rail(now))
			s.Observe(1, now, alive(now))
			if dead := s.Dead(3); dead != 0 {
				t.Errorf("%s: taken for dead after %v", name, now)
				break
			}
		}
	}
}

func TestTheLastRailThatIsLeftIsNotGivenUp(t *testing.T) {
	const ms = time.Millisecond
	s := NewSilence(200*ms, 3)
	for now := time.Duration(0); now < time.Second; now += 25 * ms {
		for r := range 3 {
			s.Observe(r, now, Progress{Awaiting: true, LastAck: now})
		}
		if dead := s.Dead(0b111); dead != 0 {
			t.Fatalf("rails %b dead after %v, while nothing shows that the host is there", dead, now)
		}
	}
	if s.Observe(1, time.Second, Progress{LastAck: time.Second}); s.Dead(0b101) != 0 {
		t.Error("a rail that isn't in use showed life")
	}
	if dead := s.Dead(0b111); dead != 0b101 {
		t.Errorf("rails %b dead, want 101: rail 1 has come back to life", dead)
	}
	s.Reset(0)
	if dead := s.Dead(0b111); dead != 0b100 {
		t.Errorf("rails %b dead after a new connection of rail 0", dead)
	}
}

// TestAStarvedNodeFindsNoSilence: checks that come late, at random, see what the host confirmed
// meanwhile.
func TestAStarvedNodeFindsNoSilence(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	s := NewSilence(200*time.Millisecond, 2)
	for now := time.Duration(0); now < time.Hour; now += time.Duration(random.Int64N(int64(3 * time.Second))) {
		for r := range 2 {
			s.Observe(r, now, Progress{Awaiting: random.IntN(4) > 0, Acked: uint64(now), LastAck: time.Duration(random.IntN(100)) * time.Millisecond})
		}
		if dead := s.Dead(3); dead != 0 {
			t.Fatalf("rails %b dead after %v", dead, now)
		}
	}
}

// TestARailInDoubtIsJudgedSooner: but by what it shows itself.
func TestARailInDoubtIsJudgedSooner(t *testing.T) {
	const ms = time.Millisecond
	silence := func(alive bool) (dead time.Duration) {
		s := NewSilence(200*ms, 2)
		s.Doubt(0, 1000*ms) // and at once something is sent
		for now := 1000 * ms; now < 1300*ms; now += 25 * ms {
			p := Progress{Awaiting: true, LastAck: now}
			if alive && now >= 1025*ms {
				p.LastAck = now - 1020*ms // a confirmation, and more is sent
			}
			s.Observe(0, now, p)
			s.Observe(1, now, Progress{})
			if s.Dead(3) != 0 {
				return now - 1000*ms
			}
		}
		return 0
	}
	if took := silence(false); took != 50*ms {
		t.Errorf("dead after %v", took)
	}
	if took := silence(true); took < 150*ms {
		t.Errorf("dead after %v, though it had shown life", took)
	}
}

func TestARailIsQuietBeforeItIsDead(t *testing.T) {
	const ms = time.Millisecond
	s := NewSilence(200*ms, 2)
	for now := 0 * ms; s.Dead(3) == 0; now += 25 * ms {
		s.Observe(0, now, Progress{Awaiting: true, LastAck: now})
		s.Observe(1, now, Progress{})
		if quiet := s.Quiet(3); (quiet == 1) != (now >= 100*ms) || s.Quiet(1) != 0 {
			t.Errorf("after %v: rails %b quiet", now, quiet)
		}
	}
}
