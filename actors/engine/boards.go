package engine

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/railactors/board"
)

// boards are the pages on which the ranks of a group show each other operands (docs/decisions/055):
// this rank's own, and those of the others as far as they were found.
//
// A rank shows an operand, or sends it as a frame, or both. It decides that for each peer by
// itself, and a peer takes what comes first. So nothing that is shown is acknowledged, and nothing
// has to be repaired when the rails of a peer are cut.
//
// Lock order: mu before that of an Operation or of a peer.
type boards struct {
	group  *Group
	others uint64      // by rank, a bit
	whole  atomic.Bool // all ranks look at each other's pages, as far as this one knows
	bell   bell

	mu    sync.Mutex
	own   *board.Page // nil: all goes by frames
	found uint64      // by rank, of the others' …
	pages []board.Reader
	done  []uint64     // by rank: see board.Reader.Done, when it was looked at last
	rung  []uint32     // by rank: the number under which it was woken last
	open  []*Operation // that were numbered and aren't over, ascending
	last  uint64       // of them, ever
}

// bell is the number under which the others wake this process: it is odd while an operation is in
// flight for whose operands nobody looks.
type bell struct {
	mu     sync.Mutex
	waits  int32
	number *atomic.Uint32 // nil: others don't see it
}

// newBoards returns nil where no operation of the group shows operands. It follows from what all
// ranks know.
func newBoards(g *Group) *boards {
	if !g.shared || g.Size > min(schedule.ManyRanks, board.MaxRanks) || g.Measured() {
		return nil
	}
	return &boards{group: g, others: (1<<g.Size - 1) &^ (1 << g.Rank), pages: make([]board.Reader, g.Size),
		done: make([]uint64, g.Size), rung: make([]uint32, g.Size)}
}

// shows reports whether ranks show each other the operands of an operation, and each rank folds
// them all by itself. It follows from what all ranks know and compare. The order of the sum is that
// of the operation's algorithm.
func (g *Group) shows(d *op.Descriptor, t *table.Table) bool {
	return g.mayShow(d) && len(t.Trees) == 0
}

// mayShow is shows under whatever table the operation had.
func (g *Group) mayShow(d *op.Descriptor) bool {
	return g.boards != nil && g.Meshed && (d.Kind == op.KindAllReduce || d.Kind == op.KindBarrier) &&
		schedule.Parts(d.Kind, d.Algorithm, g.Size) == 1 && d.Elements <= board.MaxOperand &&
		int(d.Elements)*max(1, d.DType.Size()) <= min(board.MaxOperand, g.engine.Config.EagerBytes)
}

// OpenPage gets the group a page, when the other ranks may hear of it.
func (g *Group) OpenPage() {
	b, e := g.boards, g.engine
	if b == nil || e.Board == nil {
		return
	}
	e.shown.sweep(false)
	page := e.Board.Allot(g.ID)
	if page == nil {
		return
	}
	b.mu.Lock()
	b.own = page
	b.mu.Unlock()
	b.bell.mu.Lock()
	b.bell.number = page.Sleeps()
	b.bell.mu.Unlock()
	e.shown.add(b)
}

// ClosePage ends the use of the group's pages. Its own is given back when the others have taken
// what it shows.
func (g *Group) ClosePage() {
	b := g.boards
	if b == nil {
		return
	}
	b.bell.mu.Lock()
	b.bell.number = nil
	b.bell.mu.Unlock()
	b.mu.Lock()
	left := remains{group: g, own: b.own, pages: b.used(), last: b.last}
	b.own, b.found = nil, 0
	b.whole.Store(false)
	b.mu.Unlock()
	if left.own != nil {
		g.engine.shown.remove(b, left)
	}
}

// used are the pages that were found. Under mu.
func (b *boards) used() (pages map[op.Rank]board.Reader) {
	pages = make(map[op.Rank]board.Reader)
	for rank := range ranksOf(b.found) {
		pages[rank] = b.pages[rank]
	}
	return pages
}

// ranksOf are the ranks of a set of bits, ascending.
func ranksOf(set uint64) func(yield func(op.Rank) bool) {
	return func(yield func(op.Rank) bool) {
		for ; set != 0; set &= set - 1 {
			if !yield(op.Rank(bits.TrailingZeros64(set))) {
				return
			}
		}
	}
}

