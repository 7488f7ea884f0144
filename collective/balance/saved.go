package balance

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/table"
)

// Limits of a Saved, checked by Validate because it comes from a file.
const (
	MaxSamples       = 1 << 12        // TestFiguresFromOutsideAreLimited
	maxSampleElapsed = 24 * time.Hour // TestFiguresFromOutsideAreLimited
)

// leastWeight is of the samples that are saved. Others have faded: of some 1,000 sets in a row
// nothing is left. TestWhatHasFadedIsNotSaved
const leastWeight = 0.001

// Saved is what a Balancer has learned, for a later one of the same rails and as many ranks.
type Saved struct {
	Classes []SavedClass // ascending
	Samples []Sample
}

// SavedClass is how the operations of one size class were divided.
type SavedClass struct {
	Class     Class
	Algorithm op.Algorithm
	Bytes     int64    // mean size of the operations
	Shares    []uint32 // by rail, in parts of their sum
	Windows   int      // sets of them that were measured
	Settled   bool     // the last one promised no change
	Model     []RailReport
}

// Sample is what one rail took for some bytes, over some windows.
type Sample struct {
	Rail      int
	Algorithm op.Algorithm
	Class     Class // of the operations that the bytes were a part of
	Alone     bool  // no other rail carried a part
	Bytes     int64
	Elapsed   time.Duration
	Weight    float64 // in windows
}

// Validate reports the first fault of what a file says about that many rails, or nil.
func (s *Saved) Validate(rails int) error {
	if len(s.Classes) > Classes || len(s.Samples) > MaxSamples {
		return fmt.Errorf("%d size classes and %d samples, the limits are %d and %d", len(s.Classes), len(s.Samples), Classes, MaxSamples)
	}
	for i := range s.Classes {
		c := &s.Classes[i]
		if err := c.validate(rails); err != nil {
			return fmt.Errorf("size class %v: %w", c.Class, err)
		}
		if i > 0 && c.Class <= s.Classes[i-1].Class {
			return fmt.Errorf("size class %v stands after %v", c.Class, s.Classes[i-1].Class)
		}
	}
	for i := range s.Samples {
		if err := s.Samples[i].validate(rails); err != nil {
			return fmt.Errorf("sample %d: %w", i+1, err)
		}
	}
	return nil
}

func (c *SavedClass) validate(rails int) error {
	switch {
	case !c.Class.Valid():
		return fmt.Errorf("there are %d", Classes)
	case !c.Algorithm.Valid() || c.Algorithm == op.Auto:
		return fmt.Errorf("%v is not an algorithm", c.Algorithm)
	case c.Bytes < 1 || ClassOf(c.Bytes) != c.Class:
		return fmt.Errorf("operations of %d bytes are not in it", c.Bytes)
	case c.Windows < 1:
		return fmt.Errorf("%d windows", c.Windows)
	}
	entry := table.Table{Entries: []table.Entry{{Weights: c.Shares}}}
	return entry.Validate(rails)
}

// divided reports whether several rails carry the operations.
func (c *SavedClass) divided() bool { return count(c.Shares) > 1 }

func (s *Sample) validate(rails int) error {
	switch {
	case s.Rail < 0 || s.Rail >= rails:
		return fmt.Errorf("rail %d, there are %d", s.Rail, rails)
	case !s.Algorithm.Valid() || s.Algorithm == op.Auto:
		return fmt.Errorf("%v is not an algorithm", s.Algorithm)
	case !s.Class.Valid():
		return fmt.Errorf("size class %d, there are %d", uint8(s.Class), Classes)
	case s.Bytes < 1 || s.Bytes > s.Class.MaxBytes():
		return fmt.Errorf("%d bytes of operations %v", s.Bytes, s.Class)
	case s.Elapsed <= 0 || s.Elapsed > maxSampleElapsed:
		return fmt.Errorf("a time of %v", s.Elapsed)
	case !(s.Weight > 0 && s.Weight <= mostMemory): // NaN is neither
		return fmt.Errorf("a weight of %v, the limit is %d", s.Weight, mostMemory)
	}
	return nil
}

