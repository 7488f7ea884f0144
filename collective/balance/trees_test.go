package balance

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/table"
)

// smallWorld is a communicator that makes small sums, over rails of which the last may have a tree.
type smallWorld struct {
	rng    *rand.Rand
	b      *Balancer
	table  *table.Table
	bytes  int64
	flat   time.Duration // of an operation without a tree
	factor float64       // of the tree's time
	tree   bool
	treed  int // sets of operations that went over it
}

func newSmallWorld(t *testing.T, seed uint64, rails int, bytes int64, factor float64) *smallWorld {
	const eager = 256 << 10
	start, err := Static(Equal(rails), 8<<10, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &smallWorld{rng: rand.New(rand.NewPCG(seed, 1)), bytes: bytes, flat: 100 * time.Microsecond, factor: factor,
		table: start, b: NewBalancer(Setup{Rails: rails, SplitBytes: 8 << 10, Start: start, TreeBytes: eager,
			Algorithm: func(bytes int64) op.Algorithm { return schedule.Choose(op.KindAllReduce, bytes, 8, nil) },
			Owners:    func(a op.Algorithm) int { return schedule.Parts(op.KindAllReduce, a, 8) }})}
}

// grow has the last rail's tree come or go.
func (w *smallWorld) grow(tree bool) {
	w.tree = tree
	up := make([]bool, w.b.setup.Rails)
	up[len(up)-1] = tree
	w.follow(w.b.Trees(up))
}

func (w *smallWorld) follow(changed bool) {
	if !changed {
		return
	}
	w.table = &table.Table{Entries: w.b.Table()}
	if err := w.table.Validate(w.b.setup.Rails); err != nil {
		panic(err)
	}
}

// run makes so many sets of operations.
func (w *smallWorld) run(sets int) {
	for range sets {
		e := w.table.Lookup(w.bytes)
		rails := len(e.Weights)
		total := uint32(0)
		for _, x := range e.Weights {
			total += x
		}
		over := e.Route == table.Treed && w.tree && e.Weights[rails-1] == total
		took := float64(w.flat)
		if over {
			took *= w.factor
			w.treed++
		}
		var set []Window
		for rail, x := range e.Weights {
			if x > 0 {
				noise := 1 + 0.04*(2*w.rng.Float64()-1)
				set = append(set, Window{Rail: rail, Class: ClassOf(w.bytes), Operations: WindowOperations,
					Bytes: w.bytes * int64(x) / int64(total), Elapsed: time.Duration(took * noise)})
			}
		}
		w.follow(w.b.Observe(set))
	}
}

// chosen reports whether operations go over the tree, but for trials.
func (w *smallWorld) chosen() bool {
	x := w.b.choices[ClassOf(w.bytes)]
	return x.rivals[x.home].treed
}

// over reports whether the table has operations go over a tree.
func (w *smallWorld) over() bool { return w.table.Lookup(w.bytes).Route == table.Treed }

// Small operations go over a tree where that is faster, and only then.
func TestSmallOperationsTakeTheFasterWay(t *testing.T) {
	for _, rails := range []int{1, 2} {
		for _, factor := range []float64{0.5, 0.85, 1, 1.2, 3} {
			t.Run(fmt.Sprintf("rails=%d,factor=%v", rails, factor), func(t *testing.T) {
				for seed := range uint64(50) {
					w := newSmallWorld(t, seed, rails, 8, factor)
					w.run(20)
					if w.treed > 0 || w.over() {
						t.Fatalf("seed %d: operations go over a tree that isn't there", seed)
					}
					w.grow(true)
					w.run(60)
					if want := factor < 1; w.chosen() != want {
						t.Fatalf("seed %d: over the tree %v, it is faster: %v", seed, w.chosen(), want)
					}
					if w.treed == 0 {
						t.Fatalf("seed %d: the tree was never tried", seed)
					}
					if factor > 2 && w.treed > 2 {
						t.Errorf("seed %d: %d sets of operations went over a tree that is %v times slower", seed, w.treed, factor)
					}
				}
			})
		}
	}
}

// Without its tree an operation goes as before, at once, and over the next tree when that is there.
func TestSmallOperationsOutliveTheirTree(t *testing.T) {
	w := newSmallWorld(t, 1, 2, 8, 0.5)
	w.grow(true)
	w.run(60)
	if !w.chosen() {
		t.Fatal("the tree is not used")
	}
	w.grow(false)
	if w.over() {
		t.Fatal("operations go over a tree that is lost")
	}
	w.run(5)
	w.grow(true)
	if w.run(60); !w.chosen() {
		t.Error("the next tree is not used")
	}
}

// What is kept for the next process says nothing of trees.
func TestATreeIsNotSaved(t *testing.T) {
	w := newSmallWorld(t, 1, 1, 8, 0.5)
	w.grow(true)
	w.run(60)
	saved, ok := w.b.Save()
	if !ok || !w.chosen() {
		t.Fatalf("saved %v, over the tree %v", ok, w.chosen())
	}
	for _, s := range saved.Samples {
		if s.Elapsed < 80*time.Microsecond {
			t.Errorf("a sample of %v: flat operations take 100 µs", s.Elapsed)
		}
	}
	if err := saved.Validate(1); err != nil {
		t.Error(err)
	}
}
