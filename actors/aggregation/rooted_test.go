package aggregation

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/messages/wire"
)

// Of a broadcast the root alone sends something, of a reduce everybody does: all of a fragment.
func TestWhatARankHasNoPartInIsRefused(t *testing.T) {
	reduceTo1 := op.Descriptor{Kind: op.KindReduce, DType: op.F32, Code: op.CodeSum, Algorithm: op.Chain, Root: 1,
		Elements: 64}
	broadcastOf1 := op.Descriptor{Kind: op.KindBroadcast, DType: op.F32, Algorithm: op.Tree, Root: 1, Elements: 64}
	for _, c := range []struct {
		desc          op.Descriptor
		child         int
		length, count uint32
		want          string // "": it is taken
	}{
		{reduceTo1, 0, 256, 256, ""},
		{reduceTo1, 0, 0, 256, "0 bytes of a fragment of 256"},
		{reduceTo1, 1, 128, 256, "128 bytes of a fragment of 256"},
		{reduceTo1, 1, testBytes + 4, testBytes + 4, "the limit is 65536"},
		{broadcastOf1, 1, 256, 256, ""},
		{broadcastOf1, 0, 0, 256, ""},
		{broadcastOf1, 0, 256, 256, "256 bytes of a fragment of 256"},
		{broadcastOf1, 1, 0, 256, "0 bytes of a fragment of 256"},
		{broadcastOf1, 0, 0, testBytes + 4, "the limit is 65536"},
		{broadcastOf1, 0, 0, 255, "an element of float32"},
	} {
		virtual(t, 2, nil, func(b *bed) {
			b.form()
			g := b.server.group(testGroup)
			r := request{desc: c.desc, data: make([]byte, c.length)}
			h := r.header(0)
			h.Count = c.count
			l, err := b.server.Land(g.peers[c.child], 1, &h)
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) || c.want == "" && err != nil {
				t.Errorf("%v, %d of %d bytes of rank %d: error %v, want %q", c.desc.Kind, c.length, c.count, c.child,
					err, c.want)
			}
			if l.Receiver != nil {
				l.Receiver.Torn(l.Tag, errTest)
			}
		})
	}
}

// A broadcast whose root is none of the ranks ends the group.
func TestABroadcastNeedsARoot(t *testing.T) {
	virtual(t, 2, nil, func(b *bed) {
		b.form()
		g := b.server.group(testGroup)
		r := request{desc: op.Descriptor{Kind: op.KindBroadcast, DType: op.F32, Algorithm: op.Tree, Root: 2, Elements: 64}}
		h := r.header(0)
		h.Step, h.Count = wire.TreeUp, 256
		if _, err := b.server.Land(g.peers[0], 1, &h); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if m := b.children[1].expectRevoked(); !strings.Contains(m.GetReason(), "root 2 of 2 ranks") {
			t.Errorf("the others are told %q", m.GetReason())
		}
	})
}
