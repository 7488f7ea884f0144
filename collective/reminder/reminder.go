// Package reminder says which lines belong in a log where the same thing is found again and again:
// it is told once a minute, and few things are.
package reminder

import "time"

const (
	// Every is the time between two lines about the same thing.
	Every = time.Minute
	// most is how many things are remembered; others are not told.
	most = 64
)

// Reminders are the things that were told, and when. The zero value is ready. Its users lock it.
type Reminders struct {
	told map[string]time.Time
}

// Due reports whether to tell of a thing now.
func (r *Reminders) Due(about string, now time.Time) bool {
	for thing, at := range r.told {
		if now.Sub(at) >= Every {
			delete(r.told, thing)
		}
	}
	if _, told := r.told[about]; told || len(r.told) >= most {
		return false
	}
	if r.told == nil {
		r.told = make(map[string]time.Time)
	}
	r.told[about] = now
	return true
}

// Forget has each thing be told at once when it is found again: it was over.
func (r *Reminders) Forget() { clear(r.told) }
