package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// seek is the goroutine that looks for the cluster: seeds until one is reached, and
// afterwards now and then those that are missing, which heals partitions.
func (g *Gossip) seek() {
	defer g.running.Done()
	pause := g.cfg.RetryMin
	starting := true
	for {
		entries, storeErr := g.registrar.take()
		reached := g.attempt(entries, storeErr)
		if reached {
			g.announceJoined()
		}
		if starting && (storeErr == nil || !g.roster.alone() || g.Err() != nil) {
			starting = false
			close(g.tried)
		}
		if g.Err() != nil {
			g.withdraw()
			return
		}
		wait := g.cfg.Rejoin
		if !reached || g.cfg.Store != nil && g.roster.alone() {
			wait = pause
			pause = min(2*pause, g.cfg.RetryMax)
		}
		if !g.pauseSeeking(wait) {
			return
		}
	}
}

// pauseSeeking waits, until there is news in the store at most; it returns false when gossip ends.
// A poke looks at rivals and, while the cluster isn't reached, at whether somebody has reached us.
func (g *Gossip) pauseSeeking(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return !g.isLeaving()
		case <-g.ctx.Done():
			return false
		case <-g.registrar.news:
			return !g.isLeaving()
		case <-g.poke:
			if g.isLeaving() {
				return false
			}
			g.checkRivals()
			if g.Err() != nil {
				return true // seek sees it too
			}
			if !g.roster.alone() {
				g.announceJoined()
			}
		}
	}
}

func (g *Gossip) wakeSeeker() {
	select {
	case g.poke <- struct{}{}:
	default:
	}
}

func (g *Gossip) isLeaving() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leaving
}

func (g *Gossip) announceJoined() {
	if g.Err() != nil {
		return
	}
	select {
	case <-g.joined:
	default:
		close(g.joined)
		g.mu.Lock()
		g.met = time.Now()
		g.mu.Unlock()
		g.log.Info("cluster joined", "cluster", g.cfg.Cluster, "address", g.self.Addr)
	}
}

// attempt tries to reach every seed and lost member that is missing, and nodes that left entries in
// the store. It reports whether this node is part of a cluster: another node is known, or this one
// is alone. It is alone where no seed is another node, the store works, and none of its entries
// leads to a living node.
func (g *Gossip) attempt(entries []Entry, storeErr error) bool {
	seeds, errs := g.resolveSeeds()
	g.checkReach(seeds)
	missing := g.roster.missing(seeds, time.Now())
	g.forgetMismatches()
	results := g.joinAll(missing)
	if g.ctx.Err() != nil || g.isLeaving() {
		return false
	}
	for i, addr := range missing {
		err := results[i]
		if err == nil {
			err = g.recognize(addr)
		}
		var v *VersionError
		switch {
		case errors.As(err, &v):
			if g.roster.alone() {
				g.fail(v)
				return false
			}
			g.log.Warn("seed refused", "seed", addr, "error", v)
		case err != nil:
			errs = append(errs, SeedError{addr, err})
		}
	}
	followed := g.followHints(entries)
	if storeErr != nil {
		errs = append(errs, SeedError{g.cfg.Store.String(), storeErr})
	}
	g.checkRivals()
	reached := !g.roster.alone() || len(errs) == 0 && followed
	g.mu.Lock()
	g.seeds = errs
	g.mu.Unlock()
	if !reached {
		g.complain()
	}
	return reached
}

// reach joins the node at addr.
func (g *Gossip) reach(addr string) error {
	if err := g.join(addr); err != nil {
		return err
	}
	return g.recognize(addr)
}

// recognize finds out whom this node has joined at addr. That may be itself, under another address.
func (g *Gossip) recognize(addr string) error {
	switch {
	case !g.roster.alone():
		return nil
	case g.answers(addr, g.self):
		g.itself = append(g.itself, addr)
		return nil
	}
	return errors.New("it is leaving the cluster")
}

// Seeds that don't answer are warned of after a while, and again and again.
const (
	seedPatience = 3 * time.Second
	seedReminder = 15 * time.Second
)

