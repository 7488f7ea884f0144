package engine

import (
	"sync"

	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/memory"
)

// cachedBytes is what the ranks of a host may receive together before the caches can't hold it:
// decision 059.
const cachedBytes = 32 << 20

// uncached reports whether the results of an operation of so many bytes leave the caches before
// anybody reads them.
func (g *Group) uncached(bytes int) bool { return g.shared && g.Size*bytes >= cachedBytes }

// rest is a final value that nothing here reads any more. It is written past the caches. It is a
// railactors.Borrower.
type rest struct {
	operation *Operation
	dst       []byte // what is not written yet
}

var rests = sync.Pool{New: func() any { return new(rest) }}

func (o *Operation) newRest(dst []byte) *rest {
	r := rests.Get().(*rest)
	*r = rest{o, dst}
	return r
}

// Borrow implements transport.Borrower.
func (r *rest) Borrow(piece []byte) { r.dst = r.dst[memory.Stream(r.dst, piece):] }

// Arrived implements railactors.Receiver.
func (r *rest) Arrived(t uint64, b *railactors.Batch) { r.free().Arrived(t, b) }

// Torn implements railactors.Receiver.
func (r *rest) Torn(t uint64, err error) { r.free().Torn(t, err) }

func (r *rest) free() *Operation {
	o := r.operation
	*r = rest{}
	rests.Put(r)
	return o
}
