package balance

import (
	"math"
	"slices"
	"time"
)

// spread is how much a kind of measurement scatters. It doesn't take a change for noise: what is
// far from what was to be expected waits for the next measurement, and is noise if that one doesn't
// confirm it.
type spread struct {
	variance float64
	seen     float64
	last     float64 // residual
	serial   float64 // mean product of a residual and the last one: 0 where they are nothing but noise
	doubt    float64 // a residual that is either noise or a change
	followed bool    // the model took it for a change
}

// verdict is what the model made of a measurement.
type verdict uint8

const (
	expected  verdict = iota // within the noise
	suspected                // beyond it, and to be confirmed
	changed                  // what it measures has changed, and what is expected with it
)

// bounded is as much of a difference of logarithms as noise can make.
func bounded(difference float64) float64 {
	most := math.Log(mostGrowth)
	return min(max(difference, -most), most)
}

// add takes a measurement's distance from what was to be expected, as a difference of logarithms.
func (s *spread) add(residual float64, v verdict) {
	residual = bounded(residual)
	back := residual*s.doubt < 0 && math.Abs(residual) > math.Abs(s.doubt)/2
	if s.doubt != 0 && (s.followed && back || !s.followed && v != changed) {
		s.learn(s.doubt)
	}
	s.doubt = 0
	if v == expected {
		s.learn(residual)
		return
	}
	s.doubt, s.followed = residual, v == changed
}

func (s *spread) learn(residual float64) {
	s.seen = min(s.seen+1, noiseMemory-2)
	if s.variance == 0 {
		s.variance = priorDeviation * priorDeviation
	}
	s.variance += (residual*residual - s.variance) / (s.seen + 2)
	s.serial += (residual*s.last - s.serial) / mostMemory
	s.last = residual
}

// deviation is the standard deviation of one window.
func (s *spread) deviation() float64 {
	if s.variance == 0 {
		return priorDeviation
	}
	return math.Sqrt(s.variance)
}

// limit is the residual above which something has changed, in logarithms: never below that of a ratio.
func (s *spread) limit(ratio float64) float64 { return max(math.Log(ratio), certain*s.deviation()) }

// quiet reports whether noise never makes a difference that would count: what is far off must be a
// change. Where there is more noise, it must be seen twice.
func (s *spread) quiet() bool { return certain*s.deviation() < math.Log(gainToMove) }

// memory is how many windows a mean is made of, so that it is as good as one on a quiet network. What
// a residual has in common with the last one is no noise but the lag of a mean that follows too slowly
// (the innovations of an optimal filter are white: Mehra 1970). Taken for noise it made the mean
// slower still.
func (s *spread) memory() float64 {
	noise := s.deviation()*s.deviation() - max(s.serial, 0)
	return min(max(noise/(priorDeviation*priorDeviation), settlingSets), mostMemory)
}

// lean is the pull of α towards 0: the more a line's points scatter, the less its slope can be told from
// them.
func (s *spread) lean() float64 {
	d := s.deviation() / priorDeviation
	return leanToZero * max(d*d, 1)
}

// anew is the same spread without a doubt, for another class.
func (s *spread) anew() spread { return spread{variance: s.variance} }

// over is the spread of windows that are so many times longer, of a quiet network at least, unless
// this one is quieter.
func (s *spread) over(longer float64) spread {
	return spread{variance: min(s.variance, max(s.variance/longer, priorDeviation*priorDeviation))}
}

// noise takes the times of like operations, of a probe's rounds: what they scatter by is what windows of
// such operations and larger ones are assumed to, at first. Much of it is the mood of the host, which a
// mean of ten operations keeps. One of them is the quickest, and shows nothing.
func (b *Balancer) noise(size Class, elapsed []time.Duration) {
	seen := &b.probed[size]
	sorted := slices.Sorted(slices.Values(elapsed))
	quickest := max(sorted[0], 1)
	for _, e := range sorted[1:] {
		seen.learn(bounded(math.Log(max(e, quickest).Seconds() / quickest.Seconds())))
	}
}

// assumed is the noise of the largest operations that were probed and are no larger than the class's, or
// else of the smallest ones.
func (b *Balancer) assumed(c Class) (s spread) {
	for size, seen := range b.probed {
		if seen.variance > 0 && (s.variance == 0 || size <= int(c)) {
			s = spread{variance: max(seen.variance, priorDeviation*priorDeviation)}
		}
	}
	return s
}
