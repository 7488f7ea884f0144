package peer

import "testing"

// TestAnAcknowledgementWakesTheRailThatWaited: a slow rail leaves its frames to a quick one. That
// one becomes slow too, and only its acknowledgements tell.
func TestAnAcknowledgementWakesTheRailThatWaited(t *testing.T) {
	b := newBed(t, 200*mbit, mbit)
	b.send(80, 10)
	b.run()
	clear(b.carried)
	b.send(80, 4) // more than the limit in flight
	if n := b.core.InFlight(1); n != 0 {
		t.Fatalf("%d bytes are on the slow rail at once", n)
	}
	b.rates[0] = 4 * mbit
	if b.run(); b.carried[1] == 0 {
		t.Errorf("the rails carried %d", b.carried)
	}
}

// TestNoFrameIsLeftToARailThatHasNothingToCarry: nothing would wake that rail, and what operations
// announce may depend on the frame. It is planned for the slow rail while many peers share the
// rails; the writer comes when no other peer does.
func TestNoFrameIsLeftToARailThatHasNothingToCarry(t *testing.T) {
	for _, announced := range []int{0, bedFrame} {
		b := newBed(t, 200*mbit, 10*mbit)
		b.send(80, 10)
		b.run()
		b.core.Expect(0, announced)
		var fx Effects[int]
		b.core.At(b.now, 6)
		b.core.Send(Item[int]{Rail: 1, Rails: 0b11, Bytes: bedFrame}, &fx)
		if fx.Wake != 0b10 {
			t.Fatalf("rails %b are woken", fx.Wake)
		}
		b.core.At(b.now, 1)
		if _, _, ok := b.core.Take(1, b.ways[1].generation); !ok {
			t.Errorf("announced %d: the rail that was woken takes nothing", announced)
		}
	}
}

// TestAWriterThatIsDoneLeavesRoomForTheNextFrame: what it held counts as on its way, though it was
// acknowledged. Nothing else wakes the rail.
func TestAWriterThatIsDoneLeavesRoomForTheNextFrame(t *testing.T) {
	c := fixture(t, 1)
	var fx Effects[string]
	c.Send(data("a", 0, 60), &fx)
	c.Send(data("b", 0, 60), &fx)
	c.Take(0, 1)
	fx.Reset()
	if err := c.Acked(0, 1, 1, &fx); err != nil || fx.Wake != 0 {
		t.Errorf("acknowledged: %v, rails %b are woken", err, fx.Wake)
	}
	if c.Written(0, 1, &fx); fx.Wake != 1 {
		t.Errorf("written: rails %b are woken", fx.Wake)
	}
	if got := take(c, 0, 1); got != "b" {
		t.Errorf("took %q", got)
	}
	fx.Reset()
	if err := c.Acked(0, 1, 2, &fx); err != nil || fx.Wake != 0 {
		t.Errorf("at the end: %v, rails %b are woken", err, fx.Wake)
	}
}

// TestARailThatGoesDownWakesTheOneThatLeftItsFramesToIt: no acknowledgement will.
func TestARailThatGoesDownWakesTheOneThatLeftItsFramesToIt(t *testing.T) {
	b := newBedWithin(t, 4*bedFrame, 200*mbit, mbit)
	b.send(80, 10)
	b.run()
	for range 5 {
		b.frame(0, 0)
	}
	b.frame(1, 0b11)
	b.now = b.ways[0].arrives
	b.arrive(0)
	b.acknowledge(0)
	if quick, slow := b.core.Load(0), b.core.Load(1); quick.Queued != 0 || slow.Queued != bedFrame {
		t.Fatalf("%+v and %+v", quick, slow)
	}
	var fx Effects[int]
	if b.core.Down(0, b.ways[0].generation, &fx); fx.Wake != 0b10 {
		t.Errorf("rails %b are woken", fx.Wake)
	}
}
