package p2p

import (
	"container/list"

	"github.com/polyrail/polyrail/collective/op"
)

// key is what messages and receives are looked up by; a receive's may hold wildcards.
type key struct {
	rank op.Rank
	tag  Tag
}

// queues holds one queue for each key that is in use, and none for others.
type queues[T any] map[key]*list.List

func (q queues[T]) push(k key, v T) *list.Element {
	l := q[k]
	if l == nil {
		l = list.New()
		q[k] = l
	}
	return l.PushBack(v)
}

func (q queues[T]) remove(k key, e *list.Element) {
	l := q[k]
	l.Remove(e)
	if l.Len() == 0 {
		delete(q, k)
	}
}

// first is the one that waits longest under the key.
func (q queues[T]) first(k key) (v T, ok bool) {
	if l := q[k]; l != nil {
		return l.Front().Value.(T), true
	}
	return v, false
}

// wildcards are the keys under which a receive for the message can be posted.
func (m *Message[W]) wildcards() []key {
	k := key{m.From, m.Envelope.Tag}
	if k.tag > MaxTag {
		return []key{k}
	}
	return []key{k, {AnySource, k.tag}, {k.rank, AnyTag}, {AnySource, AnyTag}}
}

// post keeps a receive that no message is there for.
func (c *Core[W]) post(r *Recv[W]) {
	c.ticket++
	r.ticket = c.ticket
	r.element = c.posted.push(r.key(), r)
}

func (c *Core[W]) unpost(r *Recv[W]) {
	c.posted.remove(r.key(), r.element)
	r.element = nil
}

// receiver takes the receive that was posted first among those that fit the message.
func (c *Core[W]) receiver(m *Message[W]) *Recv[W] {
	var first *Recv[W]
	for _, k := range m.wildcards() {
		if r, ok := c.posted.first(k); ok && (first == nil || r.ticket < first.ticket) {
			first = r
		}
	}
	if first != nil {
		c.unpost(first)
	}
	return first
}

// keep queues a message that no receive is there for, once for each way to ask for it.
func (c *Core[W]) keep(m *Message[W]) {
	for i, k := range m.wildcards() {
		m.elements[i] = c.stray.push(k, m)
	}
}

func (c *Core[W]) unkeep(m *Message[W]) {
	for i, k := range m.wildcards() {
		c.stray.remove(k, m.elements[i])
		m.elements[i] = nil
	}
}

// kept reports whether the message waits for a receive.
func (m *Message[W]) kept() bool { return m.elements[0] != nil }

// waiting takes the message that entered first among those that fit the receive.
func (c *Core[W]) waiting(r *Recv[W]) *Message[W] {
	m, ok := c.stray.first(r.key())
	if !ok {
		return nil
	}
	c.unkeep(m)
	return m
}
