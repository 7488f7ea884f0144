package railactors

import (
	"io"
	"slices"
	"testing"
	"time"

	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/test/bubble"
)

// pacedConn delivers at a rate, and notes what is asked for.
type pacedConn struct {
	transport.Conn
	perByte time.Duration
	asked   []int
}

func (c *pacedConn) Buffered() int { return 0 }

func (c *pacedConn) ReadFull(p []byte) (int, error) {
	c.asked = append(c.asked, len(p))
	<-time.After(time.Duration(len(p)) * c.perByte)
	return len(p), nil
}

// On a slow rail a payload may take longer than the rank timeout; each piece of it shows that the
// peer lives.
func TestAPayloadIsReadWholeOnQuickRailsOnly(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &Fabric{start: time.Now(), cfg: Config{RankTimeout: 2 * time.Second}}
		p := &Peer{fabric: f, signals: make([]signal, 1)}
		c := &pacedConn{}
		r := &reader{connection: &connection{peer: p, conn: c}}
		const kib = 1 << 10
		for _, step := range []struct {
			perByte time.Duration
			bytes   int
			asked   []int
		}{
			{10 * time.Nanosecond, 256 * kib, []int{64 * kib, 192 * kib}}, // the first piece shows that it is quick
			{10 * time.Nanosecond, 256 * kib, []int{256 * kib}},
			{time.Microsecond, 256 * kib, []int{256 * kib}}, // 262 ms
			{time.Microsecond, 256 * kib, []int{64 * kib, 64 * kib, 64 * kib, 64 * kib}},
			{time.Microsecond, 8, []int{8}}, // shows nothing
			{time.Microsecond, 100 * kib, []int{64 * kib, 36 * kib}},
			{10 * time.Nanosecond, 64 * kib, []int{64 * kib}},
			{10 * time.Nanosecond, 256 * kib, []int{256 * kib}},
		} {
			c.perByte, c.asked = step.perByte, nil
			p.signals[0].heard.Store(int64(f.now())) // as the header has
			if n, err := r.payloadInto(make([]byte, step.bytes)); n != step.bytes || err != nil {
				t.Fatalf("%+v: %d bytes, %v", step, n, err)
			}
			if !slices.Equal(c.asked, step.asked) {
				t.Errorf("%d bytes at %v each: read by %v, want %v", step.bytes, step.perByte, c.asked, step.asked)
			}
			if heard := time.Duration(p.signals[0].heard.Load()); heard != f.now() {
				t.Errorf("%d bytes at %v each: heard at %v, it is %v", step.bytes, step.perByte, heard, f.now())
			}
		}
	})
}

// lendingConn lends what it has, then ends.
type lendingConn struct {
	transport.Conn
	has []byte
}

func (c *lendingConn) Buffered() int { return len(c.has) }

func (c *lendingConn) ReadFull(p []byte) (int, error) { return c.Lend(len(p), &folding{into: &p}) }

func (c *lendingConn) Lend(n int, to transport.Borrower) (int, error) {
	k := min(n, len(c.has))
	to.Borrow(c.has[:k])
	if c.has = c.has[k:]; k < n {
		return k, io.ErrUnexpectedEOF
	}
	return k, nil
}

// folding is a Folder and its Fold: it takes payloads that are whole.
type folding struct {
	whole bool // that it was told
	into  *[]byte
}

func (f *folding) Fold(_ uint64, whole bool) Fold {
	if f.whole = whole; !whole {
		return nil
	}
	return &folding{into: f.into}
}

func (f *folding) Borrow(p []byte) { *f.into = (*f.into)[copy(*f.into, p):] }

func (f *folding) Arrived(uint64, *Batch) {}
func (f *folding) Torn(uint64, error)     {}

func TestAPayloadIsLentToWhoFoldsIt(t *testing.T) {
	f := &Fabric{start: time.Now(), cfg: Config{RankTimeout: 2 * time.Second}}
	p := &Peer{fabric: f, signals: make([]signal, 1)}
	payload := []byte("payload and the next frame")
	for _, has := range []int{len(payload), 7, 3} {
		c := &lendingConn{has: payload[:has]}
		r := &reader{connection: &connection{peer: p, conn: c}, lender: c}
		folded := make([]byte, 7)
		into := folded
		folder := &folding{into: &into}
		l := Landing{Dst: make([]byte, 7), Receiver: folder}
		r.body = body{open: true, left: 7}
		r.land(&l, false)
		to := r.body.receiver
		err := r.fill()
		n := 7 - r.body.left
		if want := has >= 7; folder.whole != want || (to != Receiver(folder)) != want || (err == nil) != want || n != min(has, 7) {
			t.Errorf("of %d bytes: told whole %v, told its end %v, %d received, %v", has, folder.whole, to == Receiver(folder), n, err)
		}
		if got := [2]string{string(l.Dst[:n]), string(folded[:n])}; has >= 7 && got[1] != "payload" || has < 7 && got[0] != "pay" {
			t.Errorf("of %d bytes: %q in its place, %q lent", has, got[0], got[1])
		}
		if has >= 7 && l.Dst[0] != 0 {
			t.Errorf("what was lent is also copied: %q", l.Dst)
		}
	}
}

// waitedFor is a connection on which a reader waits for all that it reads.
type waitedFor struct {
	transport.Conn
	waits func()
}

func (c waitedFor) Buffered() int { return 0 }

func (c waitedFor) ReadFull(p []byte) (int, error) {
	c.waits()
	return len(p), nil
}

func (c waitedFor) Lend(n int, to transport.Borrower) (int, error) {
	c.waits()
	to.Borrow(make([]byte, n))
	return n, nil
}

// A peer that stops in the middle of a frame is silent. What the reader has to send does not wait for it.
func TestWhoWaitsForAPayloadIsNotBusyAndHoldsNothing(t *testing.T) {
	f := &Fabric{start: time.Now(), cfg: Config{RankTimeout: 2 * time.Second}}
	p := &Peer{fabric: f, signals: make([]signal, 1), holds: make([]int, 1), conns: make([]*connection, 1)}
	s, waited := &p.signals[0], 0
	c := waitedFor{waits: func() {
		waited++
		if s.busy.Load() || p.holds[0] > 0 {
			t.Errorf("busy %v, it holds %d", s.busy.Load(), p.holds[0])
		}
	}}
	r := &reader{connection: &connection{peer: p, conn: c}, lender: c}
	into := make([]byte, 100)
	for how, b := range map[string]body{
		"copied": {left: 100, dst: make([]byte, 100)},
		"lent":   {left: 100, fold: &folding{into: &into}},
		"sunk":   {left: 100},
	} {
		s.busy.Store(true)
		s.heard.Store(0)
		r.batch.Hold(p, 0)
		r.body, waited = b, 0
		if err := r.fill(); err != nil || waited == 0 || !s.busy.Load() || s.heard.Load() == 0 {
			t.Errorf("%s: %v, waited %d times, busy %v, heard at %d", how, err, waited, s.busy.Load(), s.heard.Load())
		}
	}
}
