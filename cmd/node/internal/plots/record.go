// Package plots records what the rails do during a measurement, and writes it as CSV and as
// pictures: the shares over time (Nezha's Fig. 7) and the rate of each rail (its Fig. 6). And it
// draws results of several systems beside each other.
//
// It keeps the rails' own counters as they were at moments that its caller chooses. Shares and rates
// are differences between what was kept, so notes that are left out take nothing away from the others.
package plots

import "time"

// maxNotes bounds the notes of one series. When they are too many, every second one is left out,
// and from then on as many of the new ones.
const maxNotes = 4096

// Counters are one rail's, since its node started.
type Counters struct{ Sent, Received uint64 }

// Note is how things stood at a moment.
type Note struct {
	At         time.Duration // since the recording began
	Bytes      int           // size of the operations that were measured; 0: none
	Operations int           // of that size, so far
	Table      uint32        // version in force
	Rails      []Counters    // in the order of Recording.Rails
}

// series is a bounded list of notes, evenly thinned.
type series struct {
	notes  []Note
	every  int // one of so many is kept
	passed int // since the last one that was kept
}

func (s *series) add(n Note) {
	s.every = max(s.every, 1)
	if s.passed++; len(s.notes) > 0 && s.passed < s.every {
		return
	}
	s.passed = 0
	if len(s.notes) == maxNotes {
		for i := range maxNotes / 2 {
			s.notes[i] = s.notes[2*i]
		}
		clear(s.notes[maxNotes/2:])
		s.notes = s.notes[:maxNotes/2]
		s.every *= 2
	}
	s.notes = append(s.notes, n)
}

// Recording is what has been noted. It is not safe for concurrent use.
type Recording struct {
	Rails []string

	sizes []*series // one for each size that was measured, in that order: operation by operation
	clock series    // at even times
}

// Begin starts the operations of another size. The note is how things stand before the first.
func (r *Recording) Begin(n Note) {
	r.sizes = append(r.sizes, &series{})
	r.Operation(n)
}

// Operation notes how things stand between two operations.
func (r *Recording) Operation(n Note) { r.sizes[len(r.sizes)-1].add(n) }

// End notes how things stand after the last operation of a size: it is kept in any case.
func (r *Recording) End(n Note) {
	s := r.sizes[len(r.sizes)-1]
	if last := len(s.notes) - 1; last > 0 && s.passed > 0 {
		s.notes[last] = n // stands for those that were left out since
		return
	}
	s.add(n)
}

// Tick notes how things stand at a moment that has nothing to do with operations.
func (r *Recording) Tick(n Note) { r.clock.add(n) }

// Share is a rail's part of what was sent between two notes.
type Share struct {
	Note  // the second one; its At, Operations and Table
	Parts []float64
}

// Shares are those between the notes of one size after the other. Where nothing was sent there is none.
func (r *Recording) Shares() (shares []Share) {
	for _, s := range r.sizes {
		for i := 1; i < len(s.notes); i++ {
			before, now := &s.notes[i-1], &s.notes[i]
			share, total := Share{Note: *now}, 0.0
			for rail := range now.Rails {
				sent := float64(now.Rails[rail].Sent - before.Rails[rail].Sent)
				share.Parts = append(share.Parts, sent)
				total += sent
			}
			if total == 0 || now.Operations == before.Operations {
				continue
			}
			for rail := range share.Parts {
				share.Parts[rail] /= total
			}
			shares = append(shares, share)
		}
	}
	return shares
}

// Rate is how fast the rails were between two ticks, in bytes per second.
type Rate struct {
	Note           // the second one
	Sent, Received []float64
}

// Rates are those between the ticks.
func (r *Recording) Rates() (rates []Rate) {
	for i := 1; i < len(r.clock.notes); i++ {
		before, now := &r.clock.notes[i-1], &r.clock.notes[i]
		seconds := (now.At - before.At).Seconds()
		if seconds <= 0 {
			continue
		}
		rate := Rate{Note: *now}
		for rail := range now.Rails {
			rate.Sent = append(rate.Sent, float64(now.Rails[rail].Sent-before.Rails[rail].Sent)/seconds)
			rate.Received = append(rate.Received, float64(now.Rails[rail].Received-before.Rails[rail].Received)/seconds)
		}
		rates = append(rates, rate)
	}
	return rates
}
