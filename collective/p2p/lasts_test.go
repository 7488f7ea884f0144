package p2p

import (
	"errors"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
)

// single is the core of rank 0 of two, on one rail that takes a frame at a time.
func single() *Core[string] {
	return New[string](Config{Size: 2, Rails: 1, EagerBytes: 8 << 10, CreditBytes: 16 << 10, WindowBytes: minFrame,
		Granted: 1, Open: 4})
}

func verbs(fx *Effects[string], v Verb) (n int) {
	for _, f := range fx.Frames {
		if f.Verb == v {
			n++
		}
	}
	return n
}

// sending is a message of three frames of which the first is on its way.
func sending(t *testing.T, c *Core[string], fx *Effects[string]) *Send[string] {
	t.Helper()
	s, err := c.Send("send", 1, Envelope{5, op.Uint8, 3 * minFrame}, nil, []uint32{1}, fx)
	if err == nil {
		err = c.Granted(1, s.number, fx)
	}
	if err != nil || verbs(fx, Part) != 1 {
		t.Fatalf("%v, %d frames", err, verbs(fx, Part))
	}
	return s
}

func TestASendEndsWithItsLastFrame(t *testing.T) {
	c := single()
	var fx Effects[string]
	s := sending(t, c, &fx)
	if err := c.Granted(1, 1, &fx); !errors.Is(err, errFrame) {
		t.Errorf("granted twice: %v", err)
	}
	for left := 2; left >= 0; left-- {
		if len(fx.Done) != 0 {
			t.Fatalf("it has ended before %d frames", left+1)
		}
		c.Released(s, 0, minFrame, nil, &fx)
	}
	if len(fx.Done) != 1 || verbs(&fx, Part) != 3 {
		t.Errorf("it ended %d times, after %d frames", len(fx.Done), verbs(&fx, Part))
	}
}

// A send that is given up takes its memory back, tells the receiver once, and ends when nobody reads it.
// Nothing more of it is handed out.
func TestASendThatIsGivenUpIsReadNoMore(t *testing.T) {
	c := single()
	var fx Effects[string]
	s := sending(t, c, &fx)
	for range 2 {
		c.CancelSend(s, errCancel, &fx)
	}
	if len(fx.Revoke) != 1 || verbs(&fx, Cancel) != 1 || len(fx.Done) != 0 {
		t.Errorf("%d revocations, %d cancels, %d ends", len(fx.Revoke), verbs(&fx, Cancel), len(fx.Done))
	}
	c.Released(s, 0, minFrame, errCancel, &fx)
	if len(fx.Done) != 1 || !errors.Is(fx.Done[0].Err, errCancel) || verbs(&fx, Part) != 1 {
		t.Errorf("%+v, %d frames", fx.Done, verbs(&fx, Part))
	}
	c.CancelSend(s, errCancel, &fx)
	fx.Reset()
	if next := sending(t, c, &fx); fx.Frames[1].Number != next.number {
		t.Errorf("a frame of number %d follows, want %d", fx.Frames[1].Number, next.number)
	}
}

func TestNothingIsSentToWhoHasDeparted(t *testing.T) {
	c := single()
	var fx Effects[string]
	c.Departed(1, 0, errCancel, &fx)
	if _, err := c.Send("send", 1, Envelope{5, op.Uint8, 1}, nil, []uint32{1}, &fx); !errors.Is(err, errCancel) {
		t.Errorf("sent: %v", err)
	}
}

// receiving posts a receive and lets its message ask.
func receiving(t *testing.T, c *Core[string], number uint64, bytes int, fx *Effects[string]) *Recv[string] {
	t.Helper()
	e := Envelope{5, op.Uint8, uint64(bytes)}
	r := &Recv[string]{Work: "recv", From: 1, Room: e}
	if err := errors.Join(c.Recv(r, fx), c.Asked(1, number, e, fx)); err != nil {
		t.Fatal(err)
	}
	return r
}

// Of more messages than may be on their way at once the others wait. Who gives one of these up tells its
// sender, who waits, too.
func TestAMessageThatWaitsForItsGrantIsDroppedAloud(t *testing.T) {
	c := single()
	var fx Effects[string]
	first, second := receiving(t, c, 1, 100_000, &fx), receiving(t, c, 2, 100_000, &fx)
	if n := verbs(&fx, Grant); n != 1 {
		t.Errorf("%d grants, the limit is 1", n)
	}
	c.CancelRecv(second, errCancel, &fx)
	if n := verbs(&fx, Drop); n != 1 || len(fx.Done) != 1 {
		t.Errorf("%d drops, %d ends", n, len(fx.Done))
	}
	c.CancelRecv(first, errCancel, &fx) // its bytes come, and are dropped
	if n := verbs(&fx, Drop); n != 1 || len(fx.Done) != 2 || !c.Idle() {
		t.Errorf("%d drops, %d ends, idle %v", n, len(fx.Done), c.Idle())
	}
}

