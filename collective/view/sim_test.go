package view

import (
	"container/heap"
	"fmt"
	"iter"
	"math/rand"
	"reflect"
	"testing"
	"time"

	"github.com/polyrail/polyrail/test/seeds"
)

// TestAgreementUnderChaos runs whole groups of cores against lost, repeated, late and
// reordered messages, wrong news of members, crashes, restarts and broken pairs; then
// all is quiet and everyone who asks must get the same view.
func TestAgreementUnderChaos(t *testing.T) {
	simulate(t, func(seed int64, logf func(string, ...any)) error {
		w := newWorld(seed, logf)
		w.chaos(time.Duration(2+w.rng.Intn(20)) * time.Second)
		w.calm()
		return w.err
	})
}

// simulate runs as many seeds as an ordinary test affords.
func simulate(t *testing.T, run func(seed int64, logf func(string, ...any)) error) {
	simulateSeeds(t, 1, seeds.Count(1500, 150), run)
}

// simulateSeeds runs seeds from first on, or the one that is to be replayed.
func simulateSeeds(t *testing.T, first, count uint64, run func(seed int64, logf func(string, ...any)) error) {
	if seed, one := seeds.One(); one {
		if err := run(int64(seed), t.Logf); err != nil {
			t.Fatal(err)
		}
		return
	}
	seeds.Spread(first, count, func(seeds iter.Seq[uint64]) {
		for seed := range seeds {
			if err := run(int64(seed), nil); err != nil {
				t.Errorf("seed %d: %v\nreplay: go test ./collective/view -run %s -seed %d -v", seed, err, t.Name(), seed)
				break
			}
		}
	})
}

// world is n nodes, their gossip, their pairs and their barriers, on one queue of events.
type world struct {
	rng      *rand.Rand
	now      time.Time
	queue    queue
	pushed   int
	nodes    []*simNode
	byName   map[string]*simNode
	sizes    map[string]int
	cut      map[[2]string]bool // pairs that cannot be made
	rough    bool
	views    map[uint64]*View
	barriers map[uint64]*simBarrier
	formed   int
	onFormed func(*simNode, *View)
	err      error
	logf     func(string, ...any)
}

// simNode is a host with its present process.
type simNode struct {
	name        string
	incarnation uint64
	core        *Core // nil while crashed
	members     map[string]uint64
	calls       map[string]uint64 // name → token of the waiting call
	tickAt      time.Time
	last        map[string]*View           // formed, by name
	joined      map[uint64]map[string]bool // ids registered by this process → members reached
	holds       map[uint64]*View           // registered and neither given up nor closed
	attempts    map[uint64][]*View         // of failed calls to shrink, by old id
	gone        map[string]uint64          // processes that its pairs call lost
}

type simBarrier struct {
	view    *View
	entered map[string]bool
	open    map[string]bool // told nothing yet
	doomed  bool
}

type simEvent struct {
	at  time.Time
	seq int
	run func()
}

type queue []simEvent

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at.Before(q[j].at) || q[i].at.Equal(q[j].at) && q[i].seq < q[j].seq
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(simEvent)) }
func (q *queue) Pop() any {
	e := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return e
}

// newWorld has as many nodes as the seed says, a few.
func newWorld(seed int64, logf func(string, ...any)) *world {
	return newWorldOf(0, seed, logf)
}

// newWorldOf has n nodes; 0: as newWorld.
func newWorldOf(n int, seed int64, logf func(string, ...any)) *world {
	w := &world{
		rng: rand.New(rand.NewSource(seed)), now: time.Unix(1000, 0), logf: logf,
		byName: map[string]*simNode{}, sizes: map[string]int{}, cut: map[[2]string]bool{},
		views: map[uint64]*View{}, barriers: map[uint64]*simBarrier{}, rough: true,
	}
	if n == 0 {
		n = 1 + w.rng.Intn(7)
	}
	for i := range n {
		w.nodes = append(w.nodes, &simNode{name: fmt.Sprintf("n%03d", i)})
		w.byName[w.nodes[i].name] = w.nodes[i]
	}
	for _, name := range []string{"x", "y"} {
		w.sizes[name] = 1 + w.rng.Intn(n)
	}
	for _, node := range w.nodes {
		w.start(node)
	}
	return w
}

