package peer

// deque is a double-ended queue in a ring that grows as needed and is kept.
type deque[T any] struct {
	buf  []T // its length is a power of two, or 0
	head int
	n    int
}

func (d *deque[T]) len() int { return d.n }

// at returns the i-th element from the front.
func (d *deque[T]) at(i int) *T { return &d.buf[(d.head+i)&(len(d.buf)-1)] }

func (d *deque[T]) pushBack(v T) {
	d.room()
	d.n++
	*d.at(d.n - 1) = v
}

func (d *deque[T]) pushFront(v T) {
	d.room()
	d.head = (d.head - 1) & (len(d.buf) - 1)
	d.n++
	*d.at(0) = v
}

func (d *deque[T]) popFront() T {
	p := d.at(0)
	v := *p
	var zero T
	*p = zero // the ring must not keep a frame alive
	d.head = (d.head + 1) & (len(d.buf) - 1)
	d.n--
	return v
}

// remove takes out the elements that match, in order.
func (d *deque[T]) remove(match func(*T) bool, taken func(T)) {
	for range d.n {
		v := d.popFront()
		if match(&v) {
			taken(v)
		} else {
			d.pushBack(v)
		}
	}
}

func (d *deque[T]) room() {
	if d.n < len(d.buf) {
		return
	}
	grown := make([]T, max(8, 2*len(d.buf)))
	for i := range d.n {
		grown[i] = *d.at(i)
	}
	d.buf, d.head = grown, 0
}
