package memory

import (
	"time"
	"unsafe"
)

// Trim gives back to the system the free buffers that nobody needed since the last
// Trim. The pool calls it by itself every ten seconds while it keeps any.
func (p *Pool) Trim() { p.release(unneeded) }

// Close gives back every free buffer now, and those in use as they are put. The pool
// still works after it, but keeps nothing.
func (p *Pool) Close() {
	p.mu.Lock()
	p.state.Store(closed)
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	p.release(everything)
}

// watch is called after each Put. It sees to it that what is kept will be trimmed.
func (p *Pool) watch() {
	switch p.state.Load() {
	case armed:
		return
	case closed:
		p.release(everything)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.state.CompareAndSwap(idle, armed) {
		return
	}
	if p.timer == nil {
		p.timer = time.AfterFunc(trimEvery, p.tick)
	} else {
		p.timer.Reset(trimEvery)
	}
}

// tick is the timer's.
func (p *Pool) tick() {
	p.Trim()
	p.mu.Lock()
	defer p.mu.Unlock()
	// Idle before the look at what is kept: a Put that still saw "armed" has counted by then.
	if p.state.CompareAndSwap(armed, idle) && p.total.Load() > p.inUse.Load() {
		p.state.Store(armed)
		p.timer.Reset(trimEvery)
	}
}

// How many of its free blocks a class gives back; called under its lock.
func everything(c *class) int { return len(c.free) }
func unneeded(c *class) int   { return c.low }

// release gives count(class) free blocks of each class back to the system.
func (p *Pool) release(count func(*class) int) {
	for i := range p.class {
		for _, b := range p.class[i].cut(count) {
			discard(b.data)
			p.total.Add(-int64(sizeOf(i)))
			p.trimmed.Add(1)
		}
	}
}

// cut takes count(c) free blocks out of the class: those at the stack's bottom, which were idle longest.
func (c *class) cut(count func(*class) int) []*block {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := count(c)
	var old []*block
	if n > 0 {
		old = append(old, c.free[:n]...)
		kept := copy(c.free, c.free[n:])
		clear(c.free[kept:])
		c.free = c.free[:kept]
	}
	for _, b := range old {
		delete(c.blocks, unsafe.SliceData(b.data))
	}
	c.low = len(c.free)
	return old
}
