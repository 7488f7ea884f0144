package polyrail_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/railactors/transport/fault"
	"github.com/polyrail/polyrail/test/bubble"
	"github.com/polyrail/polyrail/test/testbed"
)

// bed is a cluster in memory and in virtual time: whole nodes, nothing faked but the network.
type bed struct {
	*testbed.Cluster
	t   *testing.T
	log *logLines
}

// start brings up what o says, with its log kept for a test that fails.
func start(t *testing.T, o testbed.Options) *bed {
	t.Helper()
	b := &bed{t: t, log: &logLines{}}
	o.Logger = slog.New(b.log)
	var err error
	if b.Cluster, err = testbed.Start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return b
}

// close ends all nodes that run.
func (b *bed) close() {
	b.t.Helper()
	b.each(func(i int) error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		return b.Nodes[i].Close(ctx)
	})
}

// inBed runs f on n nodes with so many rails, within a bubble of virtual time, and closes them.
func inBed(t *testing.T, n, rails int, adapt func(*Config), f func(b *bed)) {
	t.Helper()
	if underKeys {
		adapt, _ = withKeys(t, adapt)
	}
	var b *bed
	bubble.Nodes(t, func(t *testing.T) {
		b = start(t, testbed.Options{Nodes: n, Rails: rails, Adapt: adapt})
		f(b)
		b.close()
	})
	if b == nil {
		return // it could not be started, and the test has failed
	}
	if log := b.log.String(); strings.Contains(log, "dead letter") || strings.Contains(log, keyTwice) {
		t.Errorf("dead letters, or keys that a line has twice:\n%s", log)
	}
}

// each runs f for every living node at once and fails the test with their errors.
func (b *bed) each(f func(i int) error) {
	b.t.Helper()
	if err := b.Each(f); err != nil {
		b.t.Error(err)
	}
	if b.t.Failed() {
		b.t.Logf("log:\n%s", b.log)
		b.t.FailNow()
	}
}

// restart starts a killed node again: the same name and address, another process.
func (b *bed) restart(i int) {
	b.t.Helper()
	if err := b.Restart(b.t.Context(), i); err != nil {
		b.t.Fatal(err)
	}
}

// form makes a communicator of all nodes; ranks are the nodes' indexes.
func (b *bed) form(name string) []*Communicator {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Second)
	defer cancel()
	comms, err := b.Form(ctx, name)
	if err != nil {
		b.t.Fatalf("%v\nlog:\n%s", err, b.log)
	}
	for i, c := range comms {
		if c.Rank() != i || c.Size() != len(b.Nodes) {
			b.t.Fatalf("node %d is rank %d of %d", i, c.Rank(), c.Size())
		}
	}
	return comms
}

// shapedRails wraps all rails of nodes that are configured in turn; rail is the handle of one.
func shapedRails(o fault.Options, tune func(*Config)) (
	adapt func(*Config), rail func(node, rail int) *fault.Transport) {
	var handles [][]*fault.Transport
	adapt = func(c *Config) {
		tune(c)
		var mine []*fault.Transport
		for i := range c.Rails {
			f := fault.Wrap(c.Rails[i].Transport, o)
			mine = append(mine, f)
			c.Rails[i].Transport = f
		}
		handles = append(handles, mine)
	}
	return adapt, func(node, rail int) *fault.Transport { return handles[node][rail] }
}

// timeout is a context that is longer than what a test does in virtual time.
func (b *bed) timeout() (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.t.Context(), 5*time.Minute)
}

// expectShare checks how much of what node 0 sent went over the first of two rails.
func (b *bed) expectShare(want float64) {
	b.t.Helper()
	rails := b.Nodes[0].Rails()
	share := float64(rails[0].BytesSent) / float64(rails[0].BytesSent+rails[1].BytesSent)
	if math.Abs(share-want) > 0.01 {
		b.t.Errorf("rail %s carried %.3f of the bytes, want %v", rails[0].Name, share, want)
	}
}

// keyTwice marks what readers of JSON would lose.
const keyTwice = " (a key that is there already)"

// logLines keeps what the nodes log, for a test that fails.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) Enabled(context.Context, slog.Level) bool { return true }
func (l *logLines) WithGroup(string) slog.Handler            { return l }
func (l *logLines) WithAttrs(a []slog.Attr) slog.Handler     { return &withAttrs{l, a} }
func (l *logLines) Handle(_ context.Context, r slog.Record) error {
	l.add(r, nil)
	return nil
}

func (l *logLines) add(r slog.Record, attrs []slog.Attr) {
	line := fmt.Sprintf("%s %v %s %v", r.Time.Format("05.000000"), r.Level, r.Message, attrs)
	keys := make(map[string]bool)
	for _, a := range attrs {
		keys[a.Key] = true
	}
	r.Attrs(func(a slog.Attr) bool {
		line += " " + a.String()
		if keys[a.Key] {
			line += keyTwice
		}
		keys[a.Key] = true
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

func (l *logLines) String() (s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		s += line + "\n"
	}
	return s
}

type withAttrs struct {
	*logLines
	attrs []slog.Attr
}

func (w *withAttrs) Handle(_ context.Context, r slog.Record) error {
	w.add(r, w.attrs)
	return nil
}
