package railactors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/polyrail/polyrail/collective/peer"
	"github.com/polyrail/polyrail/collective/reminder"
	"github.com/polyrail/polyrail/railactors/transport"
)

var errLinkDown = errors.New("its interface is down, or has no carrier")

// This file finds dead rails whose connections nobody resets (docs/decisions/016): a link that goes
// down is told by the system, a rail on which packets vanish by the bytes that stay unconfirmed.
// What comes of either is a connection that is closed, and so a failover.

// watchLink follows the state of a rail's link. Like listen, it lives as long as the device.
func (f *Fabric) watchLink(ctx context.Context, i int, device transport.Device) {
	r := f.rails[i]
	w, ok := device.(transport.LinkWatcher)
	if !ok {
		return
	}
	var said reminder.Reminders
	for failures := 1; ; failures++ {
		err := w.WatchLink(ctx, func(up bool) { f.linkChanged(i, up) })
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errors.ErrUnsupported) {
			f.log.Debug("the link can't be watched", "rail", r.name)
			return
		}
		if said.Due(err.Error(), time.Now()) {
			f.log.Warn("the link isn't watched, trying on", "rail", r.name, "error", err)
		}
		select {
		case <-time.After(backoff(failures)):
		case <-ctx.Done():
			return
		}
	}
}

func (f *Fabric) linkChanged(i int, up bool) {
	r := f.rails[i]
	if r.unplugged.Swap(!up) == !up {
		return
	}
	if up {
		f.log.Info("link up", "rail", r.name, "device", r.chosen())
		for _, p := range f.snapshot() {
			p.tellPair(i, &railBack{fresh: true})
		}
		return
	}
	r.linkDowns.Add(1)
	f.log.Warn("link down", "rail", r.name, "device", r.chosen())
	for _, p := range f.snapshot() {
		fx := newEffects()
		p.mu.Lock()
		if c := p.conns[i]; c != nil {
			c.failLocked(errLinkDown, fx)
		}
		p.unlock(fx)
	}
}

// wrote begins the watch over what is on its way, unless it is on. An idle peer costs nothing. The
// caller holds mu.
func (p *Peer) wrote() {
	p.hasWritten = true
	if !p.watching {
		p.watching = true
		p.watch.Reset(p.fabric.cfg.RailTimeout / peer.ChecksPerTimeout)
	}
}

// checkSilence looks at what the other host has confirmed, and closes rails on which it confirms
// nothing.
func (p *Peer) checkSilence() {
	p.mu.Lock()
	p.hasWritten = false
	conns := slices.Clone(p.conns)
	p.mu.Unlock()
	samples := make([]peer.Progress, len(conns))
	var known peer.Rails
	for r, c := range conns { // without the lock: a system call each
		if c == nil {
			continue
		}
		if source, ok := c.conn.(transport.Confirmer); ok {
			if sample, ok := source.Progress(); ok {
				samples[r] = peer.Progress(sample)
				known.Add(r)
			}
		}
	}
	fx := newEffects()
	p.mu.Lock()
	again := p.hasWritten
	var up peer.Rails
	for r := range known.All() {
		if c := conns[r]; p.conns[r] == c {
			up.Add(r)
			awaited := p.silence.Observe(r, p.fabric.now(), samples[r])
			again = again || awaited || c.writing || p.core.Unacknowledged(r) > 0
		}
	}
	quiet, dead := p.silence.Quiet(up), p.silence.Dead(up)
	for r := range dead.All() {
		p.fabric.rails[r].silences.Add(1)
		p.silentSince[r] = p.fabric.now()
		p.conns[r].failLocked(fmt.Errorf("what was sent is unconfirmed for almost the rail timeout, %v", p.fabric.cfg.RailTimeout), fx)
	}
	p.at(p.fabric.now())
	p.core.Overdue(&fx.Effects)
	if p.watching = again && p.cause == nil; p.watching {
		p.watch.Reset(p.fabric.cfg.RailTimeout / peer.ChecksPerTimeout)
	}
	p.unlock(fx)
	for r := range quiet.All() {
		p.fabric.doubt(p, r, dead.Has(r))
	}
}

// doubt makes the other pairs of a rail show whether they live, since the one with p is silent, or
// dead. Each is judged by its own evidence: the dead end may be p's, or this node's.
func (f *Fabric) doubt(p *Peer, rail int, dead bool) {
	for _, other := range f.snapshot() {
		if other != p {
			other.prove(rail, dead)
		}
	}
}

// prove has something sent on the rail that its host must confirm, if nothing is, and looks at what
// it has confirmed. Once is enough: two pairs that are silent would send each other for ever.
func (p *Peer) prove(rail int, doubted bool) {
	fx := newEffects()
	p.mu.Lock()
	c := p.conns[rail]
	look := c != nil && !p.silence.Awaiting(rail)
	if look && !c.writing {
		c.urgent |= urgentPing
		fx.kicks = append(fx.kicks, c)
	}
	p.unlock(fx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if c == nil || p.conns[rail] != c {
		return
	}
	if doubted && p.silence.Doubt(rail, p.fabric.now()) {
		look = true
	}
	if look {
		p.watching = true
		p.watch.Reset(0)
	}
}

// Ping has the remote runtime show on a rail that it is there, if the rail is up: LastHeard tells.
func (p *Peer) Ping(rail int) {
	fx := newEffects()
	p.mu.Lock()
	if c := p.conns[rail]; c != nil && !c.writing {
		c.urgent |= urgentPing
		fx.kicks = append(fx.kicks, c)
	}
	p.unlock(fx)
}

// forgive counts a silence that was none: its rail could be connected again within the rail timeout. It
// has cost a failover. The caller holds mu.
func (p *Peer) forgive(rail int) {
	if since := p.silentSince[rail]; since != 0 && p.fabric.now()-since < p.fabric.cfg.RailTimeout {
		p.fabric.rails[rail].falseAlarms.Add(1)
	}
	p.silentSince[rail] = 0
}
