package polyrail

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polyrail/polyrail/cluster/memnet"
	"github.com/polyrail/polyrail/railactors/transport/fault"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

// bed is a cluster in memory and in virtual time: whole nodes, nothing faked but the network.
type bed struct {
	t       *testing.T
	rails   *mem.Network
	gossip  *memnet.Network
	configs []Config
	nodes   []*Node // nil where killed
	log     *logLines
}

// inBed runs f on n nodes with so many rails, within a bubble of virtual time, and closes them.
func inBed(t *testing.T, n, rails int, adapt func(*Config), f func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t: t, rails: mem.NewNetwork(), gossip: memnet.New(), log: &logLines{}}
		for i := range n {
			cfg := DefaultConfig()
			cfg.Balance = BalanceStatic // what is tested relies on equal shares
			cfg.Name = fmt.Sprintf("node%d", i)
			cfg.Bind = fmt.Sprintf("10.0.0.%d:7946", i+1)
			cfg.Join = []string{"10.0.0.1:7946"}
			cfg.GossipNetwork = b.gossip
			cfg.Logger = slog.New(b.log)
			for r := range rails {
				cfg.Rails = append(cfg.Rails, Rail{
					Name: fmt.Sprintf("rail%d", r), Transport: b.rails.Transport(cfg.Name), Device: fmt.Sprintf("eth%d", r)})
			}
			if adapt != nil {
				adapt(&cfg)
			}
			node, err := Start(t.Context(), cfg)
			if err != nil {
				t.Fatalf("node %d: %v", i, err)
			}
			b.configs, b.nodes = append(b.configs, cfg), append(b.nodes, node)
		}
		f(b)
		b.each(func(i int) error {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			return b.nodes[i].Close(ctx)
		})
		<-time.After(time.Minute) // protoactor and memberlist end a few goroutines later than their owners
		if log := b.log.String(); strings.Contains(log, "dead letter") {
			t.Errorf("dead letters:\n%s", log)
		}
	})
}

// each runs f for every living node at once and fails the test with their errors.
func (b *bed) each(f func(i int) error) {
	b.t.Helper()
	errs := make([]error, len(b.nodes))
	var wg sync.WaitGroup
	for i, node := range b.nodes {
		if node != nil {
			wg.Go(func() { errs[i] = f(i) })
		}
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			b.t.Errorf("node %d: %v", i, err)
		}
	}
	if b.t.Failed() {
		b.t.Logf("log:\n%s", b.log)
		b.t.FailNow()
	}
}

// kill ends a node as the end of its process would: nobody hears a word from it.
func (b *bed) kill(i int) {
	b.t.Helper()
	b.rails.Kill(b.configs[i].Name)
	b.gossip.Partition([]string{b.configs[i].Bind})
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	b.nodes[i].Close(ctx) // what it could not say is no fault
	b.gossip.Heal()       // its address is free again
	b.nodes[i] = nil
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

// restart starts a killed node again: the same name and address, another process.
func (b *bed) restart(i int) {
	b.t.Helper()
	b.rails.Revive(b.configs[i].Name)
	var err error
	if b.nodes[i], err = Start(b.t.Context(), b.configs[i]); err != nil {
		b.t.Fatalf("node %d: %v", i, err)
	}
}

// form makes a communicator of all nodes; ranks are the nodes' indexes.
func (b *bed) form(name string) []*Communicator {
	b.t.Helper()
	comms := make([]*Communicator, len(b.nodes))
	b.each(func(i int) (err error) {
		ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Second)
		defer cancel()
		comms[i], err = b.nodes[i].Communicator(ctx, name, len(b.nodes))
		return err
	})
	for i, c := range comms {
		if c.Rank() != i || c.Size() != len(b.nodes) {
			b.t.Fatalf("node %d is rank %d of %d", i, c.Rank(), c.Size())
		}
	}
	return comms
}

// timeout is a context that is longer than what a test does in virtual time.
func (b *bed) timeout() (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.t.Context(), 5*time.Minute)
}

// expectShare checks how much of what node 0 sent went over the first of two rails.
func (b *bed) expectShare(want float64) {
	b.t.Helper()
	rails := b.nodes[0].Rails()
	share := float64(rails[0].BytesSent) / float64(rails[0].BytesSent+rails[1].BytesSent)
	if math.Abs(share-want) > 0.01 {
		b.t.Errorf("rail %s carried %.3f of the bytes, want %v", rails[0].Name, share, want)
	}
}

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
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
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