// A receive that is given up ends when nobody writes its memory, once, whatever becomes of its frames.
func TestAReceiveThatIsGivenUpIsWrittenNoMore(t *testing.T) {
	for _, torn := range []bool{false, true} {
		c := single()
		var fx Effects[string]
		r := receiving(t, c, 1, 3*minFrame, &fx)
		var refs []Ref
		for i := range 2 {
			p, err := c.Part(1, 1, i*minFrame, minFrame)
			if err != nil {
				t.Fatal(err)
			}
			refs = append(refs, p.Ref)
		}
		for range 2 {
			c.CancelRecv(r, errCancel, &fx)
		}
		if len(fx.Revoke) != 1 {
			t.Errorf("torn %v: %d revocations", torn, len(fx.Revoke))
		}
		for i, ref := range refs {
			if len(fx.Done) != 0 {
				t.Fatalf("torn %v: it has ended with %d landings", torn, 2-i)
			}
			if torn {
				c.Torn(r, ref, true, &fx)
			} else {
				c.Arrived(r, ref, &fx)
			}
		}
		c.CancelRecv(r, errCancel, &fx)
		if len(fx.Done) != 1 || !errors.Is(fx.Done[0].Err, errCancel) || c.from[1].granted != 0 || !c.Idle() {
			t.Errorf("torn %v: %+v, %d granted, idle %v", torn, fx.Done, c.from[1].granted, c.Idle())
		}
	}
}

// A context may end after the receive.
func TestAReceiveThatHasEndedIsNotGivenUp(t *testing.T) {
	c := single()
	var fx Effects[string]
	r := receiving(t, c, 1, minFrame, &fx)
	p, err := c.Part(1, 1, 0, minFrame)
	if err != nil {
		t.Fatal(err)
	}
	c.Arrived(r, p.Ref, &fx)
	c.CancelRecv(r, errCancel, &fx)
	if len(fx.Done) != 1 || fx.Done[0].Err != nil || len(fx.Frames) != 1 || c.from[1].granted != 0 {
		t.Errorf("%+v, %d frames, %d granted", fx.Done, len(fx.Frames), c.from[1].granted)
	}
}

// Numbers arrive in any order: a message may be given up before its envelope comes, and before those that
// precede it.
func TestAnEnvelopeMayFollowItsCancel(t *testing.T) {
	c := single()
	var fx Effects[string]
	e := Envelope{5, op.Uint8, 1}
	if err := errors.Join(c.Canceled(1, 2, &fx), c.Asked(1, 2, e, &fx), c.Asked(1, 1, e, &fx)); err != nil {
		t.Error(err)
	}
	if n := len(c.from[1].messages); n != 1 || c.from[1].next != 3 {
		t.Errorf("%d messages, the next is %d", n, c.from[1].next)
	}
}

// A frame of an eager message that was torn comes again, as it was; and no other one.
func TestAnEagerFrameComesAgainWhenItWasTorn(t *testing.T) {
	e := Envelope{5, op.Uint8, 100}
	for _, posted := range []bool{false, true} {
		c := single()
		var fx Effects[string]
		r := &Recv[string]{Work: "recv", From: 1, Room: e}
		if posted {
			if err := c.Recv(r, &fx); err != nil {
				t.Fatal(err)
			}
		}
		refused := func(when string, e Envelope, length int) {
			t.Helper()
			if _, err := c.Eager(1, 1, e, length, &fx); !errors.Is(err, errFrame) {
				t.Errorf("posted %v, %s: %v", posted, when, err)
			}
		}
		p, err := c.Eager(1, 1, e, 100, &fx)
		if err != nil || (p.Recv != nil) != posted {
			t.Fatal(p, err)
		}
		refused("while it lands", e, 100)
		if posted {
			c.Torn(r, p.Ref, false, &fx)
		} else {
			c.TornHeld(p.Message, &fx)
		}
		refused("with another envelope", Envelope{6, op.Uint8, 100}, 100)
		refused("of another length", e, 50)
		if p, err = c.Eager(1, 1, e, 100, &fx); err != nil {
			t.Fatalf("posted %v: %v", posted, err)
		}
		if posted {
			c.Arrived(r, p.Ref, &fx)
		} else {
			p.Message.Data.Bytes = make([]byte, 100)
			c.ArrivedHeld(p.Message, &fx)
			refused("when it is whole", e, 100)
			if err := c.Recv(r, &fx); err != nil || len(fx.Copies) != 1 {
				t.Fatalf("%v, %d copies", err, len(fx.Copies))
			}
			c.Copied(p.Message, &fx)
		}
		if len(fx.Done) != 1 || fx.Done[0].Err != nil || c.from[1].held != 0 {
			t.Errorf("posted %v: %+v, credit of %d", posted, fx.Done, c.from[1].held)
		}
		refused("when it is over", e, 100)
	}
}