// complain logs that no seed is reached.
func (g *Gossip) complain() {
	level := slog.LevelDebug
	if now := time.Now(); now.Sub(g.started) >= seedPatience && now.Sub(g.complained) >= seedReminder {
		g.complained, level = now, slog.LevelWarn
	}
	g.log.Log(g.ctx, level, "no node to join by answers", "cluster", g.cfg.Cluster, "error", g.joinError())
}

// maxJoins bounds the nodes that are tried at once. One that doesn't answer takes a StreamTimeout.
const maxJoins = 16

// joinAll joins several nodes, and returns an error for each.
func (g *Gossip) joinAll(addrs []string) []error {
	errs := make([]error, len(addrs))
	slots := make(chan struct{}, maxJoins)
	var running sync.WaitGroup
	for i, addr := range addrs {
		slots <- struct{}{}
		if g.ctx.Err() != nil || g.isLeaving() {
			break // and nobody looks at the errors
		}
		running.Go(func() {
			errs[i] = g.join(addr)
			<-slots
		})
	}
	running.Wait()
	return errs
}

// join exchanges all that is known with the node at addr.
func (g *Gossip) join(addr string) error {
	_, err := g.list.Join([]string{addr})
	if err == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// memberlist doesn't wrap errors. A mismatch may be of a node that tried to join us just now;
	// it is ours only if our Join ended with its text.
	for _, v := range g.mismatches {
		if strings.Contains(err.Error(), v.Error()) {
			return v
		}
	}
	return plainJoinError(err)
}

// plainJoinError takes memberlist's decoration off an error.
func plainJoinError(err error) error {
	text := strings.TrimSpace(err.Error())
	if _, after, ok := strings.Cut(text, "* "); ok {
		text = after
	}
	if _, after, ok := strings.Cut(text, "failed to join "); ok {
		if _, reason, ok := strings.Cut(after, ": "); ok {
			text = reason
		}
	}
	switch {
	case strings.Contains(text, "ncrypt") || strings.Contains(text, "installed keys"): // memberlist speaks of a sealed message
		text = "its keys of gossip are not this node's: " + text
	case strings.Contains(text, otherCluster):
		text = "it is of another cluster"
	case text == "EOF" || strings.HasSuffix(text, "connection reset by peer"):
		text = "it closed the connection: is it a node of this cluster, with this node's keys of gossip?"
	}
	return errors.New(text)
}

// resolveSeeds turns seeds into IP addresses and ports, without those that are this node.
func (g *Gossip) resolveSeeds() (addrs []string, errs []SeedError) {
	ctx, cancel := context.WithTimeout(g.ctx, g.cfg.StreamTimeout)
	defer cancel()
	type answer struct {
		ips  []string
		port string
		err  error
	}
	answers := make([]answer, len(g.cfg.Join))
	var running sync.WaitGroup
	for i, seed := range g.cfg.Join { // all at once: a name that nobody resolves holds up no other
		a := &answers[i]
		if seed == g.cfg.Bind || seed == g.cfg.Advertise {
			continue
		}
		var host string
		if host, a.port, a.err = net.SplitHostPort(seed); a.err != nil {
			continue
		}
		if net.ParseIP(host) != nil {
			a.ips = []string{host}
			continue
		}
		running.Go(func() { a.ips, a.err = net.DefaultResolver.LookupHost(ctx, host) })
	}
	running.Wait()
	for i, a := range answers {
		if a.err != nil {
			errs = append(errs, SeedError{g.cfg.Join[i], a.err})
			continue
		}
		for _, ip := range a.ips {
			if addr := net.JoinHostPort(ip, a.port); !g.isItself(addr) {
				addrs = append(addrs, addr)
			}
		}
	}
	return addrs, errs
}

// checkReach warns, once, of a seed on another host where this node's address is of loopback. Both
// seem to meet, since the seed answers what it is asked: but it can't ask, and takes this node for dead.
func (g *Gossip) checkReach(seeds []string) {
	self, err := netip.ParseAddrPort(g.self.Addr)
	if err != nil || !self.Addr().IsLoopback() || g.unreached {
		return
	}
	local, err := net.InterfaceAddrs()
	if err != nil {
		return
	}
	elsewhere := func(seed string) bool {
		ap, err := netip.ParseAddrPort(seed)
		here := func(a net.Addr) bool { return strings.HasPrefix(a.String(), ap.Addr().String()+"/") }
		return err == nil && !ap.Addr().IsLoopback() && !slices.ContainsFunc(local, here)
	}
	if i := slices.IndexFunc(seeds, elsewhere); i >= 0 {
		g.unreached = true
		g.log.Warn("other hosts can't reach this node: gossip is bound to loopback, bind it to an address of a network",
			"address", g.self.Addr, "seed", seeds[i])
	}
}

