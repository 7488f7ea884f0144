package communicator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/messages"
)

// abortMessage tells the others why an operation ended here.
func (g *Group) abortMessage(seq uint64, cause error) *messages.Control {
	a := &messages.Abort{
		Seq: seq, Rank: uint32(g.Rank), Node: WireText(g.node.Name),
		Code: uint32(codeOf(cause)), Reason: WireText(cause.Error()), LostRank: -1,
	}
	if told := (*fault.AbortError)(nil); errors.As(cause, &told) && g.Has(told.Rank, told.Node) {
		a.Rank, a.Node, a.Reason = uint32(told.Rank), WireText(told.Node), WireText(told.Reason) // passed on
	}
	// The cause may be another communicator's, where the node has another number.
	if lost, ok := asLost(cause); ok {
		a.LostRank, a.LostNode = int32(slices.Index(g.Nodes, lost.Node)), WireText(lost.Node)
	}
	return &messages.Control{Comm: g.ID, Body: &messages.Control_Abort{Abort: a}}
}

// codeOf classifies a cause. A deadline of this rank's caller is a timeout to the others.
func codeOf(cause error) fault.Code {
	code := fault.CodeOf(cause)
	if code == fault.CodeOther && errors.Is(cause, context.DeadlineExceeded) {
		return fault.CodeTimeout
	}
	return code
}

// maxText bounds a text in a control message, in bytes.
const maxText = 1 << 10

// WireText makes any text fit for a message: protobuf refuses one that isn't UTF-8.
func WireText(s string) string {
	if len(s) > maxText {
		end := maxText
		for end > maxText-utf8.UTFMax && !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end]
	}
	return strings.ToValidUTF8(s, "?")
}

// AbortCause is the error here for what another rank reported. A lost rank is named as such:
// who found it is only the messenger.
func (g *Group) AbortCause(from op.Rank, a *messages.Abort) error {
	code := fault.Code(min(a.GetCode(), uint32(fault.CodeInternal)))
	if lost := op.Rank(a.GetLostRank()); code == fault.CodeRankLost && g.Has(lost, a.GetLostNode()) && lost != g.Rank {
		return &fault.RankLostError{Rank: lost, Node: g.Nodes[lost],
			Reason: fmt.Sprintf("reported by rank %d (node %q)", from, g.Nodes[from])}
	}
	if where := a.GetRank(); int(where) < g.Size && op.Rank(where) != g.Rank {
		from = op.Rank(where) // who sent it passes it on
	}
	return &fault.AbortError{Rank: from, Node: g.Nodes[from], Code: code, Reason: WireText(a.GetReason())}
}

// asLost finds the lost rank in a cause.
func asLost(err error) (lost *fault.RankLostError, ok bool) {
	ok = errors.As(err, &lost)
	return lost, ok
}
