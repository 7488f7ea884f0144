package balance

import (
	"math"
	"slices"
)

// teach applies the model to near classes that have no measurements of their own. Larger ones learn
// only of a class that is settled and quiet: behind a shaper the times of brief operations are of
// what rails had saved up, and lines through them promise anything.
func (b *Balancer) teach(c Class) (changed bool) {
	sound := b.classes[c].mode == settled && b.classes[c].own.quiet()
	for near := max(int(c)-reach, 0); near <= min(int(c)+reach, Classes-1); near++ {
		k := &b.classes[near]
		led := near < int(c) && b.undivided(Class(near))
		if led || near > int(c) && !sound || k.sets > 0 || k.form != b.classes[c].form {
			continue
		}
		want, seconds, ok := b.best(Class(near))
		if !ok || slices.Equal(want, k.shares) {
			continue
		}
		gain := b.predict(Class(near), k.shares) / seconds
		if gain < gainToChange {
			continue
		}
		if gain > gainToSplit*math.Exp(likely*b.classes[c].own.deviation()) {
			changed = true
		}
		copy(k.shares, want) // goes out with the next table, worth one of its own or not
	}
	return changed
}

// lead has smaller operations that are never divided, and were never measured, go over the rail
// that carries most of a class. Which rail is quicker for them is chance, and the one that was just
// used is quicker for whoever comes next: a barrier that goes over another rail costs the sum after
// it some 5 %, and up to a third where a shaper's bucket is drawn on in turn.
func (b *Balancer) lead(c Class) (changed bool) {
	k := &b.classes[c]
	for near := int(c) - 1; near >= 0 && b.classes[near].sets == 0; near-- {
		small := &b.classes[near]
		if !b.undivided(Class(near)) || k.leads(most(small.shares)) {
			continue
		}
		copy(small.shares, b.cold(Class(near), most(k.shares)))
		changed = true
	}
	return changed
}

// leads reports whether a rail carries about as much as any.
func (k *class) leads(rail int) bool {
	return greatly*float64(k.shares[rail]) >= float64(k.shares[most(k.shares)])
}
