package cluster

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/polyrail/polyrail/collective/view"
	"github.com/polyrail/polyrail/messages"
)

// RendezvousOf puts a message of the view core on the wire. Send fills in who it is from and to;
// incarnation is the sender's.
func RendezvousOf(m view.Message, incarnation uint64) *messages.Rendezvous {
	r := &messages.Rendezvous{Incarnation: incarnation}
	switch m := m.(type) {
	case *view.Announce:
		r.Body = &messages.Rendezvous_Announce{Announce: &messages.ViewAnnounce{
			Name: m.Name, Ask: m.Ask, Size: uint32(m.Size), Rails: railsToWire(m.Rails), Believed: m.Believed,
			TtlMs: uint32(min(m.TTL.Milliseconds(), math.MaxUint32)), Uneven: rangeToWire(m.Uneven),
			Host: hostToWire(m.Host), Lowest: m.Lowest, Settings: m.Settings,
		}}
	case *view.Withdraw:
		r.Body = &messages.Rendezvous_Withdraw{Withdraw: &messages.ViewWithdraw{Name: m.Name, Ask: m.Ask, Absent: m.Absent}}
	case *view.Propose:
		r.Body = &messages.Rendezvous_Propose{Propose: &messages.ViewPropose{View: viewToWire(m.View)}}
	case *view.Accept:
		r.Body = &messages.Rendezvous_Accept{Accept: &messages.ViewAccept{Name: m.Name, Id: m.ID}}
	case *view.Refuse:
		r.Body = &messages.Rendezvous_Refuse{Refuse: &messages.ViewRefuse{
			Name: m.Name, Id: m.ID, Cause: uint32(m.Cause), Ballot: m.Ballot, Node: m.Node, Reason: clip(m.Reason)}}
	case *view.Abandon:
		r.Body = &messages.Rendezvous_Abandon{Abandon: &messages.ViewAbandon{
			Name: m.Name, Id: m.ID, Node: m.Node, Reason: clip(m.Reason)}}
	case *view.Commit:
		r.Body = &messages.Rendezvous_Commit{Commit: &messages.ViewCommit{Name: m.Name, Id: m.ID}}
	case *view.Reject:
		r.Body = &messages.Rendezvous_Reject{Reject: &messages.ViewReject{
			Name: m.Name, Ask: m.Ask, Mine: m.Mine, Node: m.Node, Reason: clip(m.Reason)}}
	default:
		panic(fmt.Sprintf("cluster: unknown message %T of the view core", m))
	}
	return r
}

// ViewMessage reads a message for the view core, and the incarnation of its sender. The core
// checks what the fields mean; lengths are checked here.
func ViewMessage(r *messages.Rendezvous) (view.Message, uint64, error) {
	m, err := viewMessage(r)
	return m, r.GetIncarnation(), err
}

func viewMessage(r *messages.Rendezvous) (view.Message, error) {
	switch b := r.GetBody().(type) {
	case *messages.Rendezvous_Announce:
		a := b.Announce
		rails, err := railsFromWire(a.GetRails())
		if err != nil || a.GetSize() > view.MaxMembers {
			return nil, errors.Join(err, fmt.Errorf("announcement of %q for %d nodes", a.GetName(), a.GetSize()))
		}
		return &view.Announce{Name: a.GetName(), Ask: a.GetAsk(), Size: int(a.GetSize()), Rails: rails,
			Believed: a.GetBelieved(), TTL: time.Duration(a.GetTtlMs()) * time.Millisecond, Uneven: rangeFromWire(a.GetUneven()),
			Host: hostFromWire(a.GetHost()), Lowest: a.GetLowest(), Settings: a.GetSettings()}, nil
	case *messages.Rendezvous_Withdraw:
		return &view.Withdraw{Name: b.Withdraw.GetName(), Ask: b.Withdraw.GetAsk(), Absent: b.Withdraw.GetAbsent()}, nil
	case *messages.Rendezvous_Propose:
		v, err := viewFromWire(b.Propose.GetView())
		if err != nil {
			return nil, err
		}
		return &view.Propose{View: v}, nil
	case *messages.Rendezvous_Accept:
		return &view.Accept{Name: b.Accept.GetName(), ID: b.Accept.GetId()}, nil
	case *messages.Rendezvous_Refuse:
		f := b.Refuse
		cause := view.Cause(min(f.GetCause(), math.MaxUint8))
		if !cause.Valid() {
			return nil, fmt.Errorf("refusal for cause %d", f.GetCause())
		}
		return &view.Refuse{Name: f.GetName(), ID: f.GetId(), Cause: cause, Ballot: f.GetBallot(),
			Node: f.GetNode(), Reason: clip(f.GetReason())}, nil
	case *messages.Rendezvous_Abandon:
		return &view.Abandon{Name: b.Abandon.GetName(), ID: b.Abandon.GetId(),
			Node: b.Abandon.GetNode(), Reason: clip(b.Abandon.GetReason())}, nil
	case *messages.Rendezvous_Commit:
		return &view.Commit{Name: b.Commit.GetName(), ID: b.Commit.GetId()}, nil
	case *messages.Rendezvous_Reject:
		j := b.Reject
		return &view.Reject{Name: j.GetName(), Ask: j.GetAsk(), Mine: j.GetMine(), Node: j.GetNode(), Reason: clip(j.GetReason())}, nil
	}
	return nil, fmt.Errorf("rendezvous message %T is not for the view core", r.GetBody())
}

