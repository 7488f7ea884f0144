//go:build cgo

package main

// #include "polyrail.h"
import "C"

import (
	"time"
	"unsafe"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/libpolyrail/internal/bridge"
)

//export go_polyrail_comm_sub
func go_polyrail_comm_sub(c C.polyrail_comm, ranks *C.int, count C.int, a *C.polyrail_async, r *C.polyrail_result, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	listed, err := entries(ranks, count)
	if err != nil {
		return finish(none, err, a, r, e)
	}
	members := make([]int, 0, len(listed))
	for _, rank := range listed {
		members = append(members, int(*rank))
	}
	o, err := lib.Sub(bridge.Handle(c), members, call(a))
	return finish(o, err, a, r, e)
}

//export go_polyrail_comm_split
func go_polyrail_comm_split(c C.polyrail_comm, color, key C.int, a *C.polyrail_async, r *C.polyrail_result, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	o, err := lib.Split(bridge.Handle(c), int(color), int(key), call(a))
	return finish(o, err, a, r, e)
}

//export go_polyrail_comm_dup
func go_polyrail_comm_dup(c C.polyrail_comm, a *C.polyrail_async, r *C.polyrail_result, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	o, err := lib.Dup(bridge.Handle(c), call(a))
	return finish(o, err, a, r, e)
}

//export go_polyrail_comm_shrink
func go_polyrail_comm_shrink(c C.polyrail_comm, a *C.polyrail_async, r *C.polyrail_result, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	o, err := lib.Shrink(bridge.Handle(c), call(a))
	return finish(o, err, a, r, e)
}

//export go_polyrail_comm_close
func go_polyrail_comm_close(c C.polyrail_comm, a *C.polyrail_async, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	o, err := lib.CloseComm(bridge.Handle(c), call(a))
	return finish(o, err, a, nil, e)
}

//export go_polyrail_comm_abort
func go_polyrail_comm_abort(c C.polyrail_comm, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	return fail(lib.Abort(bridge.Handle(c)), e)
}

//export go_polyrail_comm_status
func go_polyrail_comm_status(c C.polyrail_comm, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	comm, err := lib.Comm(bridge.Handle(c))
	if err == nil {
		err = comm.Err()
	}
	return fail(err, e)
}

//export go_polyrail_comm_rank
func go_polyrail_comm_rank(c C.polyrail_comm) C.int {
	comm, err := lib.Comm(bridge.Handle(c))
	if err != nil {
		return -1
	}
	return C.int(comm.Rank())
}

//export go_polyrail_comm_size
func go_polyrail_comm_size(c C.polyrail_comm) C.int {
	comm, err := lib.Comm(bridge.Handle(c))
	if err != nil {
		return -1
	}
	return C.int(comm.Size())
}

//export go_polyrail_comm_node
func go_polyrail_comm_node(c C.polyrail_comm, rank C.int, text *C.char, size C.size_t, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	comm, err := lib.Comm(bridge.Handle(c))
	if err != nil {
		return fail(err, e)
	}
	nodes := comm.Nodes()
	if rank < 0 || int(rank) >= len(nodes) {
		return fail(argument("there is no rank %d: they are 0 … %d", int(rank), len(nodes)-1), e)
	}
	return fail(write(text, size, nodes[rank]), e)
}

//export go_polyrail_run
func go_polyrail_run(c C.polyrail_comm, p *C.polyrail_operation, a *C.polyrail_async, r *C.polyrail_result, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	comm, err := lib.Comm(bridge.Handle(c)) // first: polyrail.h multiplies by its size, or by -1
	if err != nil {
		return finish(none, err, a, r, e)
	}
	op, opts, err := operation(comm, p)
	if err != nil {
		return finish(none, err, a, r, e)
	}
	o, err := lib.Collective(bridge.Handle(c), op, call(a), opts...)
	return finish(o, err, a, r, e)
}

//export go_polyrail_batch
func go_polyrail_batch(c C.polyrail_comm, buffers *C.polyrail_buffer, count, dtype, code C.int, a *C.polyrail_async, r *C.polyrail_result, e *C.polyrail_error) (result C.int) {
	defer recovered(&result, e)
	op, err := operator(C.int32_t(code))
	if err != nil {
		return finish(none, err, a, r, e)
	}
	elements, err := elementType(dtype)
	if err != nil {
		return finish(none, err, a, r, e)
	}
	listed, err := entries(buffers, count)
	if err != nil {
		return finish(none, err, a, r, e)
	}
	batch := polyrail.Batch{DType: elements, Op: op}
	for _, b := range listed {
		buf, err := memory(b.data, b.count, elements, false)
		if err != nil {
			return finish(none, err, a, r, e)
		}
		batch.Buffers = append(batch.Buffers, buf)
	}
	o, err := lib.Batch(bridge.Handle(c), batch, call(a))
	return finish(o, err, a, r, e)
}

//export go_polyrail_barrier
func go_polyrail_barrier(c C.polyrail_comm, a *C.polyrail_async, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	o, err := lib.Barrier(bridge.Handle(c), call(a))
	return finish(o, err, a, nil, e)
}

// message is the memory of a message.
func message(data unsafe.Pointer, count C.uint64_t, dtype C.int) ([]byte, polyrail.DType, error) {
	elements, err := elementType(dtype)
	if err != nil {
		return nil, 0, err
	}
	buf, err := memory(data, count, elements, false)
	return buf, elements, err
}

//export go_polyrail_send
func go_polyrail_send(c C.polyrail_comm, data unsafe.Pointer, count C.uint64_t, dtype, to, tag C.int, a *C.polyrail_async, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	buf, elements, err := message(data, count, dtype)
	if err != nil {
		return finish(none, err, a, nil, e)
	}
	o, err := lib.Send(bridge.Handle(c), buf, elements, int(to), int(tag), call(a))
	return finish(o, err, a, nil, e)
}

//export go_polyrail_recv
func go_polyrail_recv(c C.polyrail_comm, data unsafe.Pointer, count C.uint64_t, dtype, from, tag C.int, a *C.polyrail_async, r *C.polyrail_result, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	buf, elements, err := message(data, count, dtype)
	if err != nil {
		return finish(none, err, a, r, e)
	}
	o, err := lib.Recv(bridge.Handle(c), buf, elements, int(from), int(tag), call(a))
	return finish(o, err, a, r, e)
}

//export go_polyrail_wait
func go_polyrail_wait(w C.polyrail_work, timeout C.int64_t, r *C.polyrail_result, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	result, ended, err := lib.Wait(bridge.Handle(w), time.Duration(timeout))
	if err == nil && !ended {
		return C.POLYRAIL_PENDING
	}
	fill(r, result)
	return fail(err, e)
}

//export go_polyrail_cancel
func go_polyrail_cancel(w C.polyrail_work, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	return fail(lib.Cancel(bridge.Handle(w)), e)
}

//export go_polyrail_expire
func go_polyrail_expire(w C.polyrail_work, after C.int64_t, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	return fail(lib.Expire(bridge.Handle(w), time.Duration(after)), e)
}

//export go_polyrail_forget
func go_polyrail_forget(w C.polyrail_work, e *C.polyrail_error) (code C.int) {
	defer recovered(&code, e)
	return fail(lib.Forget(bridge.Handle(w)), e)
}
