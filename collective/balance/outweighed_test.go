package balance

import "testing"

// 8 MiB over 20 and 2 MB/s: what a burst let pass in 26 µs outweighed 420 ms measured again and again,
// and a tenth of the rate kept four fifths of the bytes for good.
func TestABurstDoesNotOutweighLongOperations(t *testing.T) {
	for _, seed := range []uint64{49, 107, 117} {
		w, counts := newTurns(seed), make(map[int]int)
		for done := 0; done < 5; {
			size := w.next()
			if counts[size]++; counts[size] != 200 {
				continue
			}
			done++
			if over := w.over(size); over > 1.3 {
				t.Errorf("seed %d: operations of %d bytes take %.2f times the best", seed, size, over)
			}
		}
	}
}

// A line that is further off than its points scatter is bent. One that is less off may be right: what
// long operations took last is then as likely to have been disturbed.
func TestALineIsBentWhereAMeasurementIsFarFromIt(t *testing.T) {
	const bytes, took = 6 << 20, 0.4 // seconds
	var m model
	m.observe(point{class: 23, bytes: bytes, seconds: took, weight: 1}, 8)
	for _, c := range []struct {
		off  float64
		bent bool
	}{{2.5, false}, {6, true}} {
		l := line{perByte: took / c.off / bytes, known: true}
		if bent := m.through(l, 23, false, bytes).at(bytes) > 0.99*took; bent != c.bent {
			t.Errorf("the line is off by %v: bent %v, want %v", c.off, bent, c.bent)
		}
	}
}
