package membership

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/polyrail/polyrail/actors/communicator"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/dispatch"
)

// hearer hears of each node whose message is logged, on the goroutine that logs it.
type hearer struct {
	slog.Handler
	hear func(from string)
}

func (h *hearer) Enabled(context.Context, slog.Level) bool { return true }

func (h *hearer) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "from" {
			h.hear(a.Value.String())
		}
		return true
	})
	return nil
}

// Messages to a communicator that is being made wait for its actor. One that comes as the actor takes the
// first of them does not overtake the others.
func TestMessagesBeforeACommunicatorsActorKeepTheirOrder(t *testing.T) {
	besideASilentRank(t, func(t *testing.T, n *node, _ *communicator.Communicator, _ *railactors.Peer) {
		n.shared.Warm = dispatch.Synchronized() // the actor takes a message before the next is sent
		names := make([]string, 10)
		for i := range names {
			names[i] = fmt.Sprint(i)
		}
		late := len(names) - 1
		heard := make(chan string, len(names))
		var m *member
		n.shared.Log = slog.New(&hearer{slog.DiscardHandler, func(from string) {
			if from == names[0] {
				n.post(m, op.Rank(late), &messages.Control{})
			}
			heard <- from
		}})
		g := n.shared.NewGroup(99, "child", 0, names, nil, n.first)
		n.Register(g)
		m = (*n.groups.Load())[g.ID]
		for i := range late {
			n.post(m, op.Rank(i), &messages.Control{})
		}
		child := n.Open(g)
		for i, name := range names {
			if from := <-heard; from != name {
				t.Errorf("a message of node %s comes in place of node %d's", from, i)
				break
			}
		}
		n.Unregister(g)
		n.shared.Stop(child.PID)
	})
}
