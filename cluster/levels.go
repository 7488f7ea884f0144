package cluster

import (
	"slices"
	"sync"
	"time"
)

// How memberlist's incarnations may grow: a process begins with 1 and takes one more whenever it is
// suspected.
const (
	maxFirst   = 1 << 24 // of a process that was not known
	maxStep    = 8       // that a word may be ahead of one that was just heard …
	maxPerTime = 64      // … and so many more for each second since, whatever the number of words
	maxAccused = 4       // an accusation is behind the process's own word: that one must find room
	maxAnswer  = 4       // as maxStep, of this process's answers: all others must have room for them
	maxLevels  = 8192    // processes that are known

	// forgetShare: one in so many of those that are no members is forgotten when there are too many.
	forgetShare = 8

	levelInterval = time.Second / maxPerTime // what one incarnation takes
)

// levels are the incarnations by which memberlist knows processes, as guard has let them through.
type levels struct {
	self    string // this process
	mu      sync.Mutex
	of      map[string]*level
	members func() map[string]bool // processes that are not forgotten; nil: this one alone
}

func newLevels(self string, now time.Time) levels {
	return levels{self: self, of: map[string]*level{self: newLevel(1, maxAnswer, now)}}
}

// level is a bucket of incarnations that fills with time. A step takes its incarnations out, and
// each word leaves what one step may have at most.
type level struct {
	incarnation uint32
	step        time.Duration // what it takes to fill what one step may have
	since       time.Time     // the room is what has filled since then
	refused     bool          // since the last word that was taken
}

func newLevel(incarnation uint32, step int, now time.Time) *level {
	v := &level{incarnation: incarnation, step: time.Duration(step) * levelInterval}
	v.since = now.Add(-v.step)
	return v
}

// alive takes a process's own word, or what is passed on as that.
func (l *levels) alive(process string, incarnation uint32, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.of[process]
	switch {
	case known == nil && incarnation > maxFirst:
		return refused("process %q begins with incarnation %d", process, incarnation)
	case known == nil && !mayBeProcess(process):
		return refused("a name of %d bytes that no process has", len(process))
	case known == nil && len(l.of) >= maxLevels && !l.makeRoom():
		return refused("process %q is one too many", process)
	case known == nil:
		l.of[process] = newLevel(incarnation, maxStep, now)
		return nil
	case process == l.self && incarnation > known.incarnation:
		return l.answered(known, incarnation, now)
	case !known.reaches(incarnation, known.room(now)):
		return refused("incarnation of process %q jumps from %d to %d", process, known.incarnation, incarnation)
	}
	known.hear(incarnation, now)
	return nil
}

// accused takes the suspicion of others. It raises nothing: the process itself does that.
func (l *levels) accused(process string, incarnation uint32, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.of[process]
	switch {
	case known == nil: // memberlist ignores processes that it does not know
	case process == l.self && incarnation >= known.incarnation:
		return l.answered(known, incarnation, now)
	case !known.reaches(incarnation, max(0, min(known.room(now)-1, maxAccused))):
		return refused("suspicion of process %q jumps from %d to %d", process, known.incarnation, incarnation)
	}
	return nil
}

// answered takes what makes this process answer with the next incarnation. What might be answered
// beyond what the others take is refused. So this process has less room than they give it, and its
// room does not grow while nobody says anything: one packet, to it alone, would use all of it.
func (l *levels) answered(own *level, incarnation uint32, now time.Time) error {
	if !own.refused {
		own.bound(now)
	}
	if !own.reaches(incarnation, own.room(now)-1) {
		own.refused = true // another node may believe it: the room grows until it can be answered
		return refused("incarnation %d of this process, which has %d", incarnation, own.incarnation)
	}
	own.hear(incarnation+1, now)
	return nil
}

// room is how many incarnations fit now.
func (v *level) room(now time.Time) int64 { return max(0, int64(now.Sub(v.since)/levelInterval)) }

// reaches reports whether an incarnation is at most room ahead.
func (v *level) reaches(incarnation uint32, room int64) bool {
	return int64(incarnation) <= int64(v.incarnation)+room && incarnation < 1<<31
}

// hear notes an incarnation for which there is room.
func (v *level) hear(incarnation uint32, now time.Time) {
	if incarnation < v.incarnation {
		return // an old word
	}
	v.since = v.since.Add(time.Duration(incarnation-v.incarnation) * levelInterval)
	v.incarnation, v.refused = incarnation, false
	v.bound(now)
}

// bound leaves the room of one step at most.
func (v *level) bound(now time.Time) {
	if most := now.Add(-v.step); v.since.Before(most) {
		v.since = most
	}
}

// keep says which processes are members. These are not forgotten.
func (l *levels) keep(members func() map[string]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.members = members
}

// makeRoom forgets some processes that are no members: those that were not heard of for longest.
// It reports whether there is room now. Under mu.
func (l *levels) makeRoom() bool {
	var members map[string]bool
	if l.members != nil {
		members = l.members()
	}
	var others []string
	for process := range l.of {
		if process != l.self && !members[process] {
			others = append(others, process)
		}
	}
	slices.SortFunc(others, func(a, b string) int { return l.of[a].since.Compare(l.of[b].since) })
	// Several at once: the next newcomers need no search.
	for _, process := range others[:(len(others)+forgetShare-1)/forgetShare] {
		delete(l.of, process)
	}
	return len(l.of) < maxLevels
}
