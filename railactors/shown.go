package railactors

import (
	"fmt"
	"runtime/debug"

	"github.com/polyrail/polyrail/railactors/board"
	"github.com/polyrail/polyrail/railactors/transport"
)

// This file is about what processes of one host show each other beside their connections
// (docs/decisions/055).

// Board is where this node shows what others read; nil: it shows nothing.
func (f *Fabric) Board() *board.Board { return f.board }

// openBoard makes the board of the device of MemoryRail.
func (f *Fabric) openBoard(device transport.Device) {
	if s, ok := device.(transport.Shower); ok && s.Shown() != nil && f.cfg.Knocked != nil {
		f.board, f.knocks = board.New(s.Shown()), s.Knocks()
	}
}

// hearKnocks passes on that another process has shown something. It lives as long as the fabric.
func (f *Fabric) hearKnocks() {
	for {
		select {
		case <-f.knocks:
			f.knocked()
		case <-f.done:
			return
		}
	}
}

func (f *Fabric) knocked() {
	defer func() {
		if v := recover(); v != nil {
			f.log.Error("looking at what is shown panicked", "reason", fmt.Sprint(v), "stack", string(debug.Stack()))
		}
	}()
	f.cfg.Knocked()
}

// view takes what the other process shows from the first connection that has it. It stays when that
// is lost. Under mu.
func (p *Peer) view(conn transport.Conn) {
	if v, ok := conn.(transport.Viewer); ok && p.shown == nil {
		p.shown = v.View()
	}
}

// unview lets go of it. Who reads a page holds it.
func (p *Peer) unview() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown != nil {
		p.shown.Release()
		p.shown = nil
	}
}

// Page is the page of a group on the peer's board; false: it has none, or none is known yet.
func (p *Peer) Page(group uint64) (board.Reader, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown == nil {
		return board.Reader{}, false
	}
	return board.Find(p.shown, group)
}

// Knock wakes the peer's process if it may sleep. It sees then what was shown before. False: it
// can't be woken now.
func (p *Peer) Knock() bool {
	c := p.pollable[p.fabric.memory].Load()
	if c == nil {
		return false
	}
	v, ok := c.conn.(transport.Viewer)
	return ok && v.Knock()
}
