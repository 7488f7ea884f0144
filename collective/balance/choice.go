package balance

import (
	"math"
	"slices"
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
)

// choice is how a class comes to its algorithm where all ranks may run any of several: by trying
// them in turn. Each has a state of the class for itself, which rests while another one is in
// force: its rounds, shares and noise are its own. What one promises can't be told from the lines
// of another, except whether it is worth trying.
type choice struct {
	rivals  []rival
	home    int     // the one in use
	trial   int     // the one that is tried in its place; -1: none
	sets    int     // of the trial
	scatter spread  // of whole operations' times from set to set
	suspect float64 // how far off the last set was, where that may have been noise; 0: it wasn't
}

// rival is what a class may run.
type rival struct {
	form
	rest  *class  // nil: it is in force, or never was
	took  float64 // by whole operations, in logarithms of seconds
	known float64 // sets that took is the mean of; 0: none
	bytes float64 // size of these operations
	pace          // of its trials
}

// newChoice is nil for a class that is run in one way: its algorithm is settled by the user, or has no
// other, and there are no trees.
func (b *Balancer) newChoice(c Class, inUse op.Algorithm) *choice {
	largest := c.MaxBytes()
	x := &choice{rivals: []rival{{form: form{algorithm: inUse}}}, trial: -1}
	if b.setup.Free != nil && algorithmOf(largest, b.setup.Ranges) == op.Auto && algorithmOf(largest/2+1, b.setup.Ranges) == op.Auto {
		for _, a := range b.setup.Free(largest) {
			if a != inUse {
				x.rivals = append(x.rivals, rival{form: form{algorithm: a}})
			}
		}
	}
	if largest <= b.setup.TreeBytes {
		x.rivals = append(x.rivals, rival{form: form{inUse, true}})
	}
	if len(x.rivals) < 2 {
		return nil
	}
	return x
}

// inForce is the rival that the class's operations run by now.
func (x *choice) inForce() int {
	if x.trial >= 0 {
		return x.trial
	}
	return x.home
}

// choose takes what a set's operations took, which the class has learned from, and says whether
// another algorithm is in force from now on. atRest: the set ran with shares that are no trial and
// promise no change.
func (b *Balancer) choose(c Class, took float64, atRest, rescaled, moved bool) (changed bool) {
	x := b.choices[c]
	if x == nil {
		return false
	}
	bytes := b.classes[c].bytes
	switch {
	case rescaled && x.felt(took): // what was known of the others is of another network
		x.forget()
		return b.goHome(c)
	case x.trial >= 0:
		return b.judge(c, took, moved)
	}
	home := &x.rivals[x.home]
	if atRest {
		x.measure(took, bytes)
	}
	for i := range x.rivals {
		x.rivals[i].tick()
	}
	if b.classes[c].mode != settled || home.known < settlingSets/2 {
		return false
	}
	next := b.challenger(c)
	if next < 0 {
		return false
	}
	b.enforce(c, next)
	x.trial, x.sets = next, 0
	x.rivals[next].known = 0
	return true
}

// felt reports whether operations take something else than before by the same algorithm.
func (x *choice) felt(took float64) bool {
	r := &x.rivals[x.inForce()]
	return r.known == 0 || math.Abs(took-r.took) > x.scatter.limit(clearly)
}

// measure takes a set of the algorithm in use. One that is far off is noise, unless the next one
// says the same: then what was known of the others is of another network, also where all rails have
// changed alike, which their shares don't show.
func (x *choice) measure(took, bytes float64) {
	home := &x.rivals[x.home]
	off := took - home.took
	switch {
	case home.known == 0:
	case home.unlike(bytes):
		home.known = 0
	case math.Abs(off) <= x.scatter.limit(clearly):
		x.scatter.learn(off)
	case x.suspect*off > 0:
		x.forget()
	default:
		x.scatter.learn(math.Copysign(x.scatter.limit(clearly), off))
		x.suspect = off
		return
	}
	x.suspect = 0
	home.note(took, bytes, noiseMemory)
}

// note takes the logarithm of what a set took.
func (r *rival) note(took, bytes, memory float64) {
	keep := min(r.known, memory-1)
	r.took = (r.took*keep + took) / (keep + 1)
	r.known, r.bytes = keep+1, bytes
}

