package polyrail_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/collective/op"
)

// What an operation announces to its peers is sent, whatever its kind, or taken back when it ends in
// an error: a rail that seems to have much to come would leave its frames to others for good.
func TestWhatIsAnnouncedIsSentOrTakenBack(t *testing.T) {
	adapt, _ := limitedRails(40e6, 10e6)
	inBed(t, 4, 2, adapt, func(b *bed) {
		comms := b.form("train")
		src, dst := make([]byte, 4<<20), make([]byte, 4<<20)
		run := func(ctx context.Context, kind Kind) error {
			errs := make([]error, len(comms))
			b.each(func(i int) error {
				o := Operation{Kind: kind, DType: op.Uint8, Op: Max, Src: src, Dst: make([]byte, len(dst))}
				switch kind {
				case KindAllGather, KindGather:
					o.Src = src[:len(src)/4]
				case KindReduceScatter, KindScatter:
					o.Dst = o.Dst[:len(dst)/4]
				case KindBroadcast:
					o.Src = o.Dst
				}
				errs[i] = comms[i].Run(ctx, o)
				return nil
			})
			return errors.Join(errs...)
		}
		announced := func(when string) {
			t.Helper()
			for i, c := range comms {
				if n := c.Announced(2); n != 0 {
					t.Errorf("rank %d expects %d bytes %s", i, n, when)
				}
			}
		}
		for _, kind := range []Kind{KindAllReduce, KindReduce, KindReduceScatter, KindAllGather, KindGather,
			KindScatter, KindBroadcast, KindAllToAll, KindScan} {
			if err := run(b.t.Context(), kind); err != nil {
				t.Errorf("%v: %v", kind, err)
				return
			}
			announced("after " + kind.String())
		}
		ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Millisecond)
		defer cancel()
		if err := run(ctx, KindAllReduce); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an operation of 0.12 s ended within 0.03 s, with %v", err)
		}
		<-time.After(time.Second)
		announced("after an operation that was given up")
	})
}
