package balance

import (
	"math"
	"slices"
)

// When two divisions are compared by what whole operations take, and what decides.
const (
	mostPairs   = 4    // of sets, one of each division
	proven      = 1.5  // standard deviations that shares must gain which only the model speaks for
	surely      = 0.7  // standard deviations that end a contest early
	visible     = 1.0  // standard deviations that a gain must be, for a contest to show it
	gainToLeave = 1.01 // and this at least
	mostAtHome  = 1.7  // times the best rail alone, what home may cost by the probe
	likely      = 2.5  // deviations of the rails' own noise that a promise must be above to need no contest
	plain       = 1.35 // and this at least: rails of one processor that are served in turn promise about as much,
	plainAgain  = 2.0  // and never this, which stands against a contest that was lost
	suspicious  = 1.1  // the rails alone promise this of equal shares, over what others take together: one of the two is wrong
	riskAtHome  = 1.3  // what home may cost by the model

	firstProof = 4 // sets until shares that aren't equal are to prove themselves
	lastProof  = 512
)

// contest compares a class's equal shares, which are its home, with others by what whole operations take, in turns: what a rail takes by itself
// doesn't tell what it could do where rails share what limits them, as several do over one processor or link. Then
// any shares can look right, and leaving home gains nothing. So home wins ties.
type contest struct {
	away    []int
	times   [2]float64 // of the pair that goes on, in logarithms: at home, away
	have    [2]bool
	strict  bool
	promise float64 // what the model says that away gains over home, in logarithms
	gain    float64 // sum over the pairs, of away over home, in logarithms
	pairs   int
}

// add takes what a set's operations took per byte, in logarithms; paired: both divisions have been measured equally often.
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

// outcome is what the pairs say so far, where the times of one set scatter by deviation. Shares away from home that
// the rails' own times speak for must gain half of what they promise; where these are doubtful, more than noise would.
func (t *contest) outcome(deviation float64) outcome {
	doubt := deviation * math.Sqrt(2/float64(t.pairs))
	need := math.Log(gainToLeave)
	if t.strict {
		need = max(need, proven*doubt)
	} else {
		need = max(need, t.promise/2)
	}
	mean := t.gain / float64(t.pairs)
	switch {
	case mean > need+surely*doubt || mean > need && t.pairs >= mostPairs:
		return leave
	case mean < need-surely*doubt || t.pairs >= mostPairs:
		return stay
	}
	return open
}

// rounds of a class that may be divided have a home.
func (b *Balancer) homely(k *class) bool {
	return k.rounds > 1 && k.bytes >= float64(b.setup.SplitBytes) && count(k.home) > 1
}

func (k *class) atHome() bool { return slices.Equal(k.shares, k.home) }

// harmlessAtHome reports whether a class that was never measured may begin at home, where the best division is to take that many
// seconds: a probe that met a busy moment promises as much, and the first set of windows tells.
func (b *Balancer) harmlessAtHome(c Class, best float64) bool {
	k := &b.classes[c]
	if b.predict(c, k.home) >= best*max(plain, math.Exp(likely*k.own.deviation())) {
		return false
	}
	defer func(bytes float64) { k.bytes = bytes }(k.bytes)
	for _, bytes := range []float64{k.bytes, k.bytes / 2} { // of the class's smallest operations startup is a larger part
		k.bytes = bytes
		if _, alone := b.bestAlone(c); b.predict(c, k.home) >= alone*mostAtHome {
			return false
		}
	}
	return true
}

// scatter is how much the time of whole operations does from set to set.
func (k *class) scatter() float64 {
	return max(k.whole.deviation(), k.common.deviation(), k.own.deviation())
}

// note takes what a set's operations took per byte under the shares in force.
func (k *class) note(took float64) {
	if k.last != 0 {
		k.whole.learn(min(max((took-k.last)/math.Sqrt2, -maxResidual), maxResidual))
	}
	k.last = took
}

// contend goes on with the contest, and ends it when it is decided.
func (b *Balancer) contend(c Class, took float64) {
	k := &b.classes[c]
	t := k.contest
	if !t.add(k.atHome(), took) {
		k.take(k.turn())
		return
	}
	switch t.outcome(k.scatter()) {
	case open: // the next pair begins with the division that is in force
	case stay:
		k.take(k.home)
		k.end(t.away)
	case leave:
		k.take(t.away)
		k.end(nil)
		if t.gain/float64(t.pairs) > math.Log(plain) {
			k.proof = min(2*k.proof, lastProof)
		}
	}
}

// turn is the contest's division that isn't in force.
func (k *class) turn() []int {
	if k.atHome() {
		return k.contest.away
	}
	return k.home
}

func (k *class) take(shares []int) { copy(k.shares, shares) }

func (k *class) end(refused []int) {
	k.contest, k.refused = nil, refused
	k.idle, k.proof = 0, min(2*k.proof, lastProof)
}

// begin starts a contest with the set that was just measured.
func (b *Balancer) begin(c Class, away []int, took float64, strict bool) {
	k := &b.classes[c]
	k.contest = &contest{away: slices.Clone(away), strict: strict, promise: math.Log(b.predict(c, k.home) / b.predict(c, away))}
	k.contest.add(k.atHome(), took)
	k.take(k.turn())
}

// mustProve reports whether shares that the model wants instead of home need a contest: where such were refused before, or where
// the noise is such that what rails take by themselves is weak evidence.
func (b *Balancer) mustProve(c Class, want []int) bool {
	k := &b.classes[c]
	if !b.homely(k) || !k.atHome() {
		return false
	}
	refused := k.refused != nil && most(k.refused) == most(want)
	if !refused && k.scatter() < quietDeviation {
		return false
	}
	least := plain
	if refused {
		least = plainAgain
	}
	return b.promise(c, want) < max(math.Log(least), likely*k.own.deviation()/math.Sqrt(max(b.evidence(c, k.home, false), 1)))
}

// promise is what the model says that shares gain over the ones in force, in logarithms.
func (b *Balancer) promise(c Class, shares []int) float64 {
	return math.Log(b.predict(c, b.classes[c].shares) / b.predict(c, shares))
}

// worthwhile reports whether a contest could show what the model promises, and it is time for one.
func (b *Balancer) worthwhile(c Class, want []int) bool {
	k := &b.classes[c]
	return k.idle >= k.proof && b.promise(c, want) > visible*k.scatter()*math.Sqrt(2.0/mostPairs)
}

// question is what shares other than home's have to answer.
type question uint8

const (
	none   question = iota
	close           // within the noise home could be as good
	strict          // what the rails take alone says that home is better: one of the two must be wrong
)

// doubt says what there is to ask of the shares in force.
func (b *Balancer) doubt(c Class) question {
	k := &b.classes[c]
	if k.idle < k.proof || !b.homely(k) || k.atHome() || k.burned(k.home) {
		return none
	}
	now, together := b.predict(c, k.shares), b.predict(c, k.home)
	alone, known := b.apart(c, k.home)
	noise := k.own.deviation() / math.Sqrt(max(b.evidence(c, k.shares, false), 1))
	switch {
	case known && count(k.shares) > 1 && alone*suspicious < now || known && count(k.shares) == 1 && alone < now:
		if together > now*riskAtHome { // too much to be simply tried
			return none
		}
		return strict
	case together < now*min(math.Exp(noise), riskAtHome):
		return close
	}
	return none
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
