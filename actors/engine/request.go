package engine

import (
	"encoding/binary"
	"hash/fnv"
	"sync"
	"time"

	"github.com/polyrail/polyrail/collective/op"
)

// Request is one call of a collective, as the caller made it.
type Request struct {
	Kind      op.Kind
	DType     op.DType
	Algorithm op.Algorithm
	Internal  bool  // the runtime's own: it is not counted among the callers' operations
	Waits     bool  // the caller calls Wait or WaitFor at once
	Op        op.Op // of kinds that reduce
	// As long as the kind has them (plan.Parts.Buffers); what it doesn't use is ignored.
	Dst, Src []byte
	Root     op.Rank    // of kinds that have one
	Counts   []int      // elements of each rank's part, the same on all ranks; nil: equal parts
	External *AllToAllV // of KindAllToAllV
	Batch    *Batch     // of an allreduce of many buffers, in place of Dst and Src; nil otherwise
	Name     string     // compared between ranks; may be empty; of a Sub its ranks

	// Ended, if set, is told once how the operation ended, before its caller knows. It must not block.
	Ended func(End)

	Salt uint64 // of a view's barrier: enters the digest
	Rail int    // of a probe: 1 + the rail that carries all of it; 0: by the table

	bytes int // size of the operation: the larger one of a rank's input and output
	// Since the process began, where operations are counted or recorded.
	called   time.Duration
	numbered time.Duration // the call itself, unless it had to wait
}

var requests = sync.Pool{New: func() any { return new(Request) }}

// NewRequest is an empty request: one that was used before, if there is any (Work.Release).
func NewRequest() *Request { return requests.Get().(*Request) }

// End is how an operation ended, for those who follow it.
type End struct {
	Seq       uint64
	Algorithm op.Algorithm
	Bytes     int // the larger one of a rank's input and output; 0 of AllToAllV
	Err       error
}

// digest hashes everything that shapes an operation.
func digest(g *Group, r *Request, d op.Descriptor, segment int, eager, shows bool) uint64 {
	h := fnv.New64a()
	var b [64]byte
	le := binary.LittleEndian
	b[0], b[1], b[2], b[3] = byte(d.Kind), byte(d.DType), byte(d.Code), byte(d.Algorithm)
	if eager {
		b[4] = 1
	}
	if shows {
		b[4] |= 2
	}
	b[5], b[6], b[7] = byte(d.Batch), byte(d.Batch>>8), byte(d.Batch>>16)
	le.PutUint64(b[8:], d.Elements)
	le.PutUint64(b[16:], uint64(g.Size))
	le.PutUint64(b[24:], uint64(segment))
	le.PutUint64(b[32:], uint64(g.engine.Config.BcubeBase))
	le.PutUint64(b[40:], r.Salt)
	le.PutUint64(b[48:], uint64(len(r.Name)))
	le.PutUint32(b[56:], uint32(d.Root))
	le.PutUint32(b[60:], uint32(len(r.Counts)))
	h.Write(b[:])
	h.Write([]byte(r.Name))
	for _, count := range r.Counts {
		h.Write(le.AppendUint64(nil, uint64(count)))
	}
	if r.Batch != nil {
		for _, buf := range r.Batch.Buffers {
			le.PutUint64(b[:], uint64(len(buf)))
			h.Write(b[:8])
		}
	}
	if d.Code == op.CodeUser {
		h.Write([]byte(r.Op.String()))
	}
	return h.Sum64()
}