// unlike reports whether what was measured is of operations of another size.
func (r *rival) unlike(bytes float64) bool {
	return r.known > 0 && math.Abs(math.Log(r.bytes/bytes)) > nearby
}

// forget begins anew.
func (x *choice) forget() {
	for i := range x.rivals {
		r := &x.rivals[i]
		r.known, r.pace = 0, pace{left: min(r.left, rested)}
	}
}

// challenger is the rival to be tried, the most promising first; -1: none.
func (b *Balancer) challenger(c Class) (next int) {
	x := b.choices[c]
	home, soonest := &x.rivals[x.home], math.Inf(1)
	next = -1
	for i := range x.rivals {
		r := &x.rivals[i]
		if i == x.home || !r.due() || r.treed && !slices.Contains(b.trees, true) {
			continue
		}
		expected := r.took
		switch {
		case r.known > 0 && !r.unlike(home.bytes):
		case r.treed: // its form says nothing of a tree: the first set of a trial does
			expected = home.took
		default:
			if expected = b.guess(c, r.algorithm); expected > home.took+math.Log(clearly) {
				continue
			}
		}
		if expected < soonest {
			next, soonest = i, expected
		}
	}
	return next
}

// guess is what an algorithm should take by its form, if what the one in use takes were startup for
// each of its stages and transfer for all that it sends. Where no smaller operation tells which is
// which, it is what is worse for the guess.
func (b *Balancer) guess(c Class, a op.Algorithm) float64 {
	x := b.choices[c]
	home := &x.rivals[x.home]
	if home.treed {
		return math.Inf(1)
	}
	now, then := b.setup.Cost(home.algorithm), b.setup.Cost(a)
	stages, volume := float64(then.Stages)/float64(now.Stages), then.Volume/now.Volume
	seconds := math.Exp(home.took)
	startup, known := b.startup(c, seconds)
	switch {
	case !known && stages > volume:
		startup = seconds
	case !known:
		startup = 0
	}
	return math.Log(startup*stages + (seconds-startup)*volume)
}

// startup is how much of an operation's time is startup, by what the rail that carries most of it
// took for the smallest operation that it was measured with, by any algorithm: two equations in the
// time of a stage and of a byte. (The model's lines are right near a size for shares, and may have
// any startup.)
func (b *Balancer) startup(c Class, seconds float64) (startup float64, known bool) {
	k := &b.classes[c]
	main := most(k.shares)
	var small *point
	var by op.Algorithm
	for _, r := range b.choices[c].rivals {
		if r.treed {
			continue
		}
		m := b.rails[main].of(r.form)
		for i := range m.points {
			if p := &m.points[i]; small == nil || p.bytes < small.bytes {
				small, by = p, r.algorithm
			}
		}
	}
	bytes := k.bytes * float64(k.shares[main]) / float64(k.rounds)
	if small == nil || farOff*small.bytes > bytes {
		return 0, false
	}
	large, little := b.setup.Cost(k.algorithm), b.setup.Cost(by)
	sent, sentThen := large.Volume*bytes, little.Volume*small.bytes
	det := float64(little.Stages)*sent - float64(large.Stages)*sentThen
	if det <= 0 {
		return 0, false
	}
	stage := (small.seconds*sent - seconds*sentThen) / det
	return min(max(stage*float64(large.Stages), 0), seconds), true
}

// judge takes a set of a trial, and ends the trial when it is decided. moved: the shares are still
// on their way.
func (b *Balancer) judge(c Class, took float64, moved bool) (changed bool) {
	x := b.choices[c]
	home, r := &x.rivals[x.home], &x.rivals[x.trial]
	x.sets++
	r.note(took, b.classes[c].bytes, settlingSets/2) // the last half of a trial counts
	deviation := x.scatter.deviation()
	switch {
	case home.unlike(r.bytes): // they can't be compared
		home.known, r.known = 0, 0
		r.left = rested
		return b.goHome(c)
	case took-home.took > math.Log(greatly)+certain*deviation:
		r.took, r.known = took, 1
	case x.sets < settlingSets || moved && x.sets < 2*settlingSets:
		return false
	case home.took-r.took > math.Log(gainToSplit)+likely*deviation*math.Sqrt(1/home.known+1/r.known):
		home.pace = pace{} // if that was chance, it comes back
		home.lost(r)
		x.home, x.trial = x.trial, -1
		return false
	}
	r.lost(home)
	return b.goHome(c)
}

