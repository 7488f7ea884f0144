package aggregation

import (
	"context"
	"errors"
	"iter"
	"log/slog"

	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/railactors"
)

// This file is about how groups end, on whatever goroutine notices it: no end depends on an actor's
// mailbox.

// end ends the group with its first cause. Frames that come later are dropped; memory is taken back
// from whoever holds it, and freed by the last one to let go of it.
func (g *group) end(cause error) {
	g.mu.Lock()
	if g.cause != nil {
		g.mu.Unlock()
		return
	}
	g.cause = cause
	g.holds++
	served := g.folded > 0
	g.mu.Unlock()
	defer g.leave()
	s := g.server
	s.unregister(g, cause)
	level := slog.LevelInfo
	if !served {
		level = s.level("ended", g.name, g.rail)
	}
	s.log.Log(context.Background(), level, "aggregation group ended", "group", groupText(g.id),
		"communicator", g.name, "rail", g.rail, "reason", cause)
	g.tellOthers(cause)
	if g.vigil != nil {
		g.vigil.Stop()
	}
	s.fabric.Revoke(g)
	g.cancel(cause)
	if pid := g.pid.Load(); pid != nil {
		s.tell(pid, over{})
	}
}

// tellOthers tells those that are connected. Others hear of it when they send something. Whoever asked
// for the end by gossip may not have reached all of them.
func (g *group) tellOthers(cause error) {
	var disagree *disagreement
	m := revoked(g.comm, g.id, cause.Error(), errors.As(cause, &disagree))
	for p := range g.neighbours() {
		select {
		case <-p.Ready():
		default:
			continue
		}
		if p.Lost() != nil {
			continue
		}
		if err := p.SendControl(m); err != nil {
			g.server.log.Debug("end of an aggregation group not told", "group", groupText(g.id), "to", p.Node(),
				"error", err)
		}
	}
}

func revoked(comm, group uint64, reason string, mismatch bool) *messages.Control {
	return &messages.Control{Comm: comm, Body: &messages.Control_TreeRevoked{TreeRevoked: &messages.TreeRevoked{
		Group: group, Reason: clip(reason), Mismatch: mismatch}}}
}

// leave ends a hold on the group's memory. The last one after the end frees it.
func (g *group) leave() {
	g.mu.Lock()
	g.holds--
	last := g.holds == 0 && g.cause != nil
	g.mu.Unlock()
	if last {
		g.release()
	}
}

// release gives back what the group has. Nothing refers to its memory.
func (g *group) release() {
	g.mu.Lock()
	g.fragments, g.results, g.buffers.spare = nil, nil, nil
	g.mu.Unlock()
	for p := range g.neighbours() {
		g.server.fabric.Disconnect(p)
	}
	if g.caster != nil {
		g.caster.Close()
	}
	g.server.release(g)
	close(g.done)
}

// neighbours are the children and the parent, as far as they are known.
func (g *group) neighbours() iter.Seq[*railactors.Peer] {
	return func(yield func(*railactors.Peer) bool) {
		for _, p := range g.peers {
			if p != nil && !yield(p) {
				return
			}
		}
		if g.parent != nil {
			yield(g.parent)
		}
	}
}
