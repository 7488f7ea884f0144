package peer

import "testing"

// plan queues so many frames of a rail that those rails may carry, and returns the first one's id.
func (b *bed) plan(frames, rail int, rails Rails) (first int) {
	first = len(b.delivered) + b.waiting + 1
	b.core.Expect(rail, frames*bedFrame)
	for range frames {
		b.frame(rail, rails)
	}
	return first
}

// taught is a bed of two rails with known rates.
func taught(t *testing.T, inFlight int, rates ...float64) *bed {
	b := newBedWithin(t, inFlight, rates...)
	b.announced = true
	b.send(50, 50)
	b.run()
	return b
}

// TestARailThatHasRunDryTakesTheLastFrames: the other one carries the first, in order. Both end
// at one time.
func TestARailThatHasRunDryTakesTheLastFrames(t *testing.T) {
	for _, rate := range []float64{50, 100, 150, 200} {
		b := taught(t, bedFrame, 200*mbit, rate*mbit)
		b.plan(10, 0, 0)
		first := b.plan(30, 1, 0b11)
		b.run()
		kept := 0
		for b.delivered[first+kept] == 1 {
			kept++
		}
		if share := int(40 * rate / (200 + rate)); kept < share-1 || kept > share+1 {
			t.Errorf("%v Mbit/s: the rail carries the first %d frames, its share is %d", rate, kept, share)
		}
		for i := kept; i < 30; i++ {
			if b.delivered[first+i] == 1 {
				t.Errorf("%v Mbit/s: the rail carries frame %d after another one took frame %d", rate, i, kept)
			}
		}
	}
}

// TestARailTakesTheFirstFrameThatIsLeftToIt: the last one may not be taken.
func TestARailTakesTheFirstFrameThatIsLeftToIt(t *testing.T) {
	b := taught(t, 2*bedFrame, 200*mbit, 50*mbit)
	b.plan(3, 0, 0)
	b.plan(2, 1, 0)
	both := b.plan(1, 1, 0b11)
	bound := b.plan(1, 1, 0)
	b.run()
	if b.delivered[both] != 0 || b.delivered[bound] != 1 {
		t.Errorf("rails %d and %d carried them, want 0 and 1", b.delivered[both], b.delivered[bound])
	}
}
