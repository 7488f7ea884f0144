package rounds

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/test/program"
)

var rounds = flag.Int("rounds", 0, "how often a process is killed or stopped, and comes back; 0: a few, without limits on time and memory")

const (
	few      = 4 // rounds of a short test: both signals, and both ways back from a stop
	elements = 4 << 20
	// patience bounds what takes a few seconds when nothing is broken.
	patience = 90 * time.Second

	// What a long test holds the rounds against: time from the signal to the error, and how much
	// more memory there may be.
	killedLimit   = 500 * time.Millisecond
	growthPercent = 5
	warmUp        = 4 // rounds, after which memory is measured: both victims, both signals
	maxDraws      = 5 // of the moment of a signal, until it falls in mid-operation
)

// names of the members, in the order of their ranks. The first and the last one are struck; the
// others live through all rounds.
var names = []string{"a", "b", "c", "d"}

var victims = []int{0, 3}

func TestMain(m *testing.M) {
	program.Live(childEnv, child)
	os.Exit(m.Run())
}

// process is a member, as its parent sees it.
type process struct {
	*exec.Cmd
	name    string
	addr    string
	stdin   io.WriteCloser
	reports chan report // closed at its end
	errs    strings.Builder
}

// cluster is all members, by rank.
type cluster struct {
	t    *testing.T
	all  []*process
	base map[int]use // what the survivors had when they were warm
}

// newCluster starts all members, which the test's end kills.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, all: make([]*process, len(names)), base: make(map[int]use)}
	t.Cleanup(func() {
		for i, p := range c.all {
			if p != nil {
				c.end(i, time.Time{})
			}
		}
	})
	for i := range c.all {
		c.start(i)
	}
	return c
}

// start starts a member, or starts it again.
func (c *cluster) start(i int) {
	c.t.Helper()
	var join []string
	for j, p := range c.all {
		if j != i && p != nil {
			join = append(join, p.addr)
		}
	}
	p := &process{Cmd: exec.Command(os.Args[0]), name: names[i], reports: make(chan report, 16)}
	p.Stderr = &p.errs
	err := program.Tell(p.Cmd, childEnv, childConfig{Name: names[i], Join: join})
	if err != nil {
		c.t.Fatal(err)
	}
	if p.stdin, err = p.StdinPipe(); err != nil {
		c.t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		c.t.Fatal(err)
	}
	go func() {
		defer close(p.reports)
		for lines := json.NewDecoder(bufio.NewReader(out)); ; {
			var r report
			if lines.Decode(&r) != nil { // the process has ended
				return
			}
			p.reports <- r
		}
	}()
	c.all[i] = p
	p.addr = c.await(i, started).Addr
}

// await takes what a member says next, which is to be of one of the kinds.
func (c *cluster) await(i int, kinds ...string) report {
	c.t.Helper()
	p := c.all[i]
	select {
	case r, alive := <-p.reports:
		if !alive {
			err := p.Wait() // what it wrote is whole then
			c.t.Fatalf("%s ended, %q was to come: %v\n%s", p.name, kinds, err, p.errs.String())
		}
		if !slices.Contains(kinds, r.Kind) || r.Wrong != 0 {
			c.t.Fatalf("%s: %q with %d wrong elements (%s), want %q", p.name, r.Kind, r.Wrong, r.Error, kinds)
		}
		return r
	case <-time.After(patience):
		c.t.Fatalf("%s: no %q within %v", p.name, kinds, patience)
	}
	panic("unreachable")
}

func (c *cluster) tell(i int, word string) {
	c.t.Helper()
	if _, err := io.WriteString(c.all[i].stdin, word+"\n"); err != nil {
		c.t.Fatalf("%s: %v", c.all[i].name, err)
	}
}

// form lets all members form the whole communicator.
func (c *cluster) form() (took time.Duration) {
	c.t.Helper()
	for i := range c.all {
		c.tell(i, form)
	}
	for i := range c.all {
		r := c.await(i, formed)
		if !slices.Equal(r.Nodes, names) {
			c.t.Fatalf("%s formed %v, want %v", names[i], r.Nodes, names)
		}
		took = max(took, r.Took)
	}
	return took
}

// outcome is what a round was like for those who live: the slowest of them counts.
type outcome struct {
	signal                          syscall.Signal
	failed, shrunk, woken, reformed time.Duration
	missed                          int // draws of a moment that did not fall in mid-operation
}

