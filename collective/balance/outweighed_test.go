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

// Errors count relative to what the class's own operations take, however small those of others are.
func TestSmallOperationsThatABurstLetPassBendNoLineOfLongOnes(t *testing.T) {
	var m model
	for range 30 {
		m.observe(point{class: 13, bytes: 8 << 10, seconds: 26e-6, weight: 1, bound: 1}, 32)
	}
	const bytes, took = 800e3, 0.4
	m.observe(point{class: 23, bytes: bytes, seconds: took, weight: 1, bound: 1}, 8)
	if got := m.fit(23, false, leanToZero).at(bytes); got < 0.95*took || got > 1.05*took {
		t.Errorf("the line says %v s of what took %v s", got, took)
	}
}

// A rail that ended early says "at most". One that held the operations up says what it takes.
func TestWhatHeldTheOperationsUpDecidesALine(t *testing.T) {
	var m model
	m.observe(point{class: 16, bytes: 12e3, seconds: 50e-6, weight: 1, bound: leastBound}, 8)
	m.observe(point{class: 16, bytes: 14e3, seconds: 1.7e-3, weight: 1, bound: 1}, 8)
	if got := m.fit(16, false, leanToZero).at(13e3); got < 1.4e-3 {
		t.Errorf("13 kB, which are nearly as much as took 1.7 ms, take %v s by the line", got)
	}
}
