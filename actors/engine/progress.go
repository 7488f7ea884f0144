package engine

import "github.com/polyrail/polyrail/collective/view"

// progress is which operations of a communicator have ended well. Operations in flight end in any
// order, so some beyond the first unfinished one may be among them; they are
// never more than may be in flight.
type progress struct {
	below  uint64 // all of 1 … below have
	last   uint64 // the highest that has
	beyond map[uint64]struct{}
}

// add notes an operation, once.
func (p *progress) add(seq uint64) {
	p.last = max(p.last, seq)
	if seq != p.below+1 {
		if p.beyond == nil {
			p.beyond = make(map[uint64]struct{})
		}
		p.beyond[seq] = struct{}{}
		return
	}
	p.below++
	for len(p.beyond) > 0 {
		if _, ok := p.beyond[p.below+1]; !ok {
			return
		}
		p.below++
		delete(p.beyond, p.below)
	}
}

// uneven is this rank's report to those who shrink: its first unfinished and its last finished
// operation.
func (p *progress) uneven() view.SeqRange { return view.SeqRange{First: p.below + 1, Last: p.last} }
