// Package memory hands out the buffers of the runtime: copies of small sends, early
// frames, scratch. All of them count against one limit, and nobody waits for one: a pool
// at its limit says no.
//
// It owns the memory that it handed out or keeps. What a buffer is for, and when it is
// free again, is its holder's business.
package memory

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Sizes of buffers, in bytes: the powers of two from MinBuffer to MaxBuffer.
const (
	MinBuffer = 256
	MaxBuffer = 64 << 20
	// Alignment of each buffer's first byte.
	Alignment = 64
)

const (
	minShift  = 8
	classes   = 19               // 256 B … 64 MiB
	trimEvery = 10 * time.Second // while anything is kept
)

// Pool hands out buffers up to a limit. It is safe for concurrent use. Make one with NewPool.
type Pool struct {
	limit   int64
	total   atomic.Int64 // bytes that exist: handed out, and kept
	inUse   atomic.Int64 // bytes handed out
	gets    atomic.Uint64
	refused atomic.Uint64
	made    atomic.Uint64
	trimmed atomic.Uint64

	class [classes]class

	state atomic.Int32 // idle, armed or closed; changes under mu
	mu    sync.Mutex
	timer *time.Timer // of the next Trim
}

// States of the pool's timer.
const (
	idle   int32 = iota // nothing is kept, or the timer is about to be set
	armed               // the timer runs
	closed              // nothing is kept any more
)

// class holds the buffers of one size.
type class struct {
	mu     sync.Mutex
	blocks map[*byte]*block // all that exist, by their first byte
	free   []*block         // a stack: the one that was used last is the warmest
	low    int              // fewest free ones since the last trim: nobody needed these
}

// block is one buffer.
type block struct {
	data []byte // of the class's size
	free bool
}

// NewPool returns a pool of at most limitBytes, those that it keeps for the next
// Get included.
func NewPool(limitBytes int64) *Pool {
	p := &Pool{limit: limitBytes}
	for c := range p.class {
		p.class[c].blocks = make(map[*byte]*block)
	}
	return p
}

// classOf is the index of the smallest class with buffers of n bytes (1 ≤ n ≤ MaxBuffer).
func classOf(n int) int { return max(bits.Len(uint(n-1)), minShift) - minShift }

func sizeOf(class int) int { return MinBuffer << class }

// Get returns a buffer of n bytes with arbitrary contents, aligned to 64 bytes, or nil when the
// pool is at its limit or n > MaxBuffer. It counts as the next power of two. Get(0) is an empty
// buffer that needs no Put.
func (p *Pool) Get(n int) []byte {
	if n == 0 {
		return []byte{}
	}
	p.gets.Add(1)
	if n < 0 || n > MaxBuffer {
		p.refused.Add(1)
		return nil
	}
	c := classOf(n)
	b := p.class[c].pop()
	if b == nil {
		if b = p.make(c); b == nil {
			p.refused.Add(1)
			return nil
		}
	}
	p.inUse.Add(int64(sizeOf(c)))
	return b.data[:n]
}

// Put takes back what Get returned (it may have been resliced at its end). The caller must not
// touch it any more. Put panics on memory that isn't the pool's, or is put twice.
func (p *Pool) Put(buf []byte) {
	if cap(buf) == 0 {
		return
	}
	size := cap(buf)
	if size < MinBuffer || size > MaxBuffer || size&(size-1) != 0 {
		panic(fmt.Sprintf("memory: Put of a buffer that no pool made (capacity %d)", size))
	}
	p.class[classOf(size)].push(unsafe.SliceData(buf))
	p.inUse.Add(-int64(size))
	p.watch()
}

// pop returns a free block, or nil.
func (c *class) pop() *block {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := len(c.free) - 1
	if last < 0 {
		return nil
	}
	b := c.free[last]
	c.free[last] = nil
	c.free = c.free[:last]
	c.low = min(c.low, last)
	b.free = false
	return b
}

func (c *class) push(first *byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.blocks[first]
	if b == nil {
		panic("memory: Put of a buffer that this pool did not make")
	}
	if b.free {
		panic("memory: a buffer was put twice")
	}
	b.free = true
	c.free = append(c.free, b)
}

// make adds a block of class c, at the cost of kept ones of other classes if need be.
func (p *Pool) make(c int) *block {
	size := int64(sizeOf(c))
	if !p.reserve(size) {
		p.release(everything)
		if !p.reserve(size) {
			return nil
		}
	}
	data := allocate(int(size))
	if data == nil {
		p.total.Add(-size)
		return nil
	}
	p.made.Add(1)
	b := &block{data: data}
	k := &p.class[c]
	k.mu.Lock()
	defer k.mu.Unlock()
	k.blocks[unsafe.SliceData(data)] = b
	return b
}

// reserve counts size more bytes, unless that would pass the limit.
func (p *Pool) reserve(size int64) bool {
	for {
		t := p.total.Load()
		if t+size > p.limit {
			return false
		}
		if p.total.CompareAndSwap(t, t+size) {
			return true
		}
	}
}

// Stats is a snapshot of a pool's counters.
type Stats struct {
	Limit   int64  // bytes
	InUse   int64  // bytes handed out
	Kept    int64  // bytes kept for the next Get
	Gets    uint64 // calls of Get
	Refused uint64 // of these, answered with nil
	Made    uint64 // buffers that were made new
	Trimmed uint64 // buffers that were given back to the system
}

// Stats returns the counters. Under load they are of slightly different moments.
func (p *Pool) Stats() Stats {
	used := p.inUse.Load()
	return Stats{
		Limit: p.limit, InUse: used, Kept: max(p.total.Load()-used, 0),
		Gets: p.gets.Load(), Refused: p.refused.Load(), Made: p.made.Load(), Trimmed: p.trimmed.Load(),
	}
}
