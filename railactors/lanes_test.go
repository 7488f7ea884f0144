package railactors

import (
	"slices"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/messages/wire"
)

// Prometheus takes no metrics where two have equal labels.
func TestLanesOfOneNameAreCountedTogether(t *testing.T) {
	f := &Fabric{memory: -1, rails: []*rail{{name: "a"}, {name: "messages"}, {name: "repair:a"}, {name: "tree:a"}}}
	r := f.rails[0]
	data := func(lane uint16) *wire.Header { return &wire.Header{Kind: wire.KindData, Lane: lane} }
	message, tree := data(0), data(0)
	message.Desc.Kind, tree.Group = op.KindSendRecv, 1
	for _, h := range []*wire.Header{data(0), data(1), data(2), data(3), data(4), tree, message} {
		r.sent.add(h, 1)
		r.received.add(h, 10)
	}
	for lane := range uint16(5) { // beyond all rails and their repair: from a node that has more
		r.sent.add(data(60+lane), 1)
	}
	want := []LaneTraffic{{"a", 1, 10}, {"messages", 2, 20}, {"repair:a", 2, 20}, {"tree:a", 2, 20}, {"(other)", 5, 0}}
	if got := f.lanes(r); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
