package cluster

import (
	"bytes"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/polyrail/polyrail/collective/view"
	"github.com/polyrail/polyrail/messages"
	"google.golang.org/protobuf/proto"
)

func everyMessage() []view.Message {
	rails := []view.Rail{{Name: "eth0", Addr: "10.1.0.1:1"}, {Name: "eth1", Addr: "10.2.0.1:1"}}
	v := &view.View{Name: "train", Ballot: 3, Nonce: 9, ID: view.WireID("train", 3, 9), Members: []view.Member{
		{Node: "a", Incarnation: 1, Ask: 2, Rails: rails}, {Node: "b", Incarnation: 3, Ask: 4, Rails: rails}}}
	shrunk := *v
	shrunk.Uneven = view.SeqRange{First: 7, Last: 6}
	return []view.Message{
		&view.Announce{Name: "train", Ask: 1, Size: 2, Rails: rails, Host: view.Host{Name: "h", Memory: "m"}, Believed: 3, TTL: 1750 * time.Millisecond, Lowest: "a"},
		&view.Announce{Name: view.ShrinkName(5), Ask: 1, Size: 2, Rails: rails, TTL: time.Second, Uneven: view.SeqRange{First: 4, Last: 5}},
		&view.Withdraw{Name: "train", Ask: 1},
		&view.Withdraw{Name: "train", Ask: 1, Absent: true},
		&view.Propose{View: v},
		&view.Propose{View: &shrunk},
		&view.Accept{Name: "train", ID: v.ID},
		&view.Refuse{Name: "train", ID: v.ID, Cause: view.CannotReach, Ballot: 7, Node: "b", Reason: "no route"},
		&view.Abandon{Name: "train", ID: v.ID, Node: "b", Reason: "no route"},
		&view.Commit{Name: "train", ID: v.ID},
		&view.Reject{Name: "train", Ask: 1, Mine: 2, Node: "c", Reason: "lacks rail"},
	}
}

func TestEveryViewMessageSurvivesTheWire(t *testing.T) {
	for _, m := range everyMessage() {
		b, err := proto.Marshal(RendezvousOf(m, 77))
		if err != nil {
			t.Fatalf("%T: %v", m, err)
		}
		var r messages.Rendezvous
		if err := proto.Unmarshal(b, &r); err != nil {
			t.Fatalf("%T: %v", m, err)
		}
		got, incarnation, err := ViewMessage(&r)
		if err != nil || incarnation != 77 || !reflect.DeepEqual(got, m) {
			t.Errorf("%T: got %+v, %d, %v; want %+v", m, got, incarnation, err, m)
		}
	}
}

func TestReasonsAreClippedToValidText(t *testing.T) {
	m := &view.Reject{Name: "x", Ask: 1, Reason: strings.Repeat("é", view.MaxReason) + "\xff"}
	r := RendezvousOf(m, 1)
	if _, err := proto.Marshal(r); err != nil {
		t.Error(err)
	}
	if n := len(r.GetReject().Reason); n > view.MaxReason || n < view.MaxReason-4 {
		t.Errorf("%d bytes", n)
	}
}

func TestMessagesThatAreNotForTheCoreAreErrors(t *testing.T) {
	for name, r := range map[string]*messages.Rendezvous{
		"nothing":        {},
		"cause":          {Body: &messages.Rendezvous_Refuse{Refuse: &messages.ViewRefuse{Cause: 300}}},
		"size":           {Body: &messages.Rendezvous_Announce{Announce: &messages.ViewAnnounce{Size: 1 << 31}}},
		"too many":       {Body: &messages.Rendezvous_Propose{Propose: &messages.ViewPropose{View: &messages.View{Members: make([]*messages.ViewMember, view.MaxMembers+1)}}}},
		"too many rails": {Body: &messages.Rendezvous_Announce{Announce: &messages.ViewAnnounce{Rails: make([]*messages.ViewRail, view.MaxRails+1)}}},
	} {
		if m, _, err := ViewMessage(r); err == nil {
			t.Errorf("%s: got %+v", name, m)
		}
	}
}

// FuzzRendezvous: whatever comes from the network is either refused or a message that the core takes
// without panic, and that means the same when it is sent on.
func FuzzRendezvous(f *testing.F) {
	for _, m := range everyMessage() {
		b, err := proto.Marshal(RendezvousOf(m, 7))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r messages.Rendezvous
		if proto.Unmarshal(b, &r) != nil {
			return
		}
		m, _, err := ViewMessage(&r)
		if err != nil {
			return
		}
		again, _, err := ViewMessage(RendezvousOf(m, 7))
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Errorf("%+v became %+v, %v", m, again, err)
		}
		core, err := view.New("a", 1, nil, view.Host{}, view.DefaultTiming())
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(0, 0)
		core.Step(view.MemberUp{Node: "b", Incarnation: 1}, now)
		core.Step(view.Ask{Call: 1, Name: "train", Size: 2, Nonce: 9}, now)
		core.Step(view.Received{From: "b", Incarnation: 1, Message: m}, now)
	})
}

// FuzzIdentify: whatever a process's name and metadata in gossip say, it is refused, or has an
// identity that says the same.
func FuzzIdentify(f *testing.F) {
	self := Member{Node: "a", Incarnation: 1, Version: 3}
	f.Add("b#7", encodeMeta(3, 7, staying, ""))
	f.Add("b#7", encodeMeta(3, 7, leaving, ""))
	f.Add("b#7", encodeMeta(3, 7, staying, "row/rack"))
	f.Add("b#7", encodeMeta(3, 7, staying, "row//rack"))
	f.Add("b#7", encodeMeta(4, 7, staying, ""))
	f.Add("b#8", encodeMeta(3, 7, staying, ""))
	f.Add("b", []byte{3, 0})
	f.Add("#", encodeMeta(3, 0, staying, ""))
	f.Fuzz(func(t *testing.T, name string, meta []byte) {
		m, err := identify(self, &memberlist.Node{Name: name, Meta: meta, Addr: net.IPv4(10, 0, 0, 2), Port: 7946})
		if err != nil {
			return
		}
		same := encodeMeta(m.Version, m.Incarnation, meta[metaBytes-1], m.Path)
		if !validNode(m.Node) || m.Version != self.Version || !bytes.Equal(same, meta) {
			t.Errorf("%q, %x: %+v", name, meta, m)
		}
		if again, err := identify(self, &memberlist.Node{Name: m.process(), Meta: meta, Addr: net.IPv4(10, 0, 0, 2), Port: 7946}); err != nil || again != m {
			t.Errorf("%+v, %v; want %+v", again, err, m)
		}
	})
}
