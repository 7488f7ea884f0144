package cluster

import (
	"sync"
	"time"
)

// How memberlist's incarnations may grow: a process begins with 1 and takes one more whenever it is
// suspected.
const (
	maxFirst    = 1 << 24 // of a process that was not known
	maxStep     = 8       // that one message may be ahead of what is known …
	maxPerTime  = 64      // … and so many more for each second since anything was heard
	maxAccused  = 4       // an accusation is behind the process's own word: that one must find room
	maxLevels   = 8192    // processes that are known
	levelMemory = 10 * time.Minute
)

// levels are the incarnations by which memberlist knows processes, as guard has let them through.
type levels struct {
	mu sync.Mutex
	of map[string]*level
}

type level struct {
	incarnation uint32
	at          time.Time
}

// alive takes a process's own word, or what is passed on as that.
func (l *levels) alive(process string, incarnation uint32, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.of[process]
	if known == nil {
		if incarnation > maxFirst {
			return refused("process %q begins with incarnation %d", process, incarnation)
		}
		if len(l.of) >= maxLevels && !l.sweep(now) {
			return refused("process %q is one too many", process)
		}
		l.of[process] = &level{incarnation, now}
		return nil
	}
	if !known.reaches(incarnation, maxStep, now) {
		return refused("incarnation of process %q jumps from %d to %d", process, known.incarnation, incarnation)
	}
	if incarnation >= known.incarnation {
		known.incarnation, known.at = incarnation, now
	}
	return nil
}

// accused takes the suspicion of others. It raises nothing: the process itself does that.
func (l *levels) accused(process string, incarnation uint32, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.of[process]; known != nil && !known.reaches(incarnation, maxAccused, now) {
		return refused("suspicion of process %q jumps from %d to %d", process, known.incarnation, incarnation)
	}
	return nil // memberlist ignores processes that it does not know
}

func (v *level) reaches(incarnation uint32, step uint64, now time.Time) bool {
	age := uint64(max(0, now.Sub(v.at).Seconds()))
	return uint64(incarnation) <= uint64(v.incarnation)+step+age*maxPerTime && incarnation < 1<<31
}

// sweep forgets processes that were not heard of for long, and reports whether there is room now.
// Under mu.
func (l *levels) sweep(now time.Time) bool {
	for process, v := range l.of {
		if now.Sub(v.at) > levelMemory {
			delete(l.of, process)
		}
	}
	return len(l.of) < maxLevels
}