// Covers reports whether there is something about each of so many rails: then nothing needs to be
// probed.
func (s *Saved) Covers(rails int) bool {
	for rail := range rails {
		if !slices.ContainsFunc(s.Samples, func(p Sample) bool { return p.Rail == rail }) {
			return false
		}
	}
	return len(s.Classes) > 0
}

// Save is what has been learned. Without a measured class there is nothing worth keeping, and ok is
// false: a probe is made anew each time.
func (b *Balancer) Save() (s Saved, ok bool) {
	for c := range b.classes {
		if k := b.kept(Class(c)); k.sets > 0 {
			s.Classes = append(s.Classes, b.saveClass(Class(c), k))
		}
	}
	for rail, models := range b.rails {
		for f, m := range models {
			if f.treed { // trees are made anew
				continue
			}
			for _, p := range m.points {
				if p.weight < leastWeight {
					continue
				}
				s.Samples = append(s.Samples, Sample{
					Rail: rail, Algorithm: f.algorithm, Class: p.class, Alone: p.alone,
					Bytes: min(max(int64(p.bytes), 1), p.class.MaxBytes()), Elapsed: min(max(duration(p.seconds), 1), maxSampleElapsed), Weight: min(p.weight, mostMemory),
				})
			}
		}
	}
	if len(s.Samples) > MaxSamples {
		slices.SortStableFunc(s.Samples, func(a, b Sample) int { return cmp.Compare(b.Weight, a.Weight) })
		s.Samples = s.Samples[:MaxSamples]
	}
	slices.SortFunc(s.Samples, compareSamples)
	return s, len(s.Classes) > 0
}

// saveClass leaves out what is being tried: it may be no good.
func (b *Balancer) saveClass(c Class, k *class) SavedClass {
	shares := k.shares
	if k.before != nil {
		shares = k.before
	}
	saved := SavedClass{Class: c, Algorithm: k.algorithm, Bytes: min(max(int64(k.bytes), c.MaxBytes()/2+1), c.MaxBytes()), Windows: k.sets, Settled: k.mode != settling}
	for rail, share := range shares {
		saved.Shares = append(saved.Shares, uint32(share))
		saved.Model = append(saved.Model, b.rails[rail].of(k.form).fit(c, count(shares) == 1, k.own.lean()).report())
	}
	return saved
}

// compareSamples orders what is written, so that two files can be compared by their lines.
func compareSamples(a, b Sample) int {
	alone := func(s Sample) int {
		if s.Alone {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(a.Rail, b.Rail), cmp.Compare(a.Algorithm, b.Algorithm), cmp.Compare(a.Class, b.Class),
		cmp.Compare(alone(a), alone(b)), cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.Elapsed, b.Elapsed))
}

// Learn takes valid samples of an earlier balancer. It decides nothing.
func (b *Balancer) Learn(samples []Sample) {
	for _, s := range samples {
		m := b.rails[s.Rail].of(form{algorithm: s.Algorithm})
		m.points = append(m.points, point{
			class: s.Class, alone: s.Alone, bytes: float64(s.Bytes), seconds: s.Elapsed.Seconds(),
			weight: min(s.Weight, 1), // a window of today weighs as much as all that a file knows of its place
		})
	}
}

// Restore goes on from the shares of an earlier balancer, whose samples it has been given by Learn,
// and returns the table. What was settled there is settled here; a measurement that doesn't fit
// changes that as ever. Classes that the settings of today would run otherwise are left out, and
// those without shares follow the model.
func (b *Balancer) Restore(classes []SavedClass) []table.Entry {
	for i := range classes {
		s := &classes[i]
		if s.divided() && b.undivided(s.Class) || !b.restore(s.Class, s.Algorithm) {
			continue
		}
		k := &b.classes[s.Class]
		b.resize(k, float64(s.Bytes))
		k.shares = plan.Rounds(k.rounds, s.Shares)
		k.sets, k.rest = min(s.Windows, settlingSets), min(s.Windows, settlingSets)
		if s.Settled {
			k.mode = settled
		}
	}
	for c := range b.classes {
		if b.classes[c].sets > 0 {
			continue
		}
		if shares, _, ok := b.best(Class(c)); ok {
			copy(b.classes[c].shares, shares)
		}
	}
	return b.Table()
}
