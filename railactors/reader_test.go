package railactors

import (
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

// On a slow rail a payload may take longer than the rank timeout; each piece of it shows that the peer lives.
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
