package balance

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var (
	allWorlds    = flag.Bool("worlds", false, "score the balancer on all seeds of all worlds")
	updateWorlds = flag.Bool("update", false, "write the table of worlds to testdata")
	onlyWorlds   = flag.String("only", "", "with -worlds: only those whose names contain this")
)

// scale of a table of worlds.
type scale struct {
	seeds  uint64
	rested int // sets of windows at rest, of which tables are counted
	file   string
}

var (
	full = scale{120, 1000, "worlds.txt"}
	part = scale{12, 60, "worlds_part.txt"}
)

// checkpoints are sets of windows of a size.
var checkpoints = [...]int{3, 10, 50, 200}

const (
	learning   = 50  // sets, of which the mean time over the best is the cost of learning
	followed   = 1.1 // times the best: a change is followed
	notFollow  = 100 // sets, after which it isn't
	mostWindow = 40  // times the sets that a simulation needs by the checkpoints
)

// score is what the balancer did in the worlds of a kind.
type score struct {
	name     string
	over     [len(checkpoints)][]float64 // by checkpoint, one of each world and size
	learning []float64
	tables   []float64 // in a thousand sets at rest
	follow   []float64 // sets
}

// play scores one world.
func (s *score) play(t *testing.T, k kind, seed uint64, rested int) {
	w := k.make(seed)
	counts, cost, last := make(map[int]int), 0.0, checkpoints[len(checkpoints)-1]
	for done, sets := 0, 0; done < k.sizes; sets++ {
		if sets > mostWindow*k.sizes*last {
			t.Errorf("%s, seed %d: sets of windows by size are %v", k.name, seed, counts)
			return
		}
		size := w.next()
		over := w.over(size)
		counts[size]++
		if n := counts[size]; n <= learning {
			cost += over / float64(learning*k.sizes)
		}
		if at := slices.Index(checkpoints[:], counts[size]); at >= 0 {
			s.over[at] = append(s.over[at], over)
		}
		if counts[size] == last {
			done++
		}
	}
	s.learning = append(s.learning, cost)
	before := w.tables()
	for range rested {
		w.next()
	}
	s.tables = append(s.tables, float64(w.tables()-before)*1000/float64(rested))
	for _, faster := range []bool{false, true} {
		if w.change(faster) {
			s.follow = append(s.follow, float64(follows(w)))
		}
	}
}

// follows is how many sets it takes until operations come near the best again.
func follows(w simulation) (sets int) {
	for near := 0; near < 2 && sets < notFollow; sets++ {
		size := w.next()
		if near++; w.over(size) > followed {
			near = 0
		}
	}
	return sets
}

// at is the value that such a part of all are below.
func at(part float64, values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(part*float64(len(sorted))), len(sorted)-1)]
}

const worldsHeader = `# The balancer in simulated networks; make worlds wrote this.
# Time over the best after so many windows of a size: median, 95th percentile, worst.
# Then median and 95th percentile: mean time over the best of the first 50 windows; tables in 1,000
# windows at rest; windows to follow a rail that becomes four times as slow or fast.
`

func (s *score) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-23s", s.name)
	for _, v := range s.over {
		fmt.Fprintf(&b, " |%6.3f%7.3f%7.2f", at(0.5, v), at(0.95, v), at(1, v))
	}
	fmt.Fprintf(&b, " |%6.2f%6.2f", at(0.5, s.learning), at(0.95, s.learning))
	fmt.Fprintf(&b, " |%4.0f%5.0f |", at(0.5, s.tables), at(0.95, s.tables))
	if len(s.follow) == 0 {
		return b.String() + "   –    –"
	}
	fmt.Fprintf(&b, "%4.0f%5.0f", at(0.5, s.follow), at(0.95, s.follow))
	return b.String()
}

// worlds scores the balancer, and returns the table.
func worlds(t *testing.T, s scale, only string) (scores []score, text string) {
	var b bytes.Buffer
	b.WriteString(worldsHeader)
	fmt.Fprintf(&b, "%-23s |%20s |%20s |%20s |%20s |%12s |%9s |%9s\n",
		fmt.Sprintf("%d seeds", s.seeds), "after 3 windows", "10", "50", "200",
		"learning", "tables", "follow")
	for _, k := range kinds {
		if !strings.Contains(k.name, only) {
			continue
		}
		one := score{name: k.name}
		for seed := range s.seeds {
			one.play(t, k, seed, s.rested)
		}
		if *allWorlds {
			fmt.Println(one.line())
		}
		b.WriteString(one.line() + "\n")
		scores = append(scores, one)
	}
	return scores, b.String()
}

// TestWorldsAreNoWorse scores a part of the seeds, or with -worlds all of them, and compares the
// table with the committed one.
func TestWorldsAreNoWorse(t *testing.T) {
	if testing.Short() {
		t.Skip("long under the race detector, which finds nothing in a core without goroutines")
	}
	s := part
	if *allWorlds {
		s = full
	}
	file := filepath.Join("testdata", s.file)
	before, err := os.ReadFile(file)
	if err != nil && !*updateWorlds {
		t.Fatal(err)
	}
	scores, text := worlds(t, s, *onlyWorlds)
	if *updateWorlds {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, now := range scores {
		now.compare(t, string(before))
	}
}

// A clear loss against the committed table. After one other decision all that follows is another
// draw.
const (
	worseMedian = 0.02 // time over the best after 200 windows
	worseTail   = 0.10 // its 95th percentile
	worseTables = 30   // median, in 1,000 windows
)

// compare reports a clear loss against a committed table.
func (s *score) compare(t *testing.T, committed string) {
	t.Helper()
	for line := range strings.Lines(committed) {
		name, rest, found := strings.Cut(line, " |")
		if !found || strings.TrimSpace(name) != s.name {
			continue
		}
		columns := strings.Split(rest, "|")
		var median, tail, worst, tables, most float64
		if _, err := fmt.Sscan(columns[3], &median, &tail, &worst); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(columns[5], &tables, &most); err != nil {
			t.Fatal(err)
		}
		end := s.over[len(s.over)-1]
		slower := at(0.5, end) > median+worseMedian || at(0.95, end) > tail+worseTail
		if slower || at(0.5, s.tables) > tables+worseTables {
			t.Errorf("a clear loss:\nwas %snow %s", line, s.line())
		}
		return
	}
	t.Errorf("%s: no line in the committed table", s.name)
}
