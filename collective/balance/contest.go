package balance

import (
	"math"
	"slices"
)

// contest compares the shares in force with the class's equal ones, its home, by what whole operations
// take, in turns: what rails take alone doesn't tell what they could do where they share a processor or
// a link. Then any shares can look right, and leaving home gains nothing. So home wins ties.
type contest struct {
	away  []int
	times [2]float64 // of the pair that goes on, in logarithms: at home, away
	have  [2]bool
	gain  float64 // sum over the pairs, of away over home, in logarithms
	pairs int
}

// add takes what a set's operations took per byte, in logarithms; paired: both splits have been
// measured equally often.
func (t *contest) add(atHome bool, took float64) (paired bool) {
	side := 0
	if !atHome {
		side = 1
	}
	t.times[side], t.have[side] = took, true
	if !t.have[0] || !t.have[1] {
		return false
	}
	t.gain += t.times[0] - t.times[1]
	t.have = [2]bool{}
	t.pairs++
	return true
}

// outcome of a contest.
type outcome uint8

const (
	open outcome = iota
	stay         // at home, or go back there
	leave
)

// outcome is what the pairs say so far, where the times of one set scatter by deviation.
func (t *contest) outcome(deviation float64) outcome {
	doubt := deviation * math.Sqrt(2/float64(t.pairs))
	need := max(math.Log(gainToChange), likely*doubt)
	mean := t.gain / float64(t.pairs)
	switch {
	case t.pairs < settlingSets && mean <= math.Log(clearly)+need:
		return open
	case mean > need:
		return leave
	}
	return stay
}

// rounds of a class that may be divided have a home.
func (b *Balancer) homely(k *class) bool {
	return k.rounds > 1 && k.bytes >= float64(b.setup.SplitBytes) && count(k.home) > 1
}

func (k *class) atHome() bool { return slices.Equal(k.shares, k.home) }

// harmlessAtHome reports whether a class that was never measured may begin at home, where the best
// division is to take that many seconds: a probe that met a busy moment promises as much, and the
// first set of windows tells.
func (b *Balancer) harmlessAtHome(c Class, best float64) bool {
	k := &b.classes[c]
	if b.predict(c, k.home) >= best*max(clearly, math.Exp(likely*k.own.deviation())) {
		return false
	}
	defer func(bytes float64) { k.bytes = bytes }(k.bytes)
	for _, bytes := range []float64{k.bytes, k.bytes / 2} { // of the class's smallest operations startup is a larger part
		k.bytes = bytes
		if _, alone := b.bestAlone(c); b.predict(c, k.home) >= alone*greatly {
			return false
		}
	}
	return true
}

// note takes what a set's operations took per byte under the shares in force.
func (k *class) note(took float64) {
	if k.last != 0 {
		k.whole.learn(bounded((took - k.last) / math.Sqrt2))
	}
	k.last = took
}

// contend goes on with the contest, and ends it when it is decided.
func (k *class) contend(took float64) {
	t := k.contest
	if !t.add(k.atHome(), took) {
		k.use(k.turn())
		return
	}
	switch t.outcome(k.whole.deviation()) {
	case open: // the next pair begins with the split that is in force
		return
	case stay:
		k.settle(k.resting(), k.home)
	case leave:
		k.settle(k.resting(), t.away)
	}
	k.trials.double(samplePause)
}

// turn is the contest's split that isn't in force.
func (k *class) turn() []int {
	if k.atHome() {
		return k.contest.away
	}
	return k.home
}

// guarded reports whether a class may not simply leave home for other shares: where there is noise, what
// rails take by themselves is weak evidence, and so is the best of some splits that were sampled.
func (b *Balancer) guarded(c Class) bool {
	k := &b.classes[c]
	return b.homely(k) && k.atHome() && !k.own.quiet()
}

// doubtful reports whether other shares promise little more than home, or no more than noise explains.
func (b *Balancer) doubtful(c Class, want []int) bool {
	k := &b.classes[c]
	gain := math.Log(b.predict(c, k.shares) / b.predict(c, want))
	return gain < k.proof(b.evidence(c, k.home, false))
}

// contested reports whether there was a contest since the class's rails have changed. Where it led home
// the lines were wrong, and may be so again.
func (k *class) contested() bool { return k.trials.pause > samplePause }

// proof is the difference to the baseline that so many measurements of it prove, in logarithms.
func (k *class) proof(evidence float64) float64 {
	return max(math.Log(clearly), likely*k.own.deviation()/math.Sqrt(max(evidence, 1)))
}

// suspect reports whether home is to be compared with the shares in force: the rails alone promise that
// it is better, so one of the two must be wrong.
func (b *Balancer) suspect(c Class) bool {
	k := &b.classes[c]
	if !k.trials.due() || !b.homely(k) || k.atHome() || k.burned(k.home) {
		return false
	}
	now := b.predict(c, k.shares)
	alone, known := b.apart(c, k.home)
	if count(k.shares) > 1 {
		alone *= gainToSplit
	}
	loss := math.Log(b.predict(c, k.home) / now) // more than noise explains is too much to be tried
	return known && alone < now && loss <= k.proof(b.evidence(c, k.home, false))
}

// apart is what a division takes if its rails don't hinder each other at all.
func (b *Balancer) apart(c Class, shares []int) (seconds float64, known bool) {
	k := &b.classes[c]
	for i, s := range shares {
		if s == 0 {
			continue
		}
		l := b.line(c, i, true)
		if !l.known {
			return 0, false
		}
		seconds = max(seconds, l.startup+l.perByte*k.bytes*float64(s)/float64(k.rounds))
	}
	return seconds, true
}