func (w *world) failf(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

func (w *world) after(d time.Duration, f func()) {
	heap.Push(&w.queue, simEvent{at: w.now.Add(d), seq: w.pushed, run: f})
	w.pushed++
}

// run carries out events up to the given time.
func (w *world) run(until time.Time) {
	for w.err == nil && len(w.queue) > 0 && !w.queue[0].at.After(until) {
		e := heap.Pop(&w.queue).(simEvent)
		w.now = e.at
		e.run()
		if w.pushed > 2_000_000+5_000*len(w.nodes)*len(w.nodes) {
			w.failf("the cores do not come to rest")
		}
	}
	w.now = until
}

func (w *world) delay() time.Duration {
	d := time.Duration(w.rng.ExpFloat64() * float64(2*time.Millisecond))
	if w.rough && w.rng.Intn(20) == 0 {
		d += time.Duration(w.rng.Intn(4000)) * time.Millisecond
	}
	return d
}

func (w *world) start(n *simNode) {
	n.incarnation++
	n.members, n.calls, n.last = map[string]uint64{}, map[string]uint64{}, map[string]*View{}
	n.joined = map[uint64]map[string]bool{}
	n.holds, n.attempts, n.gone = map[uint64]*View{}, map[uint64][]*View{}, map[string]uint64{}
	n.tickAt = time.Time{}
	core, err := New(n.name, n.incarnation, []Rail{{"eth1", n.name + ":1"}, {"eth0", n.name + ":0"}}, Host{"h", n.name}, DefaultTiming())
	if err != nil {
		w.failf("%v", err)
		return
	}
	n.core = core
	w.gossipAll(n)
}

// gossipAll spreads the truth about n, and to n, in a while.
func (w *world) gossipAll(n *simNode) {
	for _, o := range w.nodes {
		if o == n {
			continue
		}
		w.after(w.delay(), func() { w.gossip(o, n) })
		w.after(w.delay(), func() { w.gossip(n, o) })
	}
}

// gossip tells node "to" how "about" is now.
func (w *world) gossip(to, about *simNode) {
	inc, known := to.members[about.name]
	switch {
	case to.core == nil:
	case about.core == nil && known:
		delete(to.members, about.name)
		w.step(to, MemberDown{about.name, inc, true})
	case about.core != nil && (!known || inc != about.incarnation):
		to.members[about.name] = about.incarnation
		w.step(to, MemberUp{about.name, about.incarnation})
	}
}

func (w *world) crash(n *simNode) {
	n.core = nil
	for _, b := range w.barriers {
		if b.view.Rank(n.name) >= 0 && b.view.member(n.name).Incarnation == n.incarnation {
			delete(b.open, n.name)
			b.doomed = true
		}
	}
	w.sweepBarriers()
	w.gossipAll(n)
}

func (w *world) step(n *simNode, e Event) {
	if n.core == nil || w.err != nil {
		return
	}
	if w.logf != nil {
		if _, tick := e.(Tick); !tick {
			w.logf("%8.3f %s#%d %T%+v", w.now.Sub(time.Unix(1000, 0)).Seconds(), n.name, n.incarnation, e, e)
		}
	}
	for _, a := range n.core.Step(e, w.now) {
		w.carryOut(n, a)
	}
	at, ok := n.core.Wake()
	if ok && (n.tickAt.IsZero() || at.Before(n.tickAt)) {
		n.tickAt = at
		inc := n.incarnation
		w.after(max(at.Sub(w.now), 0)+time.Millisecond, func() {
			if n.incarnation == inc {
				n.tickAt = time.Time{}
				w.step(n, Tick{})
			}
		})
	}
}

func (w *world) carryOut(n *simNode, a Action) {
	if w.logf != nil {
		w.logf("%8.3f %s#%d   → %T%+v", w.now.Sub(time.Unix(1000, 0)).Seconds(), n.name, n.incarnation, a, a)
	}
	switch a := a.(type) {
	case Send:
		w.deliver(n, a)
	case Register:
		if old := w.views[a.View.ID]; old != nil && !reflect.DeepEqual(old, a.View) {
			w.failf("two views under id %x: %+v, %+v", a.View.ID, old, a.View)
		}
		w.views[a.View.ID] = a.View
		if n.joined[a.View.ID] != nil {
			w.failf("%s joined the ballot of %x twice", n.name, a.View.ID)
		}
		n.joined[a.View.ID] = map[string]bool{n.name: true}
		n.holds[a.View.ID] = a.View
		if err := a.View.Validate(); err != nil {
			w.failf("registered a view that is none: %v", err)
		}
	case Unregister:
		delete(n.holds, a.View.ID)
		if b := w.barriers[a.View.ID]; b != nil && a.Entered {
			delete(b.open, n.name)
			b.doomed = true
			w.sweepBarriers()
		}
	case Connect:
		w.connect(n, a.View, a.Ranks)
	case Barrier:
		w.enter(n, a.View)
	case Formed:
		w.checkFormed(n, a)
	case Failed:
		delete(n.calls, a.Name)
		if id, ok := ShrinkOf(a.Name); ok {
			n.attempts[id] = a.Attempts
			break
		}
		if !w.rough {
			w.failf("%s: the call failed in a quiet network: %v", n.name, a.Err)
		}
	}
}

func (w *world) deliver(n *simNode, a Send) {
	copies := 1
	if w.rough {
		switch w.rng.Intn(10) {
		case 0:
			copies = 0
		case 1:
			copies = 2
		}
	}
	to, inc := w.byName[a.To], n.incarnation
	meant, known := n.members[a.To]
	for range copies {
		w.after(w.delay(), func() {
			if known && to.incarnation == meant { // the cluster drops what is meant for an older process
				w.step(to, received(to, n.name, inc, a.Message))
			}
		})
	}
}

// chaos lets callers and faults loose for a while.
func (w *world) chaos(d time.Duration) {
	end := w.now.Add(d)
	for w.now.Before(end) && w.err == nil {
		w.run(w.now.Add(time.Duration(w.rng.Intn(300)) * time.Millisecond))
		n := w.nodes[w.rng.Intn(len(w.nodes))]
		o := w.nodes[w.rng.Intn(len(w.nodes))]
		name := []string{"x", "y"}[w.rng.Intn(2)]
		switch w.rng.Intn(16) {
		case 0:
			w.cancel(n, name)
		case 1:
			if n.core != nil {
				w.crash(n)
			}
		case 2, 3:
			if n.core == nil {
				w.start(n)
			}
		case 4:
			if n != o {
				w.cut[pairKey(n.name, o.name)] = true
			}
		case 5, 6:
			clear(w.cut)
		case 7: // gossip is wrong for a while
			if inc, ok := n.members[o.name]; ok && n.core != nil {
				delete(n.members, o.name)
				w.step(n, MemberDown{o.name, inc, true})
				w.after(w.delay(), func() { w.gossip(n, o) })
			}
		case 8:
			for _, n := range w.nodes {
				w.ask(n, name, w.sizes[name])
			}
		default:
			w.ask(n, name, w.sizes[name])
		}
	}
}

// calm mends everything; then all ask for one name, with nothing cleaned up before.
func (w *world) calm() {
	w.quiet()
	for _, name := range []string{"x", "y", "x"} {
		for _, n := range w.nodes {
			n.last[name] = nil
			w.after(time.Duration(w.rng.Intn(1000))*time.Millisecond, func() { w.ask(n, name, len(w.nodes)) })
		}
		w.run(w.now.Add(10 * time.Second))
		for _, n := range w.nodes {
			if v := n.last[name]; w.err == nil && (v == nil || !reflect.DeepEqual(v, w.nodes[0].last[name])) {
				w.failf("%q of all %d nodes: node %s has %+v, node %s %+v",
					name, len(w.nodes), n.name, v, w.nodes[0].name, w.nodes[0].last[name])
			}
		}
	}
}

func (w *world) quiet() {
	clear(w.cut)
	for _, n := range w.nodes {
		if n.core == nil {
			w.start(n)
		}
		w.cancel(n, "x")
		w.cancel(n, "y")
	}
	w.rough = false
	for _, n := range w.nodes {
		w.gossipAll(n)
	}
}