func (g *Gossip) isItself(addr string) bool {
	for _, a := range g.itself {
		if a == addr {
			return true
		}
	}
	return addr == g.self.Addr
}

// pings is how often a process is asked whether it lives before it counts as silent.
const pings = 3

// settleTime is how long after it has reached the cluster a node gives way to another one of its
// name. Later it stays: whoever comes then would have been found before, or only says that it was
// first.
const settleTime = 10 * time.Second

// settled reports whether this node gives way to nobody any more.
func (g *Gossip) settled() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.met.IsZero() && time.Since(g.met) > settleTime
}

// checkRivals finds out whether this node's name belongs to a living process that was there first. One
// that died a moment ago, and was restarted as this one, doesn't answer.
func (g *Gossip) checkRivals() {
	settled := g.settled()
	g.mu.Lock()
	double := g.double
	g.double = ""
	g.mu.Unlock()
	if double != "" && !settled && g.answers(double, g.self) {
		g.fail(&ConflictError{Node: g.self.Node, Addr: double})
	}
	for _, r := range g.roster.rivals() {
		if r.Addr == g.self.Addr || g.Err() != nil {
			continue // it had our address: it is dead
		}
		yields := g.yields(r, settled)
		if !yields && (!settled || time.Since(g.asked) < g.cfg.Rejoin) {
			continue
		}
		g.asked = time.Now()
		switch {
		case !g.answers(r.Addr, r):
		case yields:
			g.fail(&ConflictError{Node: g.self.Node, Addr: r.Addr})
		default:
			g.bothStay(r)
		}
	}
}

// bothStay: another process of this node's name lives, which has settled as this one has. They met late,
// as after a partition. Others hear the one that was started last.
func (g *Gossip) bothStay(r Member) {
	if g.complainOnce(r.process()) {
		g.log.Warn("another node has this node's name, and both stay", "address", r.Addr)
	}
	if r.Incarnation < g.self.Incarnation {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rivalAt = time.Now()
	g.rival = fmt.Errorf("another node named %q lives at %s, and the others hear that one: end one of them",
		g.self.Node, r.Addr)
}

// Rival is why others don't hear this node: a later process of its name lives, and both stay; or nil.
func (g *Gossip) Rival() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.rivalAt) > 3*g.cfg.Rejoin {
		return nil
	}
	return g.rival
}

// yields reports whether this node gives way to another process of its name if that lives. One that
// started later, as its clock says, is to go. If it stays, it has settled: it was there first. That is
// looked at for a while only: whoever comes up with it much later was not there.
func (g *Gossip) yields(r Member, settled bool) bool {
	if r.Incarnation < g.self.Incarnation {
		return !settled
	}
	since, waited := g.later[r.process()]
	if !waited && !settled && len(g.later) < maxRefused {
		g.later[r.process()] = time.Now()
		g.log.Warn("another node has this node's name; it started later and is to go", "address", r.Addr)
	}
	age := time.Since(since)
	return waited && settleTime < age && age < 2*settleTime
}

// answers asks whether this very process is at addr.
func (g *Gossip) answers(addr string, m Member) bool {
	udp, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return false
	}
	for range pings {
		if _, err := g.list.Ping(m.process(), udp); err == nil {
			return true
		}
	}
	return false
}

// withdraw takes this node out of the cluster after fail.
func (g *Gossip) withdraw() {
	ctx, cancel := context.WithTimeout(g.ctx, g.cfg.LeaveTimeout)
	defer cancel()
	if err := g.Leave(ctx); err != nil {
		g.log.Debug("could not announce that this node goes", "error", fmt.Errorf("%w (after %w)", err, g.Err()))
	}
}
