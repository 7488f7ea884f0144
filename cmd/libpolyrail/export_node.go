//go:build cgo

package main

// #include "polyrail.h"
import "C"

import (
	"unsafe"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/libpolyrail/internal/bridge"
)

//export go_polyrail_node_open
func go_polyrail_node_open(settings *C.char, a *C.polyrail_async, r *C.polyrail_result, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	refreshEnvironment()
	text := ""
	if settings != nil {
		text = C.GoString(settings)
	}
	o, err := lib.OpenNode(text, call(a))
	return finish(o, err, a, r, e)
}

//export go_polyrail_node_close
func go_polyrail_node_close(n C.polyrail_node, a *C.polyrail_async, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	o, err := lib.CloseNode(bridge.Handle(n), call(a))
	return finish(o, err, a, nil, e)
}

//export go_polyrail_node_address
func go_polyrail_node_address(n C.polyrail_node, text *C.char, size C.size_t, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	node, err := lib.Node(bridge.Handle(n))
	if err != nil {
		return fail(err, e)
	}
	return fail(write(text, size, node.GossipAddr()), e)
}

// write puts a text into C's memory.
func write(dst *C.char, size C.size_t, s string) error {
	if dst == nil || C.size_t(len(s)) >= size {
		return argument("a text of %d bytes does not fit into %d", len(s)+1, uint64(size))
	}
	put(unsafe.Slice(dst, int(size)), s)
	return nil
}

//export go_polyrail_node_rails
func go_polyrail_node_rails(n C.polyrail_node, rails *C.polyrail_rail, limit C.int, count *C.int, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	node, err := lib.Node(bridge.Handle(n))
	if err != nil {
		return fail(err, e)
	}
	all := node.Rails()
	if count != nil {
		*count = C.int(len(all))
	}
	for i, dst := range list(rails, min(int(limit), len(all))) {
		r := all[i]
		*dst = C.polyrail_rail{bytes_sent: C.uint64_t(r.BytesSent), bytes_received: C.uint64_t(r.BytesReceived),
			resent_bytes: C.uint64_t(r.ResentBytes), reconnects: C.uint64_t(r.Reconnects),
			link_downs: C.uint64_t(r.LinkDowns), silences: C.uint64_t(r.Silences)}
		if r.Up {
			dst.up = 1
		}
		put(dst.name[:], r.Name)
		put(dst.address[:], r.Addr)
	}
	return C.POLYRAIL_OK
}

// list are the places of a C array.
func list[T any](first *T, n int) []*T {
	if first == nil || n <= 0 {
		return nil
	}
	places := make([]*T, n)
	for i := range places {
		places[i] = (*T)(unsafe.Add(unsafe.Pointer(first), uintptr(i)*unsafe.Sizeof(*first)))
	}
	return places
}

// entries are those of a list that a call needs.
func entries[T any](first *T, n C.int) ([]*T, error) {
	if n < 0 || n > 0 && first == nil {
		return nil, argument("a list of %d at %p", int(n), first)
	}
	return list(first, int(n)), nil
}

//export go_polyrail_comm_form
func go_polyrail_comm_form(n C.polyrail_node, name *C.char, size C.int, a *C.polyrail_async, r *C.polyrail_result, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	if name == nil {
		return finish(none, argument("the name is NULL"), a, r, e)
	}
	o, err := lib.Form(bridge.Handle(n), C.GoString(name), int(size), call(a))
	return finish(o, err, a, r, e)
}

//export go_polyrail_events_open
func go_polyrail_events_open(n C.polyrail_node, events *C.polyrail_events, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	if events == nil {
		return fail(argument("there is no place for the handle"), e)
	}
	h, err := lib.OpenEvents(bridge.Handle(n))
	*events = C.polyrail_events(h)
	return fail(err, e)
}

//export go_polyrail_events_fd
func go_polyrail_events_fd(h C.polyrail_events) C.int {
	return descriptor(lib.EventsDescriptor(bridge.Handle(h)))
}

//export go_polyrail_queue_fd
func go_polyrail_queue_fd(h C.polyrail_queue) C.int {
	return descriptor(lib.QueueDescriptor(bridge.Handle(h)))
}

func descriptor(fd int, err error) C.int {
	if err != nil {
		return -1
	}
	return C.int(fd)
}

// maxTaken bounds what one call takes from a queue.
const maxTaken = 1024

//export go_polyrail_events_take
func go_polyrail_events_take(h C.polyrail_events, dst *C.polyrail_event, limit C.int, count *C.int, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	places := list(dst, min(int(limit), maxTaken))
	events := make([]polyrail.Event, len(places))
	n, err := lib.TakeEvents(bridge.Handle(h), events)
	if count != nil {
		*count = C.int(n)
	}
	for i, v := range events[:n] {
		p := places[i]
		*p = C.polyrail_event{time_ns: C.int64_t(v.Time.UnixNano()), kind: C.int32_t(v.Kind), rank: C.int32_t(v.Rank),
			version: C.uint32_t(v.Version), missed: C.uint64_t(v.Missed)}
		put(p.node[:], v.Node)
		put(p.rail[:], v.Rail)
		put(p.communicator[:], v.Communicator)
		if v.Err != nil {
			put(p.text[:], v.Err.Error())
		}
	}
	return fail(err, e)
}

//export go_polyrail_events_close
func go_polyrail_events_close(h C.polyrail_events, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	return fail(lib.CloseEvents(bridge.Handle(h)), e)
}

//export go_polyrail_queue_open
func go_polyrail_queue_open(queue *C.polyrail_queue, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	if queue == nil {
		return fail(argument("there is no place for the handle"), e)
	}
	h, err := lib.OpenQueue()
	*queue = C.polyrail_queue(h)
	return fail(err, e)
}

//export go_polyrail_queue_take
func go_polyrail_queue_take(h C.polyrail_queue, dst *C.polyrail_completion, limit C.int, count *C.int, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	places := list(dst, min(int(limit), maxTaken))
	ended := make([]bridge.Completion, len(places))
	n, err := lib.TakeCompletions(bridge.Handle(h), ended)
	if count != nil {
		*count = C.int(n)
	}
	for i, v := range ended[:n] {
		*places[i] = C.polyrail_completion{work: C.polyrail_work(v.Work), tag: C.uint64_t(v.Tag),
			code: C.int32_t(bridge.Describe(v.Err).Code)}
	}
	return fail(err, e)
}

//export go_polyrail_queue_close
func go_polyrail_queue_close(h C.polyrail_queue, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	return fail(lib.CloseQueue(bridge.Handle(h)), e)
}
