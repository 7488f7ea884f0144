package engine

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/p2p"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/memory"
	"github.com/polyrail/polyrail/test/bubble"
)

func TestAMessageIsCheckedBeforeItIsSent(t *testing.T) {
	good := Message{Rank: 1, Tag: 5, DType: op.F32, Buf: make([]byte, 8)}
	for what, c := range map[string]struct {
		change         func(m *Message)
		sends, receive bool
	}{
		"as it is":       {func(*Message) {}, true, true},
		"no type":        {func(m *Message) { m.DType = 0 }, false, false},
		"half elements":  {func(m *Message) { m.Buf = m.Buf[:6] }, false, false},
		"no such rank":   {func(m *Message) { m.Rank = 2 }, false, false},
		"a rank below":   {func(m *Message) { m.Rank = -2 }, false, false},
		"any rank":       {func(m *Message) { m.Rank = p2p.AnySource }, false, true},
		"any tag":        {func(m *Message) { m.Tag = p2p.AnyTag }, false, true},
		"no tag":         {func(m *Message) { m.Tag = p2p.NoTag }, false, false},
		"the last tag":   {func(m *Message) { m.Tag = p2p.MaxTag }, true, true},
		"reserved tag":   {func(m *Message) { m.Tag = p2p.Reserved }, true, true},
		"no bytes":       {func(m *Message) { m.Buf = nil }, true, true},
		"the first rank": {func(m *Message) { m.Rank = 0 }, true, true},
	} {
		m := good
		c.change(&m)
		if send, receive := m.check(2, false), m.check(2, true); (send == nil) != c.sends || (receive == nil) != c.receive {
			t.Errorf("%s: sent %v, received %v", what, send, receive)
		}
	}
}

// Messages to the rank itself take no wire. Whatever becomes of them they give back memory and places.
func TestMessagesOfARankToItselfLeaveNothingBehind(t *testing.T) {
	for _, length := range []int{0, 1000, 200_000} { // at once, or when they are asked for
		for _, end := range []string{"it is received", "it is given up", "the group breaks"} {
			t.Run(fmt.Sprintf("%d bytes, %s", length, end), func(t *testing.T) {
				g := testGroup(t, 1)
				g.engine.Config.EagerBytes = 4 << 20
				g.First = &table.Table{Version: 1, Entries: []table.Entry{{Weights: []uint32{1}}}}
				x, cause, listening := g.Transfers, errors.New("the end"), int32(0)
				g.engine.Listening = func(n int32) { listening += n }
				from, to := make([]byte, length), make([]byte, length)
				for i := range from {
					from[i] = byte(i)
				}
				s, err := x.Send(t.Context(), Message{Rank: 0, Tag: 5, DType: op.Uint8, Buf: from})
				if err != nil {
					t.Fatal(err)
				}
				ends := []*Transfer{s}
				switch end {
				case "it is received":
					r, err := x.Recv(t.Context(), Message{Rank: 0, Tag: 5, DType: op.Uint8, Buf: to})
					if err != nil {
						t.Fatal(err)
					}
					if ends = append(ends, r); r.Wait(t.Context()) != nil || string(to) != string(from) {
						t.Errorf("received wrong: %v", r.Err())
					}
				case "it is given up":
					s.Cancel(cause)
				case "the group breaks":
					g.Fail(cause, 0)
				}
				for _, e := range ends {
					if err := e.Wait(t.Context()); err != nil && !errors.Is(err, cause) {
						t.Error(err)
					}
				}
				if end == "it is given up" && length < 200_000 { // it had gone
					if err := s.Err(); err != nil {
						t.Error(err)
					}
					if _, err := x.Recv(t.Context(), Message{Rank: 0, Tag: 5, DType: op.Uint8, Buf: to}); err != nil {
						t.Error(err)
					}
				}
				if n := len(x.sends) + len(x.recvs) + g.InFlight(); n != 0 {
					t.Errorf("%d sends, %d receives, %d in flight", len(x.sends), len(x.recvs), g.InFlight())
				}
				if use := g.engine.Pool.Stats().InUse; use != 0 || listening != 0 {
					t.Errorf("%d bytes are in use, %d are listened for", use, listening)
				}
			})
		}
	}
}

// A rank's farewell tells the number of its last message: none follows.
func TestNoMessageFollowsAFarewell(t *testing.T) {
	g := testGroup(t, 1)
	g.engine.Config.EagerBytes = 4 << 20
	g.First = &table.Table{Version: 1, Entries: []table.Entry{{Weights: []uint32{1}}}}
	x := g.Transfers
	if sent := x.Leave(1); sent != 0 {
		t.Errorf("%d were sent", sent)
	}
	for _, length := range []int{8, 200_000} {
		m := Message{Rank: 0, Tag: 5, DType: op.Uint8, Buf: make([]byte, length)}
		_, err := x.Send(t.Context(), m)
		_, err2 := x.Recv(t.Context(), m)
		if !errors.Is(err, fault.ErrClosed) || !errors.Is(err2, fault.ErrClosed) {
			t.Errorf("sent %v, received %v", err, err2)
		}
	}
	if n, use := len(x.sends)+len(x.recvs)+g.InFlight(), g.engine.Pool.Stats().InUse; n != 0 || use != 0 {
		t.Errorf("%d are in flight, %d bytes in use", n, use)
	}
}

