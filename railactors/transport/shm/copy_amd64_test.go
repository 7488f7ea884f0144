//go:build amd64 && !purego

package shm

import "testing"

func TestNearIsWhatSomeProcessorsCopyByteByByte(t *testing.T) {
	b := make([]byte, 4*page)
	src := b[page/2:]
	for above := -page; above < 2*page; above++ {
		want := above > 0 && above < 64 || above+page > 0 && above+page < 64 || above-page > 0 && above-page < 64
		if got := near(b[page/2+page+above:], src[:1]); got != want {
			t.Fatalf("%d bytes above: %v", above, got)
		}
	}
}
