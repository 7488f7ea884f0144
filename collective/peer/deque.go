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

func (d *deque[T]) popBack() T {
	p := d.at(d.n - 1)
	v := *p
	var zero T
	*p = zero
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

// queue is frames of data that wait, and their bytes. The core has the sum of all of them.
type queue[F any] struct {
	deque[Item[F]]
	bytes   int
	waiting *int // of the core
}

func (q *queue[F]) count(bytes int) {
	q.bytes += bytes
	*q.waiting += bytes
}

func (q *queue[F]) pushBack(it Item[F]) {
	q.count(it.Bytes)
	q.deque.pushBack(it)
}

func (q *queue[F]) pushFront(it Item[F]) {
	q.count(it.Bytes)
	q.deque.pushFront(it)
}

func (q *queue[F]) popFront() Item[F] {
	it := q.deque.popFront()
	q.count(-it.Bytes)
	return it
}

func (q *queue[F]) popBack() Item[F] {
	it := q.deque.popBack()
	q.count(-it.Bytes)
	return it
}

// remove takes out the frames that match, in order.
func (q *queue[F]) remove(match func(*Item[F]) bool, taken func(Item[F])) {
	q.deque.remove(match, func(it Item[F]) {
		q.count(-it.Bytes)
		taken(it)
	})
}
