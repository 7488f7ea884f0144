package actors

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/messages"
)

// Request is one call of a collective, as the caller made it.
type Request struct {
	Kind      op.Kind
	DType     op.DType
	Op        op.Op      // of kinds that reduce
	Dst, Src  []byte     // as long as the kind has it (plan.Parts.Buffers); what it doesn't use is ignored
	Root      op.Rank    // of kinds that have one
	Counts    []int      // elements of each rank's part, the same on all ranks; nil: equal parts
	External  *AllToAllV // of KindAllToAllV
	Batch     *Batch     // of an allreduce of many buffers, in place of Dst and Src; nil otherwise
	Name      string     // compared between ranks; may be empty
	Algorithm op.Algorithm

	bytes   int                                    // size of the operation: the larger one of a rank's input and output
	salt    uint64                                 // of a view's barrier or a Dup: enters the digest
	rail    int                                    // of a probe: 1 + the rail that carries all of it; 0: by the table
	entered func(seq uint64, inForce *table.Table) // called by the coordinator before anything is sent
	ready   chan struct{}                          // answered by the coordinator
	op      *operation                             // the answer …
	err     error                                  // … or why there is none
	work    *Work
	handle  *Communicator
	taken   atomic.Bool // by the coordinator, which answers for sure then, or by a caller that waits no longer
	called  time.Time   // when it was made; set where operations have a timeout
}

// digest hashes everything that shapes an operation (DESIGN §4.1).
func digest(g *group, r *Request, d op.Descriptor, segment int, eager bool) uint64 {
	h := fnv.New64a()
	var b [64]byte
	le := binary.LittleEndian
	b[0], b[1], b[2], b[3] = byte(d.Kind), byte(d.DType), byte(d.Code), byte(d.Algorithm)
	if eager {
		b[4] = 1
	}
	b[5], b[6], b[7] = byte(d.Batch), byte(d.Batch>>8), byte(d.Batch>>16)
	le.PutUint64(b[8:], d.Elements)
	le.PutUint64(b[16:], uint64(g.size))
	le.PutUint64(b[24:], uint64(segment))
	le.PutUint64(b[32:], uint64(g.node.config.BcubeBase))
	le.PutUint64(b[40:], r.salt)
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

// operationError puts an operation's name on a cause, once.
func (g *group) operationError(seq uint64, d op.Descriptor, cause error) error {
	return &fault.OperationError{Communicator: g.name, Seq: seq, Operation: d, Cause: cause}
}

// abortMessage tells the others why an operation ended here.
func (g *group) abortMessage(seq uint64, cause error) *messages.Control {
	a := &messages.Abort{
		Seq: seq, Rank: uint32(g.rank), Node: wireText(g.node.config.Node),
		Code: uint32(fault.CodeOf(cause)), Reason: wireText(cause.Error()), LostRank: -1,
	}
	if lost, ok := asLost(cause); ok {
		a.LostRank, a.LostNode = int32(lost.Rank), wireText(lost.Node)
	}
	return &messages.Control{Comm: g.id, Body: &messages.Control_Abort{Abort: a}}
}

// maxText bounds a text in a control message, in bytes.
const maxText = 1 << 10

// wireText makes any text fit for a message: protobuf refuses one that isn't UTF-8.
func wireText(s string) string {
	if len(s) > maxText {
		end := maxText
		for end > maxText-utf8.UTFMax && !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end]
	}
	return strings.ToValidUTF8(s, "?")
}

// abortCause is the error here for what another rank reported. A lost rank is named as such:
// who found it is only the messenger.
func (g *group) abortCause(from op.Rank, a *messages.Abort) error {
	code := fault.Code(min(a.GetCode(), uint32(fault.CodeInternal)))
	if lost := a.GetLostRank(); code == fault.CodeRankLost && lost >= 0 && int(lost) < g.size && op.Rank(lost) != g.rank {
		return &fault.RankLostError{Rank: op.Rank(lost), Node: g.nodes[lost],
			Reason: fmt.Sprintf("reported by rank %d (node %q)", from, g.nodes[from])}
	}
	return &fault.AbortError{Rank: from, Node: g.nodes[from], Code: code, Reason: a.GetReason()}
}
