package cluster

import (
	"errors"

	"github.com/hashicorp/memberlist"
)

// maxRefused bounds the memory of whom we have complained about.
const maxRefused = 256

// delegate is what memberlist calls, often under its own lock: nothing here blocks,
// or calls memberlist back.
type delegate struct {
	g    *Gossip
	self Member // without its address, which isn't known yet when memberlist starts
}

var _ interface {
	memberlist.Delegate
	memberlist.EventDelegate
	memberlist.AliveDelegate
	memberlist.MergeDelegate
	memberlist.ConflictDelegate
} = (*delegate)(nil)

func (d *delegate) NodeMeta(int) []byte {
	intent := staying
	if d.g.isLeaving() {
		intent = leaving
	}
	return encodeMeta(d.self.Version, d.self.Incarnation, intent, d.self.Path)
}
func (d *delegate) NotifyMsg(b []byte)                { d.g.receive(b) }
func (d *delegate) GetBroadcasts(int, int) [][]byte   { return nil }
func (d *delegate) LocalState(bool) []byte            { return nil }
func (d *delegate) MergeRemoteState(_ []byte, _ bool) {}

func (d *delegate) NotifyJoin(n *memberlist.Node) {
	if m, err := identify(d.self, n); err == nil && !leaves(n) { // NotifyAlive has refused the others
		d.g.roster.up(m)
	}
}

// NotifyUpdate: the metadata of a process changes once, when it leaves. Anybody can say that it
// does; but then it says itself that it stays.
func (d *delegate) NotifyUpdate(n *memberlist.Node) {
	m, err := identify(d.self, n)
	switch {
	case err != nil:
	case leaves(n):
		d.g.roster.goodbye(m)
	default:
		d.g.roster.up(m)
	}
}

// NotifyLeave: memberlist does not tell here whether a process left or failed. Ours never leave
// memberlist: who said goodbye is found dead like any other, and the roster knows better.
func (d *delegate) NotifyLeave(n *memberlist.Node) {
	if m, err := identify(d.self, n); err == nil {
		d.g.roster.down(m)
	}
}

// NotifyAlive refuses processes of other versions.
func (d *delegate) NotifyAlive(n *memberlist.Node) error {
	_, err := identify(d.self, n)
	if err != nil && d.g.complainOnce(n.Name) {
		d.g.log.Warn("node refused", "error", err)
	}
	return err
}

// NotifyMerge refuses a cluster of another version. The joining side learns it as its Join's error.
func (d *delegate) NotifyMerge(nodes []*memberlist.Node) error {
	for _, n := range nodes {
		if n.State == memberlist.StateDead || n.State == memberlist.StateLeft {
			continue
		}
		if _, err := identify(d.self, n); err != nil {
			d.g.noteMismatch(err)
			if d.g.complainOnce(n.Name) {
				d.g.log.Warn("cluster refused", "error", err)
			}
			return err
		}
	}
	return nil
}

// NotifyConflict: one process name at two addresses. Incarnations differ between processes, so this is
// a program that sets them wrongly, or an address that changed under a process.
func (d *delegate) NotifyConflict(existing, other *memberlist.Node) {
	if d.g.complainOnce(other.Name + "@" + other.Address()) {
		d.g.log.Warn("two addresses for one process", "process", existing.Name,
			"known", existing.Address(), "refused", other.Address())
	}
	if existing.Name == d.self.process() && existing.Address() > other.Address() && !d.g.settled() {
		d.g.mu.Lock()
		d.g.double = other.Address() // anybody can say so: the seeker asks who answers there
		d.g.mu.Unlock()
		d.g.wakeSeeker()
	}
}

func (g *Gossip) complainOnce(about string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refused[about] || len(g.refused) >= maxRefused {
		return false
	}
	g.refused[about] = true
	return true
}

func (g *Gossip) noteMismatch(err error) {
	var v *VersionError
	if errors.As(err, &v) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.mismatches) < maxRefused {
			g.mismatches = append(g.mismatches, v)
		}
	}
}

func (g *Gossip) forgetMismatches() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mismatches = nil
}
