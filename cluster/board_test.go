package cluster

import (
	"context"
	"slices"
	"sync"
	"time"
)

// board is a Store in memory, on the clock of the test.
type board struct {
	mu      sync.Mutex
	notices []notice // the latest last
	puts    int
	away    error     // what every call answers, if set
	sealed  error     // what Put and Remove answer, if set
	hangs   bool      // every call takes as long as its context allows
	lags    chan bool // if set, List returns nothing until it is closed
	// If set, the first calls return together, as many as its counter says.
	together *sync.WaitGroup
	calls    int // that are still to come together
}

type notice struct {
	cluster, process string
	value            []byte
	at               time.Time
}

func (b *board) String() string { return "board" }

func (b *board) enter(ctx context.Context) error {
	b.mu.Lock()
	away, hangs := b.away, b.hangs
	b.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return away
}

// meet waits for the other first calls, after this one was carried out.
func (b *board) meet() {
	b.mu.Lock()
	first := b.calls > 0
	b.calls--
	b.mu.Unlock()
	if first {
		b.together.Done()
		b.together.Wait()
	}
}

func (b *board) set(away error, hangs bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away, b.hangs = away, hangs
}

func (b *board) Put(ctx context.Context, e Entry, _ time.Duration) error {
	if err := b.enter(ctx); err != nil {
		return err
	}
	if b.sealed != nil {
		return b.sealed
	}
	b.pin(e)
	b.meet()
	return nil
}

// pin leaves an entry, as a process did that may be gone by now.
func (b *board) pin(e Entry) { b.pinRaw(e.Cluster, e.Process(), e.Encode()) }

func (b *board) pinRaw(cluster, process string, value []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(cluster, process)
	b.notices = append(b.notices, notice{cluster, process, value, time.Now()})
	b.puts++
}

func (b *board) drop(cluster, process string) {
	b.notices = slices.DeleteFunc(b.notices,
		func(n notice) bool { return n.cluster == cluster && n.process == process })
}

func (b *board) List(ctx context.Context, cluster string, ttl time.Duration) ([][]byte, error) {
	if err := b.enter(ctx); err != nil {
		return nil, err
	}
	defer b.meet()
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.lags:
	default:
		if b.lags != nil {
			return nil, nil
		}
	}
	var values [][]byte
	for _, n := range slices.Backward(b.notices) {
		if n.cluster == cluster && time.Since(n.at) <= ttl && len(values) < MaxEntries {
			values = append(values, n.value)
		}
	}
	return values, nil
}

func (b *board) Remove(ctx context.Context, e Entry) error {
	if err := b.enter(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(e.Cluster, e.Process())
	return nil
}

func (b *board) written() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.puts
}

func (b *board) processes() (all []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.notices {
		all = append(all, n.process)
	}
	slices.Sort(all)
	return all
}
