package fault

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// Action is what a step of a script does; each is the method of Transport of its name.
type Action int

// The actions.
const (
	Drop Action = iota
	Cut
	Heal
	Stall    // for Step.Duration; 0: until Heal
	SetRate  // to Step.Rate
	SetDelay // to Step.Duration
)

// Step is one action and when it is taken.
type Step struct {
	After      time.Duration // since the first device was opened
	AfterBytes int64         // instead of After if not 0: once so many bytes went both ways, to the byte where one connection is in use
	Do         Action
	Duration   time.Duration
	Rate       int64 // bytes per second; 0: no limit
}

// Script is a list of steps in any order.
type Script []Step

// Random makes a script of n troubles within the time, the same for the same seed:
// losses of connections, cuts and stalls, which heal within a fifth of their share of it.
func Random(seed uint64, n int, within time.Duration) Script {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	var s Script
	share := within / time.Duration(max(n, 1))
	for i := range n {
		at := share*time.Duration(i) + time.Duration(rng.Int64N(int64(share)*4/5+1))
		lasts := time.Duration(rng.Int64N(int64(share)/5 + 1))
		switch rng.IntN(3) {
		case 0:
			s = append(s, Step{After: at, Do: Drop})
		case 1:
			s = append(s, Step{After: at, Do: Cut}, Step{After: at + lasts, Do: Heal})
		case 2:
			s = append(s, Step{After: at, Do: Stall}, Step{After: at + lasts, Do: Heal})
		}
	}
	return s
}

// player takes the steps of a script. It is guarded by its transport's mutex.
type player struct {
	timed   []Step
	counted []Step // ascending; those still to come
	bytes   int64  // that went both ways
	timers  []*time.Timer
	started bool
}

func newPlayer(s Script) player {
	var p player
	for _, step := range s {
		if step.AfterBytes > 0 {
			p.counted = append(p.counted, step)
		} else {
			p.timed = append(p.timed, step)
		}
	}
	slices.SortStableFunc(p.counted, func(a, b Step) int { return cmp.Compare(a.AfterBytes, b.AfterBytes) })
	return p
}

func (p *player) start(apply func(Step)) {
	if p.started {
		return
	}
	p.started = true
	for _, step := range p.timed {
		p.timers = append(p.timers, time.AfterFunc(step.After, func() { apply(step) }))
	}
}

func (p *player) stop() {
	for _, t := range p.timers {
		t.Stop()
	}
	p.timers = nil
}

// limit shortens a read or write so that it ends where the next step is due.
func (p *player) limit(want int) int {
	if len(p.counted) == 0 {
		return want
	}
	return int(min(int64(want), max(1, p.counted[0].AfterBytes-p.bytes)))
}

// moved returns the steps that are due now.
func (p *player) moved(bytes int) (due []Step) {
	p.bytes += int64(bytes)
	i := 0
	for i < len(p.counted) && p.counted[i].AfterBytes <= p.bytes {
		i++
	}
	due, p.counted = p.counted[:i], p.counted[i:]
	return due
}

// apply takes a step. It is called without the mutex.
func (t *Transport) apply(s Step) {
	t.mu.Lock()
	t.counters.Steps++
	t.mu.Unlock()
	switch s.Do {
	case Drop:
		t.Drop()
	case Cut:
		t.Cut()
	case Heal:
		t.Heal()
	case Stall:
		t.Stall(s.Duration)
	case SetRate:
		t.SetRate(s.Rate)
	case SetDelay:
		t.SetDelay(s.Duration)
	}
}
