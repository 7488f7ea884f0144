// Package board is the layout of the memory in which a process shows its neighbours on the host the
// operands of small operations (docs/decisions/055). Its owner alone writes it; the others map it
// read-only. It is divided into pages, one for each group of processes. A page has a few cells,
// each of which shows the operand of one operation.
//
// The package owns the layout. Where the memory comes from is the transport's (transport/shm),
// which operations are shown is the engine's.
package board

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/railactors/transport"
)

const (
	// Cells is how many operations a page shows at a time.
	Cells = 8
	// MaxOperand is the longest operand in a cell, in bytes.
	MaxOperand = 8 * operandWords
	// MaxRanks bounds the group of a page.
	MaxRanks = 64

	operandWords = 27
	pages        = transport.ShownBytes / int(unsafe.Sizeof(page{}))
)

// page is what the owner tells of one group. What changes at different times is in cache lines of
// its own (128 bytes: processors fetch two at once).
type page struct {
	group  atomic.Uint64 // its ID; 0: the page is free
	sees   atomic.Uint64 // by rank, a bit: the owner looks at that rank's page
	sleeps atomic.Uint32 // odd while the owner wants to be woken, once for each such number
	_      [108]byte
	done   atomic.Uint64 // the owner needs no operand of operations up to this number
	_      [120]byte
	cells  [Cells]cell
}

// cell shows the operand of one operation. Its words are atomic, so that a reader which is too late
// finds out: see Reader.Take.
type cell struct {
	seq     atomic.Uint64 // stored last; 0: it shows nothing
	digest  atomic.Uint64
	sizes   atomic.Uint64 // table | bytes << 32
	desc    [2]atomic.Uint64
	operand [operandWords]atomic.Uint64
}

// Call is what is shown beside an operand: enough to compare what two ranks have called.
type Call struct {
	Seq, Digest uint64
	Table       uint32
	Desc        op.Descriptor
}

// Board is this process's own.
type Board struct {
	memory *transport.Memory
	pages  *[pages]page

	mu    sync.Mutex
	taken [pages]bool
}

// New makes a board of memory that is all zero, of transport.ShownBytes.
func New(m *transport.Memory) *Board { return &Board{memory: m, pages: layOut(m)} }

func layOut(m *transport.Memory) *[pages]page {
	memory := m.Bytes()[:transport.ShownBytes]
	return (*[pages]page)(unsafe.Pointer(unsafe.SliceData(memory)))
}

// Page is a page of this process's board, as its writer sees it. One goroutine at a time uses it,
// but for Sleeps.
type Page struct {
	board *Board
	index int
	*page
}

// Allot gives a group a page, until Free; nil if none is left. Whoever calls it holds the board's
// memory.
func (b *Board) Allot(group uint64) *Page {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, taken := range b.taken {
		if !taken {
			b.taken[i] = true
			b.memory.Hold()
			b.pages[i].group.Store(group)
			return &Page{b, i, &b.pages[i]}
		}
	}
	return nil
}

// Free gives the page back. Nobody needs what it shows any more.
func (p *Page) Free() {
	p.page.group.Store(0) // first: who still looks must not take another group's operand for this one's
	p.page.sees.Store(0)
	p.page.done.Store(0)
	p.page.sleeps.Store(0)
	for i := range p.cells {
		p.cells[i].seq.Store(0)
	}
	p.board.mu.Lock()
	p.board.taken[p.index] = false
	p.board.mu.Unlock()
	p.board.memory.Release()
}

// Keep lets go of the page without giving it back: somebody may have yet to take what it shows.
func (p *Page) Keep() { p.board.memory.Release() }

// See says that the owner looks at a rank's page from now on.
func (p *Page) See(rank op.Rank) { p.sees.Or(1 << rank) }

// Done says that the owner needs no operand of operations up to seq any more.
func (p *Page) Done(seq uint64) { p.done.Store(seq) }

// Sleeps is the number under which the owner wants to be woken, while it is odd.
func (p *Page) Sleeps() *atomic.Uint32 { return &p.sleeps }

// Shown is the operation whose operand is in the cell that seq would take; 0: none.
func (p *Page) Shown(seq uint64) uint64 { return p.cells[seq%Cells].seq.Load() }