// strike lets all members operate and sends one a signal, at a moment that is drawn, in the midst
// of it: all had begun the operation, none had ended it. The others are to go on without it.
func (c *cluster) strike(victim int, signal syscall.Signal, draw float64) (o outcome, middle bool) {
	c.t.Helper()
	for i := range c.all {
		c.tell(i, operate)
	}
	took := patience
	for i := range c.all {
		took = min(took, c.await(i, operating).Took)
	}
	<-time.After(time.Duration(draw * float64(took)))
	struck := time.Now()
	if err := c.all[victim].Process.Signal(signal); err != nil {
		c.t.Fatal(err)
	}
	o, middle = outcome{signal: signal}, true
	rest := slices.Delete(slices.Clone(names), victim, victim+1)
	for i := range c.all {
		if i == victim {
			continue
		}
		r, over := c.failure(i, struck)
		// Its own finding, or that of another one who was faster: both name who is lost.
		if !r.Lost || !strings.Contains(r.Error, fmt.Sprintf("node %q", names[victim])) {
			c.t.Fatalf("%s: %q, want the loss of %s", names[i], r.Error, names[victim])
		}
		o.failed, middle = max(o.failed, r.At.Sub(struck)), middle && !over
	}
	for i := range c.all {
		if i != victim {
			c.tell(i, shrink)
		}
	}
	for i := range c.all {
		if i == victim {
			continue
		}
		r := c.await(i, shrunk)
		if !slices.Equal(r.Nodes, rest) {
			c.t.Fatalf("%s went on with %v, want %v", names[i], r.Nodes, rest)
		}
		o.shrunk = max(o.shrunk, r.Took)
	}
	var over bool
	if signal == syscall.SIGKILL {
		over = c.end(victim, struck)
	} else {
		over, o.woken = c.wake(victim, struck)
	}
	return o, middle && !over
}

// failure awaits the error that a signal leads to; over: the operation that was to be hit had ended
// by then.
func (c *cluster) failure(i int, struck time.Time) (r report, over bool) {
	c.t.Helper()
	r = c.await(i, passed, failed)
	if r.Kind == passed { // nothing that it still needed was lost
		over = r.At.Before(struck)
		r = c.await(i, failed)
	}
	return r, over
}

// wake lets a stopped member go on, long after the others did so without it. It is to learn that,
// from the one that lost it or by losing all: an error that says so, and that it must not go on
// alone.
func (c *cluster) wake(victim int, struck time.Time) (over bool, took time.Duration) {
	c.t.Helper()
	woken := time.Now()
	if err := c.all[victim].Process.Signal(syscall.SIGCONT); err != nil {
		c.t.Fatal(err)
	}
	r, over := c.failure(victim, struck)
	if !r.Lost || !strings.Contains(r.Error, fmt.Sprintf("node %q lost", names[victim])) {
		c.t.Fatalf("%s was given up and ended with %q, want to hear of it", names[victim], r.Error)
	}
	c.tell(victim, shrink)
	if alone := c.await(victim, refused); !alone.Left {
		c.t.Fatalf("%s was given up, and then: %q, want a minority", names[victim], alone.Error)
	}
	return over, r.At.Sub(woken)
}

// end kills a member, unless it has ended, and waits for its end; over: the operation that was to
// be hit had ended by then.
func (c *cluster) end(i int, struck time.Time) (over bool) {
	p := c.all[i]
	_ = p.Process.Kill() // it may have ended
	for r := range p.reports {
		over = over || r.Kind == passed && r.At.Before(struck)
	}
	_ = p.Wait() // "signal: killed"
	p.stdin.Close()
	return over
}

// leave lets a member end by itself: whatever it went through, it closes its node.
func (c *cluster) leave(i int) {
	c.t.Helper()
	p := c.all[i]
	p.stdin.Close()
	program.Limit(p.Cmd, patience)
	for r := range p.reports {
		c.t.Errorf("%s leaves and says %q", p.name, r.Kind)
	}
	if err := p.Wait(); err != nil {
		c.t.Fatalf("%s: %v\n%s", p.name, err, p.errs.String())
	}
}

