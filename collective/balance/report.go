package balance

import (
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
)

// Report is a Balancer's state in words that a person can check.
type Report struct {
	Static  bool           // the table is the configured one, or a caller's
	Classes []ClassReport  // of allreduces
	Others  []FamilyReport // of other kinds, where something was measured
	Control Control
}

// FamilyReport is what is known of another family of kinds.
type FamilyReport struct {
	Family  table.Family
	Classes []ClassReport
}

// Control is what balancing has cost on this rank, against what it is for.
type Control struct {
	Operations uint64        // of those that are timed, or stand for others of their size
	Busy       time.Duration // what they took, one after the other
	Spent      time.Duration // on taking their times, on windows and decisions
	Held       time.Duration // while calls waited for ranks to agree on a table
}

// Share is the part of the operations' time that went into control.
func (c Control) Share() float64 {
	if c.Busy <= 0 {
		return 0
	}
	return float64(c.Spent+c.Held) / float64(c.Busy)
}

// ClassReport is one size class of which something was measured, or probed near.
type ClassReport struct {
	Class     Class
	Algorithm op.Algorithm
	Treed     bool          // its operations go over an aggregation tree, though they are small
	Shares    []float64     // by rail, parts of 1; a single 1 is a cold class
	Alone     time.Duration // by the model, on the best rail
	Now       time.Duration // by the model, with the shares in force
	BestRail  int
	Sets      int  // of windows measured
	Settled   bool // the last one promised no change, of the algorithm neither
	Rails     []RailReport

	Algorithms []AlgorithmReport // that the class may run, with order: free; nil where it is fixed
}

// Hot reports whether several rails carry the class's operations.
func (c *ClassReport) Hot() bool { return count(c.Shares) > 1 }

// RailReport is the model of one rail near a size.
type RailReport struct {
	Known   bool
	Startup time.Duration // α
	Rate    float64       // E, in bytes of the operation per second
}

// Report describes the classes from 8 bytes on of which something is known.
func (b *Balancer) Report() (r Report) {
	for c := Class(3); c < Classes; c++ {
		k := &b.classes[c]
		rail, alone := b.bestAlone(c)
		if rail < 0 || k.sets == 0 && !b.measured(c) {
			continue
		}
		cr := ClassReport{
			Class: c, Algorithm: k.algorithm, Treed: k.treed, BestRail: rail, Alone: duration(alone), Now: duration(b.predict(c, k.shares)),
			Sets: k.sets, Settled: k.sets > 0 && k.mode != settling && b.decided(c), Algorithms: b.algorithms(c),
		}
		for i, share := range k.shares {
			cr.Shares = append(cr.Shares, float64(share)/float64(k.rounds))
			cr.Rails = append(cr.Rails, b.line(c, i, count(k.shares) == 1).report())
		}
		r.Classes = append(r.Classes, cr)
	}
	return r
}

// report is the line in other units.
func (l line) report() RailReport {
	if !l.known {
		return RailReport{}
	}
	return RailReport{Known: true, Startup: duration(l.startup), Rate: l.rate()}
}

// measured reports whether any rail has a point in the class.
func (b *Balancer) measured(c Class) bool {
	for i := range b.rails {
		for _, p := range b.rails[i].of(b.classes[c].form).points {
			if p.class == c {
				return true
			}
		}
	}
	return false
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * 1e9) }
