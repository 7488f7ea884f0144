package membership

import (
	"slices"
	"sync"
	"time"

	"github.com/polyrail/polyrail/actors/engine"
)

// failures times what became of lost connections, by rail.
type failures struct {
	mu    sync.Mutex
	down  map[connectionName]time.Time // those that are lost now: at most one for each peer and rail
	rails map[string]*railFailures
}

type connectionName struct{ node, rail string }

type railFailures struct{ failovers, outages engine.Durations }

// note takes an event at the time that it has.
func (f *failures) note(v *Event) {
	name := connectionName{v.Node, v.Rail}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch v.Kind {
	case RailDown:
		if f.down == nil {
			f.down, f.rails = make(map[connectionName]time.Time), make(map[string]*railFailures)
		}
		if len(f.down) >= maxDown {
			for some := range f.down {
				delete(f.down, some)
				break
			}
		}
		f.down[name] = v.Time
		if f.rails[v.Rail] == nil {
			f.rails[v.Rail] = new(railFailures)
		}
	case RailMoved:
		if since, ok := f.down[name]; ok {
			f.rails[v.Rail].failovers.Add(v.Time.Sub(since))
		}
	case RailUp:
		if since, ok := f.down[name]; ok {
			f.rails[v.Rail].outages.Add(v.Time.Sub(since))
			delete(f.down, name)
		}
	}
}

// maxDown bounds the connections whose outages are timed. Those of nodes that never come back stay
// until there are too many, and any of them gives way.
const maxDown = 4096

// read tells of rails that have failed, by name.
func (f *failures) read() (all []FailoverStatus) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, r := range f.rails {
		all = append(all, FailoverStatus{name, r.failovers.Read(), r.outages.Read()})
	}
	slices.SortFunc(all, func(a, b FailoverStatus) int {
		if a.Rail < b.Rail {
			return -1
		}
		return 1
	})
	return all
}