// lost: another one is in use.
func (r *rival) lost(to *rival) {
	r.double(rested)
	if r.took-to.took > math.Log(clearly) {
		r.left = lastPause
	}
}

// goHome ends a trial, if there is one.
func (b *Balancer) goHome(c Class) (changed bool) {
	x := b.choices[c]
	if x.trial < 0 {
		return false
	}
	b.enforce(c, x.home)
	x.trial = -1
	return true
}

// enforce puts a rival in force. One that never was begins with the shares of the one before.
func (b *Balancer) enforce(c Class, next int) {
	x, k := b.choices[c], &b.classes[c]
	before, r := *k, &x.rivals[next]
	if r.rest != nil {
		*k = *r.rest
		b.resize(k, before.bytes)
	} else {
		*k = b.newClass(c, r.form)
		b.resize(k, before.bytes)
		k.shares = plan.Rounds(k.rounds, b.firstWeights(r.form, before.shares))
		k.own, k.common, k.whole = before.own.anew(), before.common.anew(), before.whole.anew()
	}
	x.rivals[x.inForce()].rest, r.rest = &before, nil
}

// restore makes an earlier balancer's choice the one in use; ok is false if the class may not run it.
func (b *Balancer) restore(c Class, a op.Algorithm) (ok bool) {
	k, x := &b.classes[c], b.choices[c]
	if x == nil {
		return a == k.algorithm
	}
	at := slices.IndexFunc(x.rivals, func(r rival) bool { return r.form == form{algorithm: a} })
	if at < 0 {
		return false
	}
	for i := range x.rivals { // they were tried then
		x.rivals[i].pace = newPace(rested)
	}
	if at != x.home {
		b.enforce(c, at)
		x.home = at
	}
	return true
}

// kept is the state of a class that is worth keeping: that of the algorithm in use. Trees are made
// anew; in place of one it is what was in use before.
func (b *Balancer) kept(c Class) *class {
	x := b.choices[c]
	if x == nil {
		return &b.classes[c]
	}
	at := x.home
	if x.rivals[at].treed {
		at = x.flat()
	}
	if at == x.inForce() {
		return &b.classes[c]
	}
	return x.rivals[at].rest
}

// decided reports whether no algorithm is being tried, or to be soon.
func (b *Balancer) decided(c Class) bool {
	x := b.choices[c]
	switch {
	case x == nil:
		return true
	case x.trial >= 0:
		return false
	case x.rivals[x.home].known >= settlingSets/2:
		return b.challenger(c) < 0
	}
	for i := range x.rivals {
		if i != x.home && x.rivals[i].due() && !x.rivals[i].treed {
			return false
		}
	}
	return true
}

// AlgorithmReport is what is known of an algorithm that a class may run.
type AlgorithmReport struct {
	Algorithm op.Algorithm
	Treed     bool          // over an aggregation tree
	InUse     bool          // chosen
	InForce   bool          // what operations run by now: the one in use, or one that is tried
	Sets      float64       // of windows that Took is the mean of, at most a few; 0: it was not measured
	Took      time.Duration // of a whole operation on the slowest rank; a guess where it was not measured, 0: nothing is known
}

// algorithms describes the rivals; nil where the algorithm is fixed.
func (b *Balancer) algorithms(c Class) (r []AlgorithmReport) {
	x := b.choices[c]
	if x == nil {
		return nil
	}
	for i := range x.rivals {
		v := &x.rivals[i]
		a := AlgorithmReport{Algorithm: v.algorithm, Treed: v.treed, InUse: i == x.home, InForce: i == x.inForce(), Sets: v.known}
		switch {
		case v.known > 0:
			a.Took = duration(math.Exp(v.took))
		case x.rivals[x.home].known > 0 && x.trial < 0 && !v.treed && !x.rivals[x.home].treed:
			a.Took = duration(math.Exp(b.guess(c, v.algorithm)))
		}
		r = append(r, a)
	}
	return r
}

// weightsOf are shares as weights.
func weightsOf(shares []int) []uint32 {
	weights := make([]uint32, len(shares))
	for i, s := range shares {
		weights[i] = uint32(s)
	}
	return weights
}
