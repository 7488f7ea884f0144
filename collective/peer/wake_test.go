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