// Who waits for a place among the messages in flight is told when none will be free.
func TestAMessageThatWaitsForItsPlaceEndsWithItsGroup(t *testing.T) {
	for _, closes := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			g := testGroup(t, 1)
			x, cause := g.Transfers, errors.New("the end")
			x.sends, x.recvs = make(chan struct{}), make(chan struct{}) // all are taken
			m := Message{Rank: 1, Tag: 5, DType: op.Uint8}
			ended := make(chan error, 2)
			go func() { _, err := x.Send(t.Context(), m); ended <- err }()
			go func() { _, err := x.Recv(t.Context(), m); ended <- err }()
			synctest.Wait()
			want := cause
			if closes {
				want = fault.ErrClosed
				g.Shut()
			} else {
				g.Fail(cause, 0)
			}
			for range 2 {
				if err := <-ended; !errors.Is(err, want) {
					t.Errorf("closes %v: %v", closes, err)
				}
			}
		})
	}
}

// The memory of a receive that is given up is taken back from the reader, who drops the rest of the
// message: it has come, and its credit goes back.
func TestAReceiveThatIsGivenUpIsTakenFromItsReader(t *testing.T) {
	g := testGroup(t, 1)
	x := g.Transfers
	var revoked []any
	g.engine.Revoke = func(owner any) { revoked = append(revoked, owner) }
	r, err := x.Recv(t.Context(), Message{Rank: 1, Tag: 5, DType: op.Uint8, Buf: make([]byte, 8)})
	if err != nil {
		t.Fatal(err)
	}
	var fx transferEffects
	p, err := x.take(1, &p2p.Frame[*Transfer]{Verb: p2p.Eager, Number: 1, Envelope: p2p.Envelope{Tag: 5, Type: op.Uint8, Count: 8}, Length: 8}, &fx)
	if err != nil || p.Recv == nil || p.Recv.Work != r {
		t.Fatalf("%+v, %v", p, err)
	}
	cause := errors.New("the end")
	r.Cancel(cause)
	if len(revoked) != 1 || revoked[0] != any(r) || r.over() {
		t.Fatalf("%v is revoked, over %v", revoked, r.over())
	}
	r.Torn(uint64(p.Ref), railactors.ErrRevoked)
	if !errors.Is(r.Err(), cause) || !x.core.Idle() || len(x.recvs) != 0 {
		t.Errorf("%v, idle %v, %d receives", r.Err(), x.core.Idle(), len(x.recvs))
	}
}

// The place of a send that was given up is free when the other rank is told.
func TestASendThatIsGivenUpTakesItsPlaceUntilThatIsTold(t *testing.T) {
	x := testGroup(t, 1).Transfers
	send := &Transfer{transfers: x}
	x.sends <- struct{}{}
	(*cancelNotice)(send).Released(new(railactors.Frame), nil)
	if len(x.sends) != 0 {
		t.Error("its place is taken for ever")
	}
}

func TestAGrantWithCreditThatNobodyTookIsRefused(t *testing.T) {
	x := testGroup(t, 1).Transfers
	var fx transferEffects
	if _, err := x.locked().Send(&Transfer{transfers: x}, 1, p2p.Envelope{Tag: 5, Type: op.Uint8, Count: 1 << 20}, nil, []uint32{1}, &fx.Effects); err != nil {
		t.Fatal(err)
	}
	if _, err := x.take(1, &p2p.Frame[*Transfer]{Verb: p2p.Grant, Number: 1, Credit: 1}, &fx); err == nil {
		t.Error("it is taken")
	}
}

// The core knows ranks alone.
func TestTheErrorOfAMessageNamesTheNode(t *testing.T) {
	x := testGroup(t, 1).Transfers
	transfer := &Transfer{transfers: x, message: Message{Rank: 1}}
	for node, want := range map[string]string{"": "b", "z": "z"} {
		var mismatch *fault.MismatchError
		if err := transfer.named(&fault.MismatchError{Rank: 1, Node: node}); !errors.As(err, &mismatch) || mismatch.Node != want {
			t.Errorf("%v, want node %q", err, want)
		}
		var abort *fault.AbortError
		if err := transfer.named(&fault.AbortError{Rank: 1, Node: node}); !errors.As(err, &abort) || abort.Node != want {
			t.Errorf("%v, want node %q", err, want)
		}
	}
}

// Memory of a message that came as the pool was at its limit is not the pool's.
func TestAMessageBeyondThePoolLeavesThePoolAlone(t *testing.T) {
	g := testGroup(t, 1)
	g.engine.Pool = memory.NewPool(1)
	x := g.Transfers
	e := p2p.Envelope{Tag: 5, Type: op.Uint8, Count: 8}
	var fx transferEffects
	p, err := x.take(1, &p2p.Frame[*Transfer]{Verb: p2p.Eager, Number: 1, Envelope: e, Length: 8}, &fx)
	if err != nil || p.Message == nil {
		t.Fatalf("%+v, %v", p, err)
	}
	copy(x.memory(&p, 8), "a letter")
	(&heldMessage{x, p.Message}).Arrived(0, nil)
	buf := make([]byte, 8)
	r, err := x.Recv(t.Context(), Message{Rank: 1, Tag: 5, DType: op.Uint8, Buf: buf})
	if err != nil || r.Err() != nil || string(buf) != "a letter" {
		t.Errorf("received %q, %v", buf, err)
	}
	if s := g.engine.Pool.Stats(); s.InUse != 0 {
		t.Errorf("%d bytes are in use", s.InUse)
	}
}