// Show puts an operand into its cell. Nobody needs any more what was there.
func (p *Page) Show(c *Call, operand []byte) {
	to := &p.cells[c.Seq%Cells]
	to.seq.Store(0)
	to.digest.Store(c.Digest)
	to.sizes.Store(sizes(c.Table, len(operand)))
	words := encode(c.Desc)
	to.desc[0].Store(words[0])
	to.desc[1].Store(words[1])
	for i := 0; i < len(operand); i += 8 {
		var word [8]byte
		copy(word[:], operand[i:])
		to.operand[i/8].Store(*(*uint64)(unsafe.Pointer(&word)))
	}
	beforeShow()
	to.seq.Store(c.Seq)
}

func encode(d op.Descriptor) [2]uint64 {
	return [2]uint64{uint64(d.Kind) | uint64(d.DType)<<8 | uint64(d.Code)<<16 | uint64(d.Algorithm)<<24 |
		uint64(d.RootOrBatch())<<32, d.Elements}
}

func decode(words [2]uint64) op.Descriptor {
	d := op.Descriptor{Kind: op.Kind(uint8(words[0])), DType: op.DType(uint8(words[0] >> 8)),
		Code: op.Code(uint8(words[0] >> 16)), Algorithm: op.Algorithm(uint8(words[0] >> 24)), Elements: words[1]}
	d.SetRootOrBatch(uint32(words[0] >> 32))
	return d
}

// Reader is the page of a group on another process's board. What it shows may change at any moment,
// to anything.
type Reader struct {
	memory *transport.Memory
	group  uint64
	page   *page
}

// Find finds the page of a group, and holds its memory until Release. False: there is none yet.
// Whoever calls it holds the memory.
func Find(m *transport.Memory, group uint64) (r Reader, ok bool) {
	all := layOut(m)
	for i := range all {
		if all[i].group.Load() == group {
			m.Hold()
			return Reader{m, group, &all[i]}, true
		}
	}
	return Reader{}, false
}

// Release ends the use of the page.
func (r Reader) Release() { r.memory.Release() }

// Ended reports whether the other process has given the page back.
func (r Reader) Ended() bool { return r.page.group.Load() != r.group }

// Sees reports whether the other process looks at a rank's page.
func (r Reader) Sees(rank op.Rank) bool { return r.page.sees.Load()&(1<<rank) != 0 }

// Done is up to which operation the other process needs no operands any more.
func (r Reader) Done() uint64 { return r.page.done.Load() }

// Sleeps is the number under which the other process wants to be woken, while it is odd.
func (r Reader) Sleeps() uint32 { return r.page.sleeps.Load() }

// Shows reports whether the other process shows its operand of an operation.
func (r Reader) Shows(seq uint64) bool { return r.page.cells[seq%Cells].seq.Load() == seq }

// Take copies the operand of an operation to dst, if the other process shows one: took. It is as
// long as dst, and of the same call by digest and table. other: it shows one of another call.
func (r Reader) Take(seq, digest uint64, table uint32, dst []byte) (took, other bool) {
	from := &r.page.cells[seq%Cells]
	if from.seq.Load() != seq {
		return false, false
	}
	afterShow()
	same := from.digest.Load() == digest && from.sizes.Load() == sizes(table, len(dst))
	if same {
		for i := 0; i < len(dst); i += 8 {
			word := from.operand[i/8].Load()
			copy(dst[i:], (*[8]byte)(unsafe.Pointer(&word))[:])
		}
	}
	// Where it was overwritten meanwhile, or the page given to another group, this process was not
	// seen when it was shown: a frame comes.
	if from.seq.Load() != seq || r.Ended() {
		return false, false
	}
	return same, !same
}

func sizes(table uint32, bytes int) uint64 { return uint64(table) | uint64(bytes)<<32 }

// Call is what an operation is that the other process shows.
func (r Reader) Call(seq uint64) Call {
	from := &r.page.cells[seq%Cells]
	return Call{Seq: seq, Digest: from.digest.Load(), Table: uint32(from.sizes.Load()),
		Desc: decode([2]uint64{from.desc[0].Load(), from.desc[1].Load()})}
}