// left compares what the survivors have with what they had. Goroutines and descriptors of
// connections that close, and of gossip that remembers who went, are given time to end.
func (c *cluster) left(round int) {
	c.t.Helper()
	for i := range c.all {
		if slices.Contains(victims, i) {
			continue
		}
		base, known := c.base[i]
		for end := time.Now().Add(patience); ; {
			c.tell(i, measure)
			u := c.await(i, measured).Use
			if same := u.Goroutines == base.Goroutines && u.Descriptors == base.Descriptors; !same && known {
				if time.Now().Before(end) {
					continue
				}
				c.t.Errorf("round %d: %s has %d goroutines and %d descriptors, had %d and %d\n%s",
					round, names[i], u.Goroutines, u.Descriptors, base.Goroutines, base.Descriptors, u.Stacks)
			}
			if !known || round == warmUp {
				c.base[i] = u
			} else if *rounds > 0 && round > warmUp && u.Resident > base.Resident+base.Resident*growthPercent/100 {
				c.t.Errorf("round %d: %s has %.1f MiB resident, had %.1f", round, names[i], mebi(u.Resident), mebi(base.Resident))
			}
			c.t.Logf("round %d: %s has %d goroutines, %d descriptors, %.1f MiB resident", round, names[i], u.Goroutines, u.Descriptors, mebi(u.Resident))
			break
		}
	}
}

func mebi(bytes int64) float64 { return float64(bytes) / (1 << 20) }

func TestProcessesAreLostAndComeBack(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short leaves out whole programs")
	}
	times, limits := *rounds, true
	if times == 0 {
		times, limits = few, false // whatever the machine is busy with
	}
	c := newCluster(t)
	c.form()
	var seen []outcome
	for round := 1; round <= times; round++ {
		o, limit := c.round(round), killedLimit
		if o.signal == syscall.SIGSTOP {
			limit = polyrail.DefaultConfig().RankTimeout
		}
		seen = append(seen, o)
		t.Logf("round %d: %v of %s: error after %v, shrunk in %v, whole again in %v; %d draws missed", round, o.signal,
			names[victims[round%2]], milli(o.failed), milli(o.shrunk), milli(o.reformed), o.missed)
		if limits && o.failed > limit {
			t.Errorf("round %d: the error came %v after %v, the limit is %v", round, o.failed, o.signal, limit)
		}
		c.left(round)
	}
	summary(t, seen)
}

// round strikes a member in mid-operation and brings it back under its name: as another process,
// or, one time in two of those that it was stopped, as the same one and the same node. A signal
// that met it between two operations doesn't count.
func (c *cluster) round(round int) (o outcome) {
	c.t.Helper()
	victim, signal := victims[round%2], syscall.SIGKILL
	if round/2%2 == 1 {
		signal = syscall.SIGSTOP
	}
	for missed := 0; ; missed++ {
		if missed == maxDraws {
			c.t.Fatalf("round %d: none of %d signals fell in mid-operation", round, missed)
		}
		var middle bool
		o, middle = c.strike(victim, signal, rand.Float64()*3/4)
		switch {
		case signal == syscall.SIGKILL:
			c.start(victim)
		case round/4%2 == 0:
			c.leave(victim)
			c.start(victim)
		}
		o.reformed, o.missed = c.form(), missed
		if middle {
			return o
		}
	}
}

func milli(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// summary tells the median and the worst round by signal.
func summary(t *testing.T, seen []outcome) {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		var failed, shrunk, woken, reformed []time.Duration
		missed := 0
		for _, o := range seen {
			if o.signal == signal {
				failed, shrunk = append(failed, o.failed), append(shrunk, o.shrunk)
				woken, reformed = append(woken, o.woken), append(reformed, o.reformed)
				missed += o.missed
			}
		}
		if len(failed) == 0 {
			continue
		}
		t.Logf("%v, %d rounds, all in mid-operation (%d draws missed): median and worst: error after %s, shrunk in %s, whole again in %s",
			signal, len(failed), missed, spread(failed), spread(shrunk), spread(reformed))
		if signal == syscall.SIGSTOP {
			t.Logf("%v: the woken one knew after %s", signal, spread(woken))
		}
	}
}

func spread(d []time.Duration) string {
	slices.Sort(d)
	return fmt.Sprintf("%v, %v", milli(d[len(d)/2]), milli(d[len(d)-1]))
}
