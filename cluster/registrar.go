package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// errNotAsked is the registrar's error before the first round ends.
var errNotAsked = errors.New("it has not answered yet")

// registrar keeps this process's entry in the store, and reads the others'. It runs in a goroutine
// of its own, so that a slow store delays neither gossip nor the seeker.
type registrar struct {
	store Store // nil: none is used, and nothing runs
	self  Entry
	cfg   *Config
	log   *slog.Logger
	alone func() bool

	// news wakes the seeker: since its last take an entry is new, or the store works for the
	// first time.
	news chan struct{}

	mu      sync.Mutex
	entries []Entry // of others, the latest first, as last read
	worked  bool    // this process was published, and then the others were read, at least once
	err     error   // of the last round; written, as the two above, by the goroutine alone

	// The goroutine's own:
	ignored int       // values of the last round that are no entries of this cluster
	readAt  time.Time // when entries were last read
}

func newRegistrar(g *Gossip) *registrar {
	r := &registrar{
		store: g.cfg.Store, cfg: &g.cfg, log: g.log, alone: g.roster.alone,
		self: Entry{g.cfg.Cluster, g.self.Node, g.self.Incarnation, g.self.Addr},
		news: make(chan struct{}, 1), err: errNotAsked,
	}
	if r.store == nil {
		r.worked, r.err = true, nil
	}
	return r
}

// run publishes and reads, round after round, until the context ends. Then it removes the entry, for
// as long as removal lasts. A process that knows no other one looks more often.
func (r *registrar) run(ctx, removal context.Context) {
	pause := r.cfg.RetryMin
	for {
		err := r.round(ctx)
		wait := r.cfg.EntryTTL / 3 // two renewals may fail before the entry expires
		if err != nil || r.alone() {
			wait = min(wait, pause)
			pause = min(2*pause, r.cfg.RetryMax)
		} else {
			pause = r.cfg.RetryMin
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			r.remove(removal)
			return
		}
	}
}

// round publishes first and reads then. Of processes that start at once into an empty store, all
// but the first to publish find another one.
func (r *registrar) round(ctx context.Context) error {
	err := r.bounded(ctx, func(ctx context.Context) error { return r.store.Put(ctx, r.self, r.cfg.EntryTTL) })
	var values [][]byte
	listErr := r.bounded(ctx, func(ctx context.Context) (err error) {
		values, err = r.store.List(ctx, r.self.Cluster, r.cfg.EntryTTL)
		return err
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if listErr != nil { // the graver one, and often the same
		r.note(r.known(), listErr)
		return listErr
	}
	r.readAt = time.Now()
	r.note(r.read(values), err)
	return err
}

func (r *registrar) bounded(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.StoreTimeout)
	defer cancel()
	return call(ctx)
}

// read decodes the entries of other processes.
func (r *registrar) read(values [][]byte) (entries []Entry) {
	ignored := max(0, len(values)-MaxEntries)
	why := errors.New("there are too many")
	for _, v := range values[:len(values)-ignored] {
		e, err := DecodeEntry(v)
		switch {
		case err != nil:
			ignored, why = ignored+1, err
		case e.Cluster != r.self.Cluster:
			ignored, why = ignored+1, errors.New("it belongs to another cluster")
		case e.Process() != r.self.Process():
			entries = append(entries, e)
		}
	}
	if ignored != r.ignored && ignored > 0 {
		r.log.Warn("rendezvous store holds what is no entry of this cluster", "store", r.store,
			"ignored", ignored, "last", why)
	}
	r.ignored = ignored
	return entries
}

// note makes the outcome of a round known, and wakes the seeker if it matters to it. What it logs
// comes first: a log names a store's failure before what follows from its entries.
func (r *registrar) note(entries []Entry, err error) {
	first := err == nil && !r.worked // only this goroutine writes these fields
	r.report(err, first)
	r.mu.Lock()
	defer r.mu.Unlock()
	fresh := slices.ContainsFunc(entries, func(e Entry) bool { return !slices.Contains(r.entries, e) })
	r.entries, r.err = entries, err
	r.worked = r.worked || err == nil
	if first || fresh {
		r.wake()
	}
}

// report logs the outcome of a round where it differs from that of the round before.
func (r *registrar) report(err error, first bool) {
	switch before := r.err; {
	case err != nil && (before == nil || before == errNotAsked):
		r.log.Warn("rendezvous store cannot be used; trying on", "store", r.store, "error", err)
	case err != nil:
		r.log.Debug("rendezvous store still cannot be used", "store", r.store, "error", err)
	case first:
		addr, err := netip.ParseAddrPort(r.self.Addr)
		r.log.Info("address published", "store", r.store, "address", r.self.Addr,
			"onlyThisHost", err == nil && addr.Addr().IsLoopback())
	case before != nil:
		r.log.Info("rendezvous store can be used again", "store", r.store)
	}
}

// wake is called with mu held: news and what it is about change together.
func (r *registrar) wake() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// remove takes the entry out of the store when this process ends; where that fails, it expires. A
// store that is known to be away is not waited for.
func (r *registrar) remove(ctx context.Context) {
	if r.err != nil && r.err != errNotAsked { // only this goroutine writes it
		return
	}
	err := r.bounded(ctx, func(ctx context.Context) error { return r.store.Remove(ctx, r.self) })
	if err != nil {
		r.log.Info("entry not removed from the rendezvous store; it will expire", "store", r.store,
			"error", err)
	}
}

// known are the entries of others as last read, while they have not expired.
func (r *registrar) known() []Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.readAt) > r.cfg.EntryTTL {
		return nil
	}
	return r.entries
}

// take is found for the seeker. What it returns is no news any more: the seeker would try every
// entry a second time at once.
func (r *registrar) take() ([]Entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.news:
	default:
	}
	return r.said()
}

// found is what the store said last: entries of others. The error says why it has not worked yet.
func (r *registrar) found() ([]Entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said()
}

// said is found with mu held.
func (r *registrar) said() ([]Entry, error) {
	if r.worked {
		return r.entries, nil
	}
	return r.entries, r.err
}