// A break while a message lands in the runtime's memory gives that back when the reader has let go.
func TestAHeldMessageIsFreedAfterABreak(t *testing.T) {
	for _, torn := range []bool{false, true} {
		c := single()
		var fx Effects[string]
		p, err := c.Eager(1, 1, Envelope{5, op.Uint8, 100}, 100, &fx)
		if err != nil {
			t.Fatal(err)
		}
		p.Message.Data.Bytes = make([]byte, 100)
		c.Break(errCancel, &fx)
		if len(fx.Free) != 0 {
			t.Fatal("it is freed while a reader writes it")
		}
		if torn {
			c.TornHeld(p.Message, &fx)
		} else {
			c.ArrivedHeld(p.Message, &fx)
		}
		if len(fx.Free) != 1 || len(fx.Frames) != 0 {
			t.Errorf("torn %v: %d freed, %d frames", torn, len(fx.Free), len(fx.Frames))
		}
	}
}

// A rail breaks as the receive of a message that lands is given up: the message comes again, and lands
// elsewhere.
func TestAnEagerFrameThatComesAgainLeavesAReceiveAloneThatHasEnded(t *testing.T) {
	c := single()
	var fx Effects[string]
	e := Envelope{5, op.Uint8, 100}
	r := &Recv[string]{Work: "recv", From: 1, Room: e}
	if err := c.Recv(r, &fx); err != nil {
		t.Fatal(err)
	}
	p, err := c.Eager(1, 1, e, 100, &fx)
	if err != nil {
		t.Fatal(err)
	}
	c.CancelRecv(r, errCancel, &fx)
	c.Torn(r, p.Ref, false, &fx)
	if len(fx.Done) != 1 {
		t.Fatalf("%d ends", len(fx.Done))
	}
	if p, err = c.Eager(1, 1, e, 100, &fx); err != nil || p.Recv != nil {
		t.Fatalf("it lands at %+v, %v", p, err)
	}
	c.ArrivedHeld(p.Message, &fx)
	if c.from[1].held != 0 || !c.Idle() {
		t.Errorf("credit of %d is taken, idle %v", c.from[1].held, c.Idle())
	}
}

// What a rank has granted it takes, though it closes the communicator.
func TestADepartureLeavesASendThatWasGranted(t *testing.T) {
	c := single()
	var fx Effects[string]
	s := sending(t, c, &fx)
	c.Departed(1, 0, errCancel, &fx)
	for range 3 {
		if len(fx.Done) != 0 {
			t.Fatal("it has ended while its memory is read")
		}
		c.Released(s, 0, minFrame, nil, &fx)
	}
	if len(fx.Done) != 1 || fx.Done[0].Err != nil {
		t.Errorf("%+v", fx.Done)
	}
}

// A rank that is still there may send to whoever receives from any.
func TestAReceiveFromAnyRankEndsWithTheLastDeparture(t *testing.T) {
	c := New[string](Config{Size: 3, Rails: 1, CreditBytes: 16 << 10, WindowBytes: minFrame, Granted: 1, Open: 4})
	var fx Effects[string]
	any := func() error {
		return c.Recv(&Recv[string]{Work: "recv", From: AnySource, Room: Envelope{5, op.Uint8, 1}}, &fx)
	}
	for range 2 {
		c.Departed(1, 0, errCancel, &fx)
	}
	if err := any(); err != nil || len(fx.Done) != 0 {
		t.Errorf("rank 2 is there: %v, %+v", err, fx.Done)
	}
	c.Departed(2, 0, errCancel, &fx)
	if err := any(); !errors.Is(err, errCancel) || len(fx.Done) != 1 {
		t.Errorf("nobody is there: %v, %+v", err, fx.Done)
	}
}
