package schedule

import "github.com/polyrail/polyrail/collective/op"

// allToAllBruck hands parts on in steps of 1, 2, 4, … (Bruck et al., 1997). What a rank has for
// the one i beyond it is its block i, and travels i ranks: in step k by 2^k, if that bit of i is
// set, together with all others that do. ⌈log₂ n⌉ steps and as many frames of each rank, where
// the direct way takes n-1; each byte travels up to log₂ n times. For small operations.
func (b *builder) allToAllBruck() {
	n, r := b.p.N, int(b.p.Rank)
	values := make([]Value, n) // by block
	for i := range n {
		values[i] = b.begin(Block{Part: i, Source: (r + i) % n, Target: (r - i + n) % n})
	}
	var packs []Value
	for step := 0; 1<<step < n; step++ {
		b.p.Steps = step + 1
		var moved []int
		var parts []Value
		for i := range n {
			if i>>step&1 == 1 {
				moved, parts = append(moved, i), append(parts, values[i])
			}
		}
		pack := b.pack(moved, parts)
		packs = append(packs, pack)
		b.sendTo(0, step, op.Rank((r+1<<step)%n), pack)
		got := b.recvWide(0, step, op.Rank((r-1<<step+n)%n), moved)
		for _, i := range moved {
			values[i] = got
		}
	}
	for i, v := range values { // in place it lies where another block was read
		b.block = i
		final := b.copyFinal(v)
		b.p.Code[final].After = packs
	}
}
