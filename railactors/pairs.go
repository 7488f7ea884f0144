package railactors

import (
	"cmp"
	"slices"
)

// PairStatus is a connection to a peer on a rail, or the want of one.
type PairStatus struct {
	Node, Rail string
	Up         bool
	Queued     int     // bytes of data that wait for it, headers included
	InFlight   int     // bytes of data that it has on its way, unacknowledged
	Rate       float64 // bytes per second while it was busy, as acknowledgements tell; 0: unknown
	Err        string  // what the last attempt to connect came to; empty while it is up
}

// Pairs are the connections to all peers, by node and rail. Each peer's lock is held for a moment.
func (f *Fabric) Pairs() (all []PairStatus) {
	for _, p := range f.snapshot() {
		p.mu.Lock()
		if p.cause == nil {
			for rail, c := range p.conns {
				if !p.reach.Has(rail) {
					continue // the memory of another host
				}
				load := p.core.Load(rail)
				s := PairStatus{Node: p.node, Rail: f.rails[rail].name, Up: c != nil, Queued: load.Queued,
					InFlight: load.InFlight, Rate: load.Rate}
				if c == nil && p.attempts[rail] != nil {
					s.Err = p.attempts[rail].Error()
				}
				all = append(all, s)
			}
		}
		p.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b PairStatus) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Rail, b.Rail))
	})
	return all
}