// enter notes an operation that was numbered. The coordinator alone calls it, in the order of
// numbers.
func (b *boards) enter(o *Operation) {
	b.mu.Lock()
	b.open = append(b.open, o)
	b.last = o.Seq
	b.mu.Unlock()
}

// exit notes that an operation is over.
func (b *boards) exit(o *Operation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.open, o); i >= 0 {
		b.open = slices.Delete(b.open, i, i+1)
	}
	if b.own == nil {
		return
	}
	if len(b.open) > 0 {
		b.own.Done(b.open[0].Seq - 1)
	} else {
		b.own.Done(b.last)
	}
}

// show shows an operation's operand, if its place is free, and wakes who sleeps. It returns to whom
// a frame has to bring it all the same.
func (b *boards) show(o *Operation) (unseen uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.own == nil {
		return b.others
	}
	if b.found != b.others {
		b.find()
	}
	if !b.free(o.Seq) {
		return b.others
	}
	b.own.Show(&board.Call{Seq: o.Seq, Digest: o.shape.digest, Table: o.shape.table, Desc: o.shape.desc},
		o.operandOf(b.group.Rank))
	// From here on whoever says that it looks takes it.
	for rank := range ranksOf(b.others) {
		if b.found&(1<<rank) == 0 || !b.pages[rank].Sees(b.group.Rank) || !b.wake(rank) {
			unseen |= 1 << rank
		}
	}
	b.whole.Store(unseen == 0)
	return unseen
}

// wake wakes a rank if it sleeps. False: it may sleep on. Under mu: who finds that a rank was woken
// relies on it.
func (b *boards) wake(rank op.Rank) bool {
	number := b.pages[rank].Sleeps()
	if number&1 == 0 || number == b.rung[rank] {
		return true
	}
	if !b.group.Peers[rank].Knock() {
		return false
	}
	b.rung[rank] = number
	return true
}

// find looks for the others' pages, and says which are looked at from now on. Under mu.
func (b *boards) find() {
	for rank := range ranksOf(b.others &^ b.found) {
		if page, ok := b.group.Peers[rank].Page(b.group.ID); ok {
			b.pages[rank] = page
			b.found |= 1 << rank
			b.own.See(rank)
		}
	}
}

// free reports whether all who look at the own page are done with what has an operation's place.
// Under mu.
func (b *boards) free(seq uint64) bool {
	there := b.own.Shown(seq)
	if there == 0 {
		return true
	}
	for rank := range ranksOf(b.found) {
		if b.done[rank] >= there || !b.pages[rank].Sees(b.group.Rank) {
			continue
		}
		if b.done[rank] = b.pages[rank].Done(); b.done[rank] < there {
			return false
		}
	}
	return true
}

// look takes what the others show for the operations in flight, and ends those that are complete.
// It reports whether there was anything.
func (b *boards) look() (found bool) {
	for {
		o, some, err := b.take()
		found = found || some
		switch {
		case o == nil:
			return found
		case err != nil:
			o.fail(err)
			o.leave()
			return true
		}
		o.finishShown()
	}
}

// take looks through the operations in flight up to the first one that it completes, or that can't
// be. The latter is held.
func (b *boards) take() (over *Operation, found bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range b.open {
		for rank := range ranksOf(o.shown.missing.Load() & b.found) {
			if !b.pages[rank].Shows(o.Seq) {
				continue
			}
			found = true
			if complete, err := o.take(rank, b.pages[rank]); complete || err != nil {
				return o, true, err
			}
		}
	}
	return nil, found, nil
}

// listening adds to how many operations are in flight for which nobody looks.
func (b *boards) listening(n int32) {
	b.bell.mu.Lock()
	before := b.bell.waits
	b.bell.waits += n
	if b.bell.number != nil && (before == 0) != (b.bell.waits == 0) {
		b.bell.number.Add(1)
	}
	b.bell.mu.Unlock()
}

// renew has the others wake this process for what they show from now on. False: nobody waits.
func (b *boards) renew() bool {
	b.bell.mu.Lock()
	defer b.bell.mu.Unlock()
	if b.bell.waits == 0 || b.bell.number == nil {
		return false
	}
	b.bell.number.Add(2)
	return true
}