func viewToWire(v *view.View) *messages.View {
	w := &messages.View{Name: v.Name, Ballot: v.Ballot, Nonce: v.Nonce, Uneven: rangeToWire(v.Uneven)}
	for _, m := range v.Members {
		w.Members = append(w.Members, &messages.ViewMember{
			Node: m.Node, Incarnation: m.Incarnation, Ask: m.Ask, Rails: railsToWire(m.Rails),
			Host: hostToWire(m.Host)})
	}
	return w
}

func viewFromWire(w *messages.View) (*view.View, error) {
	if len(w.GetMembers()) > view.MaxMembers {
		return nil, fmt.Errorf("view of %d members", len(w.GetMembers()))
	}
	v := &view.View{Name: w.GetName(), Ballot: w.GetBallot(), Nonce: w.GetNonce(), Uneven: rangeFromWire(w.GetUneven())}
	v.ID = view.WireID(v.Name, v.Ballot, v.Nonce)
	for _, m := range w.GetMembers() {
		rails, err := railsFromWire(m.GetRails())
		if err != nil {
			return nil, fmt.Errorf("node %q: %w", m.GetNode(), err)
		}
		v.Members = append(v.Members, view.Member{Node: m.GetNode(), Incarnation: m.GetIncarnation(), Ask: m.GetAsk(), Rails: rails,
			Host: hostFromWire(m.GetHost())})
	}
	return v, nil
}

// rangeToWire leaves out the range that says nothing.
func rangeToWire(r view.SeqRange) *messages.ViewSeqRange {
	if r == (view.SeqRange{}) {
		return nil
	}
	return &messages.ViewSeqRange{First: r.First, Last: r.Last}
}

func rangeFromWire(w *messages.ViewSeqRange) view.SeqRange {
	return view.SeqRange{First: w.GetFirst(), Last: w.GetLast()}
}

func hostToWire(h view.Host) *messages.ViewHost {
	return &messages.ViewHost{Name: h.Name, Memory: h.Memory}
}

func hostFromWire(w *messages.ViewHost) view.Host {
	return view.Host{Name: w.GetName(), Memory: w.GetMemory()}
}

func railsToWire(rails []view.Rail) []*messages.ViewRail {
	var w []*messages.ViewRail
	for _, r := range rails {
		w = append(w, &messages.ViewRail{Name: r.Name, Addr: r.Addr})
	}
	return w
}

func railsFromWire(w []*messages.ViewRail) ([]view.Rail, error) {
	if len(w) > view.MaxRails {
		return nil, fmt.Errorf("%d rails", len(w))
	}
	var rails []view.Rail
	for _, r := range w {
		rails = append(rails, view.Rail{Name: r.GetName(), Addr: r.GetAddr()})
	}
	return rails, nil
}

// clip keeps a text within its bound, and valid for protobuf.
func clip(s string) string {
	if len(s) > view.MaxReason {
		s = s[:view.MaxReason]
	}
	return strings.ToValidUTF8(s, "")
}
