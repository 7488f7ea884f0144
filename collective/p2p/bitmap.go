package p2p

// bitmap says which granules of a message have a place.
type bitmap []uint64

func newBitmap(granules int) bitmap { return make(bitmap, (granules+63)/64) }

// claim marks a part, unless some of it is marked.
func (b bitmap) claim(r Ref) bool {
	first, count := r.granules()
	for i := first; i < first+count; i++ {
		if b[i/64]>>(i%64)&1 == 1 {
			return false
		}
	}
	for i := first; i < first+count; i++ {
		b[i/64] |= 1 << (i % 64)
	}
	return true
}

func (b bitmap) free(r Ref) {
	first, count := r.granules()
	for i := first; i < first+count; i++ {
		b[i/64] &^= 1 << (i % 64)
	}
}
