package balance

import (
	"math"
	"testing"
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
)

// TestWhatABurstLetPassIsScaledAlong: a probe's smallest operations took next to nothing behind a
// shaper. When the rail becomes four times as slow, a line through them must not promise less than
// that of a large operation alone.
func TestWhatABurstLetPassIsScaledAlong(t *testing.T) {
	const seconds, lean = 205e-3, 5 * leanToZero // of 2 MiB at 10 MB/s
	m := model{points: []point{
		{15, true, 32 << 10, 0.1e-3, 0.9},
		{18, true, 256 << 10, 6.55e-3, 0.9},
		{20, true, 1 << 20, 25.8e-3, 1},
		{20, false, 846 << 10, 20.4e-3, 4},
		{22, false, 3328 << 10, 84.1e-3, 6},
		{21, false, 1058 << 10, 46.8e-3, 1}, // a set that may have been noise
	}}
	p := point{21, false, 1058 << 10, 106e-3, 1}
	m.rescale(p, 27e-3, 106.0/27, lean)
	m.observe(p, settlingSets)
	if got := m.fit(21, true, lean).at(2 << 20); got < seconds/1.35 || got > seconds*1.35 {
		t.Errorf("2 MiB alone should take %.0f ms, want %.0f", 1e3*got, 1e3*seconds)
	}
}

// TestAChangeThatMayBeNoiseIsFollowedWhole: on a noisy host the first set of a slower rail moves what
// is expected of its share, within what noise may be. The next one shows by how much all that is
// known of the rail is to be scaled: by all of it, not by what the first has left.
func TestAChangeThatMayBeNoiseIsFollowedWhole(t *testing.T) {
	b := NewBalancer(Setup{Rails: 2, SplitBytes: 8 << 10, Start: &table.Table{Entries: []table.Entry{{Weights: []uint32{1, 1}}}},
		Algorithm: func(int64) op.Algorithm { return op.Ring }, Owners: func(op.Algorithm) int { return 4 }})
	const bytes, ms = 1 << 20, time.Millisecond // of each rail, at 10 MiB/s
	set := func(c Class, elapsed ...time.Duration) {
		var windows []Window
		for rail, e := range elapsed {
			windows = append(windows, Window{Rail: rail, Class: c, Operations: WindowOperations, Bytes: c.MaxBytes() / 2, Elapsed: e})
		}
		b.Observe(windows)
	}
	b.Probed(0, 1<<18, 25*ms)
	b.Probed(1, 1<<18, 25*ms)
	for range 3 {
		set(20, 50*ms, 50*ms)
	}
	b.classes[20].own = spread{variance: 0.15 * 0.15}
	set(21, 400*ms, 100*ms)
	set(21, 400*ms, 100*ms)
	if got := b.line(21, 0, true).at(bytes); math.Abs(math.Log(got/0.4)) > math.Log(1.1) {
		t.Errorf("alone 1 MiB should take %.0f ms, want 400", 1e3*got)
	}
}
