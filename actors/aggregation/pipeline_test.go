package aggregation

import (
	"fmt"
	"testing"
)

// BenchmarkFragments folds 4096 B of four children over loopback: as 16 fragments of 256 B one after
// the other, the same in flight together, and as one fragment (SHArP, Table V).
func BenchmarkFragments(b *testing.B) {
	for _, c := range []struct{ window, count, bytes int }{{1, 16, 256}, {16, 16, 256}, {16, 1, 4096}} {
		b.Run(fmt.Sprintf("window=%d/%dx%dB", c.window, c.count, c.bytes), func(b *testing.B) {
			bed := newBed(b, nil, 4, c.window, nil)
			defer bed.close()
			bed.form()
			number := uint64(0)
			for b.Loop() {
				number += uint64(c.count)
				for _, child := range bed.children {
					child.begin(fragments(sumOfFloats, c.count, c.bytes))
				}
				for _, child := range bed.children {
					child.await(number)
				}
			}
		})
	}
}

// await waits for the responses below a number, and forgets them.
func (c *child) await(number uint64) {
	for {
		c.mu.Lock()
		here := c.leaf.Received() >= number
		if here {
			clear(c.responses)
		}
		c.mu.Unlock()
		if here {
			return
		}
		<-c.arrived
	}
}
