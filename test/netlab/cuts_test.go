//go:build linux

package netlab

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
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/polyrail/polyrail/test/program"
)

var cuts = flag.Int("cuts", 0, "how often each way of cutting a rail is measured (about 8 s each); 0: not at all")

const (
	cutHosts = 4
	cutBytes = 16 << 20
	inFlight = 2 << 20 // bytes that a pair may have unacknowledged
	// backWithin is what a repaired rail may take to be at its full share, or backOperations if
	// they take longer.
	backWithin     = 2 * time.Second
	backOperations = 4
)

// allowed is what a cut may cost on top of the remaining bytes.
var allowed = map[Cut]time.Duration{Carrier: 200 * time.Millisecond, Admin: 200 * time.Millisecond, Silent: 400 * time.Millisecond}

// diary is what all ranks have told.
type diary struct {
	mu    sync.Mutex
	lines [cutHosts][]line // by host − 1
	errs  [cutHosts]strings.Builder
}

// ranksOn starts a rank on each of the first hosts; they end when end is called, or say what they are
// at.
func ranksOn(t *testing.T, b *Bed, protocol string, jobs, bytes int) (d *diary, end func()) {
	t.Helper()
	d = &diary{}
	var all sync.WaitGroup
	var ends []func()
	for host := 1; host <= cutHosts; host++ {
		c := childConfig{Name: nameOf(host), Bind: b.Addr(host, 0) + ":7946", Join: b.Addr(1, 0) + ":7946", Ranks: cutHosts, Elements: bytes / 4,
			Protocol: protocol, Jobs: jobs}
		for r := range b.cfg.Rails {
			c.Rails = append(c.Rails, NIC(r+1))
		}
		cmd, in, out := spawn(t, b, host, childEnv, c, &d.errs[host-1])
		ends = append(ends, func() {
			_ = in.Close() // it may have ended already, which keep reports
			program.Limit(cmd, patience)
		})
		all.Go(func() { d.keep(t, host, cmd, bufio.NewScanner(out)) })
	}
	return d, func() {
		for _, end := range ends {
			end()
		}
		all.Wait()
	}
}

// spawn runs this test's program on a host, as what an environment variable makes of it.
func spawn(t *testing.T, b *Bed, host int, env string, config any, errs io.Writer) (*exec.Cmd, io.WriteCloser, io.Reader) {
	t.Helper()
	cmd := b.Command(host, os.Args[0])
	cmd.Stderr = errs
	if err := program.Tell(cmd, env, config); err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, in, out
}

// keep writes down what a rank tells, until it ends.
func (d *diary) keep(t *testing.T, host int, cmd *exec.Cmd, out *bufio.Scanner) {
	for out.Scan() {
		var l line
		if err := json.Unmarshal(out.Bytes(), &l); err != nil {
			t.Errorf("%s says %q", nameOf(host), out.Text())
			continue
		}
		d.mu.Lock()
		d.lines[host-1] = append(d.lines[host-1], l)
		d.mu.Unlock()
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: %v\n%s", nameOf(host), err, d.errs[host-1].String())
	}
}

// operations are those that all hosts have told of, by number; took is the slowest host's time.
func (d *diary) operations() (all []line) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for host := range d.lines {
		k := 0
		for _, l := range d.lines[host] {
			if l.Operation == 0 {
				continue
			}
			if host == 0 {
				all = append(all, line{Operation: l.Operation, Begin: l.Begin, Took: l.Took, Wrong: l.Wrong})
			} else if k < len(all) {
				all[k].Took, all[k].Wrong = max(all[k].Took, l.Took), all[k].Wrong+l.Wrong
			}
			k++
		}
		all = all[:min(len(all), k)]
	}
	return all
}

// share is the part of a host's bytes in an operation that a rail carried; false if it hasn't told
// of it.
func (d *diary) share(host, operation int, rail string) (float64, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.lines[host-1] {
		if l.Operation == operation {
			sum := int64(0)
			for _, n := range l.Sent {
				sum += n
			}
			return float64(l.Sent[rail]) / float64(max(sum, 1)), true
		}
	}
	return 0, false
}

// eventsSince are what happened on all hosts from a moment on.
func (d *diary) eventsSince(from time.Time) (all []line) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for host := range d.lines {
		for _, l := range d.lines[host] {
			if l.Operation == 0 && !l.Begin.Before(from) {
				all = append(all, l)
			}
		}
	}
	return all
}

