package peer

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestPaceKnowsHowFarItMayBeOff: 2 standard errors hold the true rate in 95 % of the cases. A
// rate that has changed is known again after 0.2 s of busy time.
func TestPaceKnowsHowFarItMayBeOff(t *testing.T) {
	within, samples, squares := 0, 0.0, 0.0
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var p pace
		add := func(rate, scatter float64, busy time.Duration) {
			for end := busy; busy > 0; {
				took := time.Duration((5 + 10*rng.Float64()) * 1e6)
				busy -= took
				p.add(int(rate*took.Seconds()*(1+scatter*rng.NormFloat64())), took, end-busy)
			}
		}
		add(1e7, 0.3, time.Second)
		off := p.rate()/1e7 - 1
		if squares += off * off; math.Abs(off) <= p.doubt() {
			within++
		}
		samples++
		add(2.5e6, 0.05, 200*time.Millisecond)
		if r := p.rate(); r > 2.5e6*1.6 {
			t.Fatalf("seed %d: taken for %.2g bytes a second, 0.2 s after it fell to 2.5e6", seed, r)
		}
	}
	if share := float64(within) / samples; share < 0.90 || share > 0.995 {
		t.Errorf("the true rate is within the doubt in %.1f %% of the cases", 100*share)
	}
	if off := math.Sqrt(squares / samples); off > 0.085 {
		t.Errorf("off by %.1f %% where the intervals scatter by 30 %%", 100*off)
	}
}

// TestALoneFrameTellsNoRate: its acknowledgement may have waited for a timer.
func TestALoneFrameTellsNoRate(t *testing.T) {
	b := newBed(t, 200*mbit, 200*mbit)
	for range 10 {
		b.send(1, 1)
		b.run()
	}
	if b.core.links[0].pace.known() {
		t.Errorf("taken for %.0f bytes a second", b.core.links[0].pace.rate())
	}
}

// TestAFrameThatWasHalfwayIsNotCountedWhole: an acknowledgement that waited for its timer leaves out
// the frame that is just arriving, and the next one has it whole. Read as a rate that makes a rail
// look quicker than it is.
func TestAFrameThatWasHalfwayIsNotCountedWhole(t *testing.T) {
	const frame = 30 * time.Millisecond // that one takes
	c, at := newPacer(t), time.Duration(0)
	c.queue(4)
	c.take(4)
	for n := range 4 {
		c.ack(at+time.Duration(n+1)*frame, 1)
	}
	for range 50 {
		at = c.core.now + time.Second/2
		c.core.At(at, 1)
		c.queue(2)
		c.take(2)
		c.ack(at+frame+bedDelay, 1)
		c.ack(at+2*frame, 1)
	}
	if r, want := c.core.links[0].quick().rate(), bedFrame/frame.Seconds(); r > 1.01*want {
		t.Errorf("taken for %.0f bytes a second, it carries %.0f", r, want)
	}
}

// TestARailThatAlwaysHasMoreToHandOutIsBusy: an acknowledgement covers more frames than a socket holds.
func TestARailThatAlwaysHasMoreToHandOutIsBusy(t *testing.T) {
	c := newPacer(t)
	c.queue(40)
	for n := range 5 {
		c.take(7)
		c.ack(time.Duration(n+1)*7*time.Millisecond, 7)
	}
	if p := &c.core.links[0].pace; !p.known() || math.Abs(p.rate()/(bedFrame*1000)-1) > 0.01 {
		t.Errorf("pace %+v, it carries %d bytes a second", p, bedFrame*1000)
	}
}

// pacer is a core whose rail is driven by hand.
type pacer struct {
	t     *testing.T
	core  *Core[int]
	acked uint64
}

func newPacer(t *testing.T) *pacer {
	c := &pacer{t: t, core: New[int](Config{Rails: 1, InFlightBytes: 2 << 20, AckBytes: 512 << 10,
		CreditBytes: 1, AckDelay: bedDelay})}
	var fx Effects[int]
	c.core.Connected(0, 1, &fx)
	return c
}

func (c *pacer) queue(frames int) {
	var fx Effects[int]
	for range frames {
		c.core.Send(Item[int]{Bytes: bedFrame}, &fx)
	}
}

func (c *pacer) take(frames int) {
	for range frames {
		if _, _, ok := c.core.Take(0, 1); !ok {
			c.t.Fatal("there is no frame to take")
		}
	}
	var fx Effects[int]
	c.core.Written(0, 1, &fx)
}

func (c *pacer) ack(at time.Duration, frames uint64) {
	c.acked += frames
	c.core.At(at, 1)
	var fx Effects[int]
	if err := c.core.Acked(0, 1, c.acked, &fx); err != nil {
		c.t.Fatal(err)
	}
}
