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
)

var rounds = flag.Int("rounds", 0, "how often a process is killed or stopped, and comes back; 0: a few, without limits on time and memory")

const (
	few      = 3 // rounds of a short test
	elements = 4 << 20
	// patience bounds what takes a few seconds when nothing is broken.
	patience = 90 * time.Second

	// What a long test holds the rounds against: time from the signal to the error, and how much more memory there may be.
	killedLimit   = 500 * time.Millisecond
	growthPercent = 5
	warmUp        = 4 // rounds, after which memory is measured: both victims, both signals
)

// names of the members, in the order of their ranks. The first and the last one are struck; the others live through all rounds.
var names = []string{"a", "b", "c", "d"}

var victims = []int{0, 3}

func TestMain(m *testing.M) {
	if config := os.Getenv(childEnv); config != "" {
		if err := child(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
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

// start starts a member, or starts it again.
func (c *cluster) start(i int) {
	c.t.Helper()
	var join []string
	for j, p := range c.all {
		if j != i && p != nil {
			join = append(join, p.addr)
		}
	}
	config, err := json.Marshal(childConfig{Name: names[i], Join: join})
	if err != nil {
		c.t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(os.Args[0]), name: names[i], reports: make(chan report, 16)}
	p.Env, p.Stderr = append(os.Environ(), childEnv+"="+string(config)), &p.errs
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

// await takes what a member says next, which is to be of a kind.
func (c *cluster) await(i int, kind string) report {
	c.t.Helper()
	p := c.all[i]
	select {
	case r, alive := <-p.reports:
		if !alive {
			err := p.Wait() // what it wrote is whole then
			c.t.Fatalf("%s ended, %q was to come: %v\n%s", p.name, kind, err, p.errs.String())
		}
		if r.Kind != kind || r.Wrong != 0 {
			c.t.Fatalf("%s: %q with %d wrong elements (%s), want %q", p.name, r.Kind, r.Wrong, r.Error, kind)
		}
		return r
	case <-time.After(patience):
		c.t.Fatalf("%s: no %q within %v", p.name, kind, patience)
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
	signal                   syscall.Signal
	failed, shrunk, reformed time.Duration
	early                    bool // the operation that failed had begun before the signal, on all of them
}

// strike lets all members operate and sends one a signal in the midst of it. The others are to go on without it.
func (c *cluster) strike(victim int, signal syscall.Signal, delay time.Duration) outcome {
	c.t.Helper()
	for i := range c.all {
		c.tell(i, operate)
	}
	for i := range c.all {
		c.await(i, operating)
	}
	<-time.After(delay) // somewhere in an operation, not always at the same place
	struck := time.Now()
	if err := c.all[victim].Process.Signal(signal); err != nil {
		c.t.Fatal(err)
	}
	o := outcome{signal: signal, early: true}
	rest := slices.Delete(slices.Clone(names), victim, victim+1)
	for i := range c.all {
		if i == victim {
			continue
		}
		r := c.await(i, failed)
		// Its own finding, or that of another one who was faster: both name who is lost.
		if !r.Lost || !strings.Contains(r.Error, fmt.Sprintf("node %q", names[victim])) {
			c.t.Fatalf("%s: %q, want the loss of %s", names[i], r.Error, names[victim])
		}
		o.failed, o.early = max(o.failed, r.At.Sub(struck)), o.early && r.Begin.Before(struck)
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
	return o
}

// end kills a member, stopped ones too, and waits for its end.
func (c *cluster) end(i int) {
	p := c.all[i]
	_ = p.Process.Kill() // it may have ended
	for range p.reports {
	}
	_ = p.Wait() // "signal: killed"
	p.stdin.Close()
}

// left compares what the survivors have with what they had. Goroutines and descriptors of connections that close,
// and of gossip that remembers who went, are given time to end.
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
	c := &cluster{t: t, all: make([]*process, len(names)), base: make(map[int]use)}
	t.Cleanup(func() {
		for i, p := range c.all {
			if p != nil {
				c.end(i)
			}
		}
	})
	for i := range c.all {
		c.start(i)
	}
	c.form()
	delays := rand.New(rand.NewPCG(1, uint64(times)))
	var seen []outcome
	for round := 1; round <= times; round++ {
		victim, signal, limit := victims[round%2], syscall.SIGKILL, killedLimit
		if round/2%2 == 1 {
			signal, limit = syscall.SIGSTOP, polyrail.DefaultConfig().RankTimeout
		}
		o := c.strike(victim, signal, time.Duration(delays.Int64N(int64(50*time.Millisecond))))
		c.end(victim)
		c.start(victim)
		o.reformed = c.form()
		seen = append(seen, o)
		t.Logf("round %d: %v of %s: error after %v, shrunk in %v, whole again in %v", round, signal, names[victim],
			o.failed.Round(time.Millisecond), o.shrunk.Round(time.Millisecond), o.reformed.Round(time.Millisecond))
		if limits && o.failed > limit {
			t.Errorf("round %d: the error came %v after %v, the limit is %v", round, o.failed, signal, limit)
		}
		c.left(round)
	}
	summary(t, seen)
}

// summary tells the median and the worst round by signal.
func summary(t *testing.T, seen []outcome) {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		var failed, shrunk, reformed []time.Duration
		early := 0
		for _, o := range seen {
			if o.signal != signal {
				continue
			}
			failed, shrunk, reformed = append(failed, o.failed), append(shrunk, o.shrunk), append(reformed, o.reformed)
			if o.early {
				early++
			}
		}
		if len(failed) > 0 {
			t.Logf("%v, %d rounds (%d in mid-operation): error after %s, shrunk in %s, whole again in %s (median, worst)",
				signal, len(failed), early, spread(failed), spread(shrunk), spread(reformed))
		}
	}
}

func spread(d []time.Duration) string {
	slices.Sort(d)
	return fmt.Sprintf("%v, %v", d[len(d)/2].Round(time.Millisecond), d[len(d)-1].Round(time.Millisecond))
}
