package balance

import (
	"math"
	"slices"
)

// What a measured class says of others.
const (
	reach       = 6   // classes that a measurement teaches to either side
	gainToTeach = 1.1 // for a class that was never measured, to be worth a table
)

// teach applies the model to near classes that have no measurements of their own.
func (b *Balancer) teach(c Class) (changed bool) {
	least := max(int(c)-reach, 0)
	if b.undivided(c) {
		least = int(c) + 1 // the smaller ones are led
	}
	for near := least; near <= min(int(c)+reach, largestClass); near++ {
		k := &b.classes[near]
		if k.sets > 0 || k.algorithm != b.classes[c].algorithm {
			continue
		}
		want, seconds, ok := b.best(Class(near))
		if !ok || slices.Equal(want, k.shares) {
			continue
		}
		gain := b.predict(Class(near), k.shares) / seconds
		if gain < gainToAdjust {
			continue
		}
		if gain > gainToTeach*math.Exp(doubtOnceSettled*b.classes[c].own.deviation()) {
			changed = true
		}
		copy(k.shares, want) // goes out with the next table, worth one of its own or not
	}
	return changed
}

// lead has smaller operations that were never measured go where those of a class go that is never divided. Which rail is quicker
// for them is chance, and the one that was just used is quicker for whoever comes next: a barrier that goes over
// another rail costs the sum after it some 5 %.
func (b *Balancer) lead(c Class) (changed bool) {
	rail := most(b.classes[c].shares)
	for near := int(c) - 1; near >= 0 && b.classes[near].sets == 0; near-- {
		if k := &b.classes[near]; most(k.shares) != rail {
			copy(k.shares, b.cold(Class(near), rail))
			changed = true
		}
	}
	return changed
}