// until polls the diary.
func (d *diary) until(t *testing.T, what string, ready func() bool) {
	t.Helper()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(patience); !ready(); <-poll.C {
		if time.Now().After(deadline) || t.Failed() {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// cost is what one cut came to.
type cost struct {
	median, hit, over      time.Duration // over: beyond what it may take; negative if below
	remaining              int64
	unacknowledged, resent int64 // the most of any pair
	back                   time.Duration
	backOperations         int
	falsely                int // events of the other rail
}

func TestEveryCutCostsNoMoreThanItMay(t *testing.T) {
	if *cuts == 0 {
		t.Skip("SKIPPED: -cuts N measures N cuts of each kind")
	}
	b := Up(t, Config{Hosts: cutHosts, Rails: []Rate{rate, rate}, Management: true})
	d, end := ranksOn(t, b, "tcp", 1, cutBytes)
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	d.until(t, "the first operations", func() bool { return len(d.operations()) >= 8 })
	table := tabwriter.NewWriter(t.Output(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "cut\ttimes\tmedian before\thit, median\thit, most\tover, most\tremaining, most\tunacknowledged, most of a pair\tresent, most of a pair\tback, most\toperations")
	for _, how := range []Cut{Carrier, Admin, Silent} {
		var all []cost
		for range *cuts {
			c := cutOnce(t, b, d, random, how)
			t.Logf("%s: %+v", cutNames[how], c)
			all = append(all, c)
		}
		worst := func(of func(cost) int64) int64 {
			return of(slices.MaxFunc(all, func(a, b cost) int { return int(of(a) - of(b)) }))
		}
		ms := func(of func(cost) time.Duration) time.Duration {
			return time.Duration(worst(func(c cost) int64 { return int64(of(c)) })).Round(time.Millisecond)
		}
		hits := make([]time.Duration, 0, len(all))
		for _, c := range all {
			hits = append(hits, c.hit)
		}
		fmt.Fprintf(table, "%s\t%d\t%v\t%v\t%v\t%v\t%d\t%d\t%d\t%v\t%d\n", cutNames[how], len(all), ms(func(c cost) time.Duration { return c.median }),
			median(hits).Round(time.Millisecond), ms(func(c cost) time.Duration { return c.hit }), ms(func(c cost) time.Duration { return c.over }),
			worst(func(c cost) int64 { return c.remaining }), worst(func(c cost) int64 { return c.unacknowledged }),
			worst(func(c cost) int64 { return c.resent }), ms(func(c cost) time.Duration { return c.back }), worst(func(c cost) int64 { return int64(c.backOperations) }))
	}
	end()
	table.Flush()
	for _, o := range d.operations() {
		if o.Wrong > 0 {
			t.Errorf("operation %d: %d wrong elements", o.Operation, o.Wrong)
		}
	}
}

var cutNames = map[Cut]string{Carrier: "carrier", Admin: "admin", Silent: "silent"}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

// cutOnce cuts a rail of a host at a random moment, restores it, and judges both.
func cutOnce(t *testing.T, b *Bed, d *diary, random *rand.Rand, how Cut) (c cost) {
	t.Helper()
	host, rail := 1+random.IntN(cutHosts), 1+random.IntN(rails)
	before := d.operations()
	before = before[len(before)-5:]
	var took []time.Duration
	for _, o := range before {
		took = append(took, o.Took)
	}
	c.median = median(took)
	<-time.After(time.Duration(random.Int64N(int64(c.median))))
	cut := time.Now()
	b.Cut(host, rail, how)
	var hit line // the operation in which the first rank noticed, or the next one
	var noticed time.Time
	d.until(t, "the operation that was hit, and one more", func() bool {
		noticed = time.Now()
		for _, e := range d.eventsSince(cut) {
			if e.Kind == "rail down" && e.Rail == NIC(rail) && e.Begin.Before(noticed) {
				noticed = e.Begin
			}
		}
		for _, o := range d.operations() {
			if o.Begin.Add(o.Took).After(noticed) {
				hit = o
				_, later := d.share(host, o.Operation+1, NIC(rail))
				return later
			}
		}
		return false
	})
	c.hit = hit.Took
	for _, e := range d.eventsSince(cut) {
		switch {
		case e.Rail != NIC(rail):
			c.falsely++
		case e.Kind == "rail down" && e.Begin.Before(hit.Begin.Add(hit.Took)):
			c.remaining = max(c.remaining, e.Remaining)
		case e.Kind == "rail moved" && e.Resent > e.Unacknowledged:
			t.Errorf("%s, host %d, %s: %d bytes sent again, %d were unacknowledged", cutNames[how], host, NIC(rail), e.Resent, e.Unacknowledged)
		}
		if e.Rail == NIC(rail) {
			c.unacknowledged, c.resent = max(c.unacknowledged, e.Unacknowledged), max(c.resent, e.Resent)
		}
	}
	// It wasn't under way, but the small one before it or none: all its bytes go over what is left.
	if c.remaining == 0 || hit.Begin.After(noticed) {
		c.remaining = 2 * (cutHosts - 1) * cutBytes / cutHosts
	}
	left := time.Duration(float64(c.remaining) * 8 / float64(rate) * float64(time.Second))
	c.over = c.hit - c.median - allowed[how] - left
	if c.over > 0 {
		t.Errorf("%s of host %d, %s: the operation took %v longer than it may: %+v", cutNames[how], host, NIC(rail), c.over, c)
	}
	if c.unacknowledged > inFlight {
		t.Errorf("%s: %d bytes of a pair were unacknowledged, the limit is %d", cutNames[how], c.unacknowledged, inFlight)
	}
	c.back, c.backOperations = restore(t, b, d, host, rail)
	if c.back > backWithin && c.backOperations > backOperations {
		t.Errorf("%s of host %d, %s: back after %v and %d operations", cutNames[how], host, NIC(rail), c.back, c.backOperations)
	}
	return c
}

// restore repairs a rail, and returns how long and how many operations passed before one that it
// carried its full share of. It leaves enough operations behind for the next median.
func restore(t *testing.T, b *Bed, d *diary, host, rail int) (back time.Duration, operations int) {
	t.Helper()
	repaired := time.Now()
	b.Restore(host, rail)
	first := 0
	d.until(t, "the full share after the repair", func() bool {
		operations = 0
		for _, o := range d.operations() {
			if o.Begin.Before(repaired) {
				continue
			}
			if share, told := d.share(host, o.Operation, NIC(rail)); told && half(share) {
				back, first = o.Begin.Sub(repaired), o.Operation
				return true
			}
			operations++
		}
		return false
	})
	d.until(t, "five operations in peace", func() bool {
		all := d.operations()
		return all[len(all)-1].Operation >= first+5
	})
	return back, operations
}
