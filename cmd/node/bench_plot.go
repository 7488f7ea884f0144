package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/polyrail/polyrail/cmd/internal/settings"
	"github.com/polyrail/polyrail/cmd/node/internal/plots"
)

// plotEvery is the time between two readings of the rails' counters.
const plotEvery = 100 * time.Millisecond

// plot records on rank 0 what the rails do. On a nil plot all methods do nothing.
type plot struct {
	dir   string
	group *group
	start time.Time
	stop  chan struct{}
	ended chan struct{}

	mu        sync.Mutex
	recording plots.Recording
	bytes     int // of the operations that are measured; 0 between two sizes

	operations atomic.Int64 // of that size
}

// startPlot makes the directory, so that a long measurement isn't in vain, and begins.
func startPlot(dir string, g *group) (*plot, error) {
	if err := plots.CheckDir(dir); err != nil {
		return nil, fmt.Errorf("--plot %s: %w", dir, err)
	}
	p := &plot{dir: dir, group: g, start: time.Now(), stop: make(chan struct{}), ended: make(chan struct{})}
	for _, r := range g.node.Rails() {
		p.recording.Rails = append(p.recording.Rails, r.Name)
	}
	go p.sample() // ends with finish
	return p, nil
}

// sample reads the counters at even times.
func (p *plot) sample() {
	defer close(p.ended)
	tick := time.NewTicker(plotEvery)
	defer tick.Stop()
	for {
		p.mu.Lock()
		p.recording.Tick(p.note())
		p.mu.Unlock()
		select {
		case <-tick.C:
		case <-p.stop:
			return
		}
	}
}

// note is how things stand. Under mu.
func (p *plot) note() plots.Note {
	n := plots.Note{At: time.Since(p.start), Bytes: p.bytes, Operations: int(p.operations.Load()), Table: p.group.Table().Version}
	for _, r := range p.group.node.Rails() {
		n.Rails = append(n.Rails, plots.Counters{Sent: r.BytesSent, Received: r.BytesReceived})
	}
	return n
}

// begin: operations of another size follow.
func (p *plot) begin(bytes int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes = bytes
	p.operations.Store(0)
	p.recording.Begin(p.note())
}

// count: an operation begins. It is timed, so nothing else is done.
func (p *plot) count() {
	if p == nil {
		return
	}
	p.operations.Add(1)
}

// mark: it is between two operations.
func (p *plot) mark() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recording.Operation(p.note())
}

// end: the last operation of a size is over.
func (p *plot) end() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recording.End(p.note())
	p.bytes = 0
}

// finish writes what was recorded.
func (p *plot) finish() error {
	close(p.stop)
	<-p.ended
	if err := p.recording.Write(p.dir, settings.FormatSize); err != nil {
		return fmt.Errorf("--plot %s: %w", p.dir, err)
	}
	return nil
}
