package cluster

import (
	"errors"
	"log/slog"
	"slices"
	"time"
)

// maxHints bounds how many entries one attempt tries: a host that is gone takes a StreamTimeout.
const maxHints = 8

// hints remembers which entries of the store led nowhere. The seeker's own.
type hints struct {
	failed map[string]time.Time // by address; only of entries that are still in the store
}

// pick lists the entries that belong to no living member, in the order in which they are worth
// trying: those that have not failed, then those that failed first; the latest entry first.
func (h *hints) pick(entries []Entry, skip func(addr string) bool) []Entry {
	failed := make(map[string]time.Time)
	var due []Entry
	for _, e := range entries {
		if at, ok := h.failed[e.Addr]; ok {
			failed[e.Addr] = at
		}
		if !skip(e.Addr) {
			due = append(due, e)
		}
	}
	h.failed = failed
	slices.SortStableFunc(due, func(a, b Entry) int { return failed[a.Addr].Compare(failed[b.Addr]) })
	return due
}

// followHints tries the nodes that left entries in the store. An entry that leads nowhere costs a
// line in the log and is skipped: it is never a reason to fail. True: all were tried at some time.
func (g *Gossip) followHints(entries []Entry) bool {
	lives := g.roster.addresses()
	due := g.hints.pick(entries, func(addr string) bool { return lives[addr] || g.isItself(addr) })
	tried := 0
	for _, e := range due {
		_, failedBefore := g.hints.failed[e.Addr]
		if tried == maxHints {
			return failedBefore
		}
		if g.ctx.Err() != nil || g.isLeaving() {
			return false
		}
		if lives[e.Addr] || g.isItself(e.Addr) { // since an earlier one told us
			continue
		}
		tried++
		if err := g.reach(e.Addr); err != nil {
			g.hints.failed[e.Addr] = time.Now()
			if !failedBefore {
				g.skipped(e, err)
			}
			continue
		}
		lives = g.roster.addresses()
	}
	return true
}

// skipped says that an entry led nowhere.
func (g *Gossip) skipped(e Entry, err error) {
	level := slog.LevelInfo
	var v *VersionError
	if errors.As(err, &v) {
		level = slog.LevelWarn
	}
	g.log.Log(g.ctx, level, "rendezvous entry skipped", "store", g.cfg.Store, "of", e.Process(),
		"address", e.Addr, "error", err)
}
