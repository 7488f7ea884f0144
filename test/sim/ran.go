package sim

import (
	"fmt"
	"strings"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
)

// kinds are all that the simulation runs.
var kinds = append([]op.Kind{op.KindBarrier}, op.Kinds...)

// Ran counts operations by kind and algorithm.
type Ran [op.KindExScan + 1][op.Leaders + 1]int

func (r *Ran) add(o *Ran) {
	for k := range o {
		for a, n := range o[k] {
			r[k][a] += n
		}
	}
}

// least is the pair of which there were the fewest.
func (r *Ran) least() (kind op.Kind, algorithm op.Algorithm, count int) {
	count = -1
	for _, k := range kinds {
		for _, a := range schedule.Algorithms(k) {
			if n := r[k][a]; count < 0 || n < count {
				kind, algorithm, count = k, a, n
			}
		}
	}
	return kind, algorithm, count
}

func (r Ran) String() string {
	var counts []string
	for _, k := range kinds {
		for _, a := range schedule.Algorithms(k) {
			counts = append(counts, fmt.Sprintf("%v/%v:%d", k, a, r[k][a]))
		}
	}
	return strings.Join(counts, " ")
}
