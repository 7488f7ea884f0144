"""The backend "polyrail" for torch.distributed: importing this module registers it.

    import polyrail.torch
    torch.distributed.init_process_group("polyrail")

Ranks find each other through torch's own store. Rails are POLYRAIL_RAILS, written as on the command
line ("a=tcp:eth1 b=tcp:10.1.0.0/16"), or else every interface that is not loopback.

docs/pytorch.md of the repository has what is supported and what an error looks like.
"""

from __future__ import annotations

import ctypes
import math
import os
import select
import socket
import threading
import time
import uuid
import weakref
from datetime import timedelta
from typing import Any, Callable, Optional, Sequence

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work as _Work
from torch._C._distributed_c10d import _create_work_from_future

from . import _abi
from ._abi import CAsync, CCompletion, CError, COperation, CResult, lib
from ._comm import ANY, Communicator
from ._errors import Canceled, Error, Timeout
from ._node import Node

__all__ = ["ProcessGroup", "failure", "rails"]

_DTYPES = {
    torch.int8: _abi.DTYPES["int8"],
    torch.uint8: _abi.DTYPES["uint8"],
    torch.int32: _abi.DTYPES["int32"],
    torch.int64: _abi.DTYPES["int64"],
    torch.float16: _abi.DTYPES["float16"],
    torch.bfloat16: _abi.DTYPES["bfloat16"],
    torch.float32: _abi.DTYPES["float32"],
    torch.float64: _abi.DTYPES["float64"],
}
_BYTE = _abi.DTYPES["uint8"]
_ReduceOp = dist.ReduceOp
_OPS = [
    (_ReduceOp.SUM, "sum"),
    (_ReduceOp.PRODUCT, "prod"),
    (_ReduceOp.MIN, "min"),
    (_ReduceOp.MAX, "max"),
    (_ReduceOp.BAND, "bitand"),
    (_ReduceOp.BOR, "bitor"),
    (_ReduceOp.BXOR, "bitxor"),
    (_ReduceOp.AVG, "avg"),
]
# Of bools, which are bytes of 0 and 1.
_BOOL_OPS = {"sum": "bitor", "max": "bitor", "bitor": "bitor", "prod": "bitand", "min": "bitand"}
_BOOL_OPS.update(bitand="bitand", bitxor="bitxor")


# Bytes up to which an operation is likely to end while it is polled for. Larger ones are in flight while
# the program goes on.
_SMALL = 32 << 10


class _Flight:
    """A call in flight: what becomes of its outcome, and when it has taken too long."""

    __slots__ = ("then", "limit", "deadline", "work", "late")

    def __init__(self, then: Callable[[Optional[Error], CResult], None], limit: float) -> None:
        self.then, self.limit = then, limit
        self.deadline = time.monotonic() + limit
        self.work = 0  # the library's handle, once it is known
        self.late = False  # it was canceled after its deadline


class _Completions:
    """The thread that ends the works of this process: one, whatever is in flight."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, _Flight] = {}
        self._tag = 0
        self._next = math.inf  # when the thread looks at deadlines again; never after the first of them
        self._earlier = os.eventfd(0)  # is written to where that has become earlier
        queue = ctypes.c_uint64()
        error = CError()
        _abi.check(lib.queue_open(ctypes.byref(queue), ctypes.byref(error)), error)
        self.queue = queue.value
        threading.Thread(target=self._run, name="polyrail completions", daemon=True).start()

    def start(self, function: Callable[..., int], args: tuple, then: Callable[[Optional[Error], CResult], None],
              limit: float, has_result: bool = True, small: bool = False) -> None:
        """Makes a call; then is called with its outcome, on the thread. then holds its memory.

        A small call is polled for, for a moment. If it ends meanwhile, then is called here: to tell the
        thread takes longer than the call. After limit seconds the call ends with a Timeout. A call that
        cannot be made, as on a broken group, or fails in that moment raises its error here.
        """
        flight = _Flight(then, limit)
        with self._lock:
            self._tag += 1
            tag = self._tag
            self._waiting[tag] = flight
            wake = flight.deadline < self._next
            if wake:
                self._next = flight.deadline
        if wake:
            os.eventfd_write(self._earlier, 1)
        async_, result, error = CAsync(self.queue, tag, int(small), 0), CResult(), CError()
        tail = (result, error) if has_result else (error,)
        code = function(*args, ctypes.byref(async_), *map(ctypes.byref, tail))
        if code == _abi.PENDING:
            flight.work = async_.work
            return
        with self._lock:
            del self._waiting[tag]
        _abi.check(code, error)
        then(None, result)

    def _run(self) -> None:
        poll, ended, count = select.poll(), (CCompletion * 64)(), ctypes.c_int()
        poll.register(lib.queue_fd(self.queue), select.POLLIN)
        poll.register(self._earlier, select.POLLIN)
        while True:
            left = self._next - time.monotonic()
            for fd, _ in poll.poll(None if left == math.inf else max(0, min(left, 3600) * 1000)):
                if fd == self._earlier:
                    os.eventfd_read(fd)
            if time.monotonic() >= self._next:
                self._expire()
            lib.queue_take(self.queue, ended, len(ended), ctypes.byref(count), None)
            for c in ended[: count.value]:
                result, error = CResult(), CError()
                code = lib.wait(c.work, 0, ctypes.byref(result), ctypes.byref(error))
                with self._lock:
                    flight = self._waiting.pop(c.tag)
                flight.then(self._error(flight, error) if code else None, result)

    def _error(self, flight: _Flight, e: CError) -> Error:
        error = _abi.error_of(e)
        if flight.late and isinstance(error, Canceled):
            error = Timeout(f"{error}: a timeout of {flight.limit:g} s has passed", seq=error.seq)
        return error

    def _expire(self) -> None:
        """Cancels what is late: the others of a collective call are told, and its group is broken."""
        with self._lock:
            now = time.monotonic()
            late = [f for f in self._waiting.values() if f.deadline <= now and not f.late]
            for f in late:
                f.late = f.work != 0
            left = [f.deadline for f in self._waiting.values() if not f.late]
            # What has no handle yet, since its call has not returned, is looked at again soon.
            self._next = max(min(left, default=math.inf), now + 0.05)
        for f in late:
            if f.work:
                lib.cancel(f.work, None)


_shared_lock = threading.Lock()
_shared: Optional[_Completions] = None
_shared_pid = 0


def _completions() -> _Completions:
    global _shared, _shared_pid
    with _shared_lock:
        if _shared is None or _shared_pid != os.getpid():
            _shared, _shared_pid = _Completions(), os.getpid()
        return _shared


# --- Nodes: one for each world that this process is in. Groups of one world share it.


class _World:
    """A node, and the name of the cluster that the ranks of one job form."""

    def __init__(self, token: str, node: Node) -> None:
        self.token, self.node = token, node
        self.groups = 0


_worlds: dict[str, _World] = {}


def rails() -> list:
    """The rails of this process's nodes, and what they have carried: a list of polyrail.Rail."""
    return [r for world in _worlds.values() for r in world.node.rails]


def _local_address() -> str:
    """An address of this host that the others reach: the one that leads to the master."""
    master = os.environ.get("MASTER_ADDR", "")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.connect((master, 9))  # sends nothing
            return s.getsockname()[0]
    except OSError:
        return "127.0.0.1"


def _rails(address: str) -> list[str]:
    configured = os.environ.get("POLYRAIL_RAILS") or os.environ.get("POLYRAIL_RAIL")
    if configured:
        return configured.split()
    interfaces = [name for _, name in socket.if_nameindex() if name != "lo"]
    if address.startswith("127.") and not interfaces:
        return ["lo=tcp:lo"]
    return ["all=tcp:auto"]


def _join_world(store: Any, rank: int, size: int) -> tuple[_World, str]:
    """Finds the world that all members of a group are in, or makes one of them.

    Each member says which worlds it is in. The first one chooses, and names the communicator.
    """
    store.set(f"polyrail/in/{rank}", ",".join(_worlds) + ";")
    if rank == 0:
        said = [store.get(f"polyrail/in/{r}").decode().rstrip(";").split(",") for r in range(size)]
        common = set(said[0]).intersection(*said[1:]) - {""}
        token = next(iter(common)) if common else uuid.uuid4().hex
        store.set("polyrail/world", f"{token} {uuid.uuid4().hex}")
    token, name = store.get("polyrail/world").decode().split()
    world = _worlds.get(token)
    if world is None:
        address = _local_address()
        join = store.get("polyrail/seed").decode() if rank else None
        node = Node(
            f"rank-{rank:06d}",
            bind=f"{address}:0",
            join=join,
            rails=_rails(address),
            cluster=f"torch-{token}",
            max_in_flight=os.environ.get("POLYRAIL_MAX_IN_FLIGHT") or 64,
        )
        if rank == 0:
            store.set("polyrail/seed", node.address)
        world = _worlds[token] = _World(token, node)
    world.groups += 1
    return world, name


def _leave(world: _World, comm: Communicator) -> None:
    """What becomes of a group that nobody refers to any more."""
    try:
        if comm.error is not None:
            comm.abort()
        comm.close(timeout=5)
    except Error:
        pass  # the others are gone already
    world.groups -= 1
    if world.groups == 0:
        _worlds.pop(world.token, None)
        try:
            world.node.close(timeout=5)
        except Error:
            pass


# --- Tensors.


class _Staged:
    """A tensor as contiguous memory on the CPU: the tensor itself where it is that."""

    def __init__(self, tensor: torch.Tensor, load: bool) -> None:
        self.tensor, self.copy = tensor, None
        if tensor.is_sparse:
            raise ValueError("polyrail takes dense tensors only")
        if tensor.is_cuda:
            self.copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        elif not tensor.is_contiguous():
            self.copy = torch.empty(tensor.shape, dtype=tensor.dtype)
        if self.copy is not None and load:
            self.copy.copy_(tensor)  # of a CUDA tensor: waits for its stream
        self.memory = tensor if self.copy is None else self.copy

    def store(self) -> None:
        """Takes the result to where it belongs."""
        if self.copy is not None:
            self.tensor.copy_(self.copy)


def _flat(tensors: Sequence[torch.Tensor], load: bool) -> torch.Tensor:
    """The elements of all tensors, one after the other."""
    if not tensors:
        raise ValueError("a list of tensors is empty")
    if any(t.dtype != tensors[0].dtype for t in tensors):
        raise ValueError("the tensors of a list have different types")
    if load:
        return torch.cat([t.detach().reshape(-1).cpu() for t in tensors])
    return torch.empty(sum(t.numel() for t in tensors), dtype=tensors[0].dtype)


def _unflat(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    at = 0
    for t in tensors:
        t.copy_(flat[at : at + t.numel()].view(t.shape))
        at += t.numel()


def _bytes(t: torch.Tensor) -> tuple[int, int, int]:
    """A tensor's address, element type and elements. What polyrail has no type for is bytes."""
    number = _DTYPES.get(t.dtype)
    if number:
        return t.data_ptr(), number, t.numel()
    return t.data_ptr(), _BYTE, t.numel() * t.element_size()


def _operator(op: Any, dtype: torch.dtype) -> tuple[str, int]:
    """The name of a reduction, and the element type that it is made on."""
    name = next((n for o, n in _OPS if o == op), None)
    if name is None:
        raise ValueError(f"{op} is not supported by polyrail")
    if dtype == torch.bool:
        if name not in _BOOL_OPS:
            raise ValueError(f"{name} is not defined on bool")
        return _BOOL_OPS[name], _BYTE
    if dtype not in _DTYPES:
        raise ValueError(f"reductions of {dtype} are not supported by polyrail")
    return name, _DTYPES[dtype]


class _State:
    """What became of a work."""

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: Optional[BaseException] = None


_states: weakref.WeakKeyDictionary[Any, _State] = weakref.WeakKeyDictionary()
_wait_in_c = _Work.wait


def _wait(self: Any, *args: Any) -> bool:
    """Work.wait, with the errors of polyrail's works: torch drops those of works made of futures."""
    ok = _wait_in_c(self, *args)
    state = _states.get(self)
    if state is not None and state.error is not None:
        raise state.error
    return ok


_Work.wait = _wait


class _Receive:
    """The work of a receive from any source. torch asks it, and it alone, for the source."""

    def __init__(self, work: Any, source: list[int]) -> None:
        self._work, self._source = work, source

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)

    def _source_rank(self) -> int:
        return self._source[0]


class ProcessGroup(dist.ProcessGroup):
    """A process group on a communicator of polyrail."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        world, name = _join_world(store, rank, size)
        try:
            comm = world.node.communicator(name, size, timeout=timeout.total_seconds())
        except BaseException:
            world.groups -= 1
            raise
        if comm.rank != rank:
            raise RuntimeError(f"rank {rank} of torch is rank {comm.rank} of polyrail")
        self.comm = comm
        self.failure: Optional[Error] = None
        """The first error of an operation of this group, with rank, node, rail and seq."""
        self._limit = timeout.total_seconds()
        self._lock = threading.Lock()
        self._done = _completions()
        self._end = weakref.finalize(self, _leave, world, comm)
        self._end.atexit = True

    def getBackendName(self) -> str:
        """What torch calls the backend."""
        return "polyrail"

    # --- How operations are made.

    def _begin(self, function: Callable[..., int], args: tuple, value: Any, then: Callable[[CResult], None],
               has_result: bool = True, small: bool = False) -> Any:
        """Makes a call and returns its Work, whose result is value."""
        future: torch.futures.Future = torch.futures.Future()
        # The derived future carries an exception to C++; the first would carry it to Python only.
        work = _create_work_from_future(future.then(_value))
        state = _states[work] = _State()
        group = weakref.ref(self)

        def end(error: Optional[BaseException], result: CResult) -> None:
            if error is None:
                try:
                    then(result)
                    future.set_result(value)
                    return
                except Exception as e:  # a copy of the result to where it belongs failed
                    error = e
            this = group()
            if this is not None and this.failure is None and isinstance(error, Error):
                this.failure = error
            state.error = error
            future.set_exception(error)

        try:
            self._done.start(function, args, end, self._limit, has_result, small)
        except Error as e:
            self.failure = self.failure or e
            raise
        return work

    def _run(self, kind: int, dst: Optional[torch.Tensor], src: Optional[torch.Tensor], value: Any,
             then: Callable[[], None], op: Any = None, root: int = 0,
             counts: Optional[Sequence[int]] = None,
             exchange: Optional[tuple[Sequence[int], Sequence[int]]] = None) -> Any:
        o = COperation()
        o.size, o.kind, o.root = ctypes.sizeof(COperation), kind, root
        dtype = (dst if dst is not None else src).dtype  # type: ignore[union-attr]
        scale = 1 if dtype in _DTYPES else torch.empty(0, dtype=dtype).element_size()
        if op is not None:
            name, o.dtype = _operator(op, dtype)
            o.op = _abi.OPS[name]
        if dst is not None:
            o.dst, o.dtype, o.dst_count = _bytes(dst)
        if src is not None:
            o.src, o.dtype, o.src_count = _bytes(src)
        arrays = []
        def array(list_: Sequence[int]) -> int:
            arrays.append((ctypes.c_int64 * len(list_))(*(n * scale for n in list_)))
            return ctypes.addressof(arrays[-1])
        if counts is not None:
            o.counts = array(counts)
        if exchange is not None:
            o.send_counts, o.recv_counts = array(exchange[0]), array(exchange[1])

        def ended(_: CResult, memory: Any = (dst, src)) -> None:  # holds the memory until the end
            then()

        small = max(o.dst_count, o.src_count) * _abi.SIZES[o.dtype] <= _SMALL
        with self._lock:
            return self._begin(lib.run, (self.comm._handle, ctypes.byref(o)), value, ended, small=small)

    # --- Collectives, by torch's names.

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        """Replaces each element by its combination on all ranks."""
        if isinstance(tensors, torch.Tensor):
            tensors = [tensors]
        if len(tensors) != 1:
            raise ValueError("polyrail takes one tensor, on one device, for each rank")
        t = _Staged(tensors[0], True)
        op = _op_of(opts)
        return self._run(_abi.ALLREDUCE, t.memory, t.memory, tensors, t.store, op)

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        """allreduce of several tensors as one operation."""
        flat = _flat(tensors, True)
        return self._run(_abi.ALLREDUCE, flat, flat, tensors, lambda: _unflat(flat, tensors), _op_of(opts))

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        """Copies the root's tensor to all."""
        if isinstance(tensors, torch.Tensor):
            tensors = [tensors]
        root = opts.rootRank if opts is not None else 0
        t = _Staged(tensors[0], self.rank() == root)
        return self._run(_abi.BROADCAST, t.memory, t.memory, tensors, t.store, root=root)

    def reduce(self, tensors: Sequence[torch.Tensor], opts: Any) -> Any:
        """Puts the combination into the root's tensor."""
        mine = self.rank() == opts.rootRank
        t = _Staged(tensors[0], True)
        dst = t.memory if mine else None
        return self._run(_abi.REDUCE, dst, t.memory, tensors, t.store if mine else _nothing, opts.reduceOp,
                         opts.rootRank)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Puts the tensors of all ranks into a list."""
        out = outputs[0]
        if len(out) != self.size():
            raise ValueError(f"{len(out)} tensors for {self.size()} ranks")
        src, flat = _Staged(inputs[0], True), _flat(out, False)
        return self._run(_abi.ALLGATHER, flat, src.memory, outputs, lambda: _unflat(flat, out),
                         counts=[t.numel() for t in out])

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """allgather of several tensors as one operation. outputs: by rank, then by tensor."""
        src = _flat(inputs, True)
        every = [t for by_rank in outputs for t in by_rank]
        flat = _flat(every, False)
        return self._run(_abi.ALLGATHER, flat, src, outputs, lambda: _unflat(flat, every))

    def _allgather_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        """Puts the tensors of all ranks into one."""
        dst, src = _Staged(output, False), _Staged(input, True)
        return self._run(_abi.ALLGATHER, dst.memory, src.memory, output, dst.store)

    def gather(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        """Puts the tensors of all ranks into the root's list."""
        src = _Staged(inputs[0], True)
        if self.rank() != opts.rootRank:
            return self._run(_abi.GATHER, None, src.memory, [], _nothing, root=opts.rootRank)
        out = outputs[0]
        flat = _flat(out, False)
        return self._run(_abi.GATHER, flat, src.memory, outputs, lambda: _unflat(flat, out), root=opts.rootRank)

    def scatter(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        """Gives each rank a tensor of the root's list."""
        dst = _Staged(outputs[0], False)
        src = _flat(inputs[0], True) if self.rank() == opts.rootRank else None
        return self._run(_abi.SCATTER, dst.memory, src, outputs, dst.store, root=opts.rootRank)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        """Puts the combination of the rank's tensor in all lists into its output."""
        dst, src = _Staged(outputs[0], False), _flat(inputs[0], True)
        return self._run(_abi.REDUCESCATTER, dst.memory, src, outputs, dst.store, opts.reduceOp,
                         counts=[t.numel() for t in inputs[0]])

    def _reduce_scatter_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        """reduce_scatter of one tensor's equal parts."""
        dst, src = _Staged(output, False), _Staged(input, True)
        return self._run(_abi.REDUCESCATTER, dst.memory, src.memory, output, dst.store, _op_of(opts))

    def alltoall_base(self, output: torch.Tensor, input: torch.Tensor, output_split_sizes: Any,
                      input_split_sizes: Any, opts: Any = None) -> Any:
        """Exchanges the parts of one tensor; sizes are of its first dimension."""
        dst, src = _Staged(output, False), _Staged(input, True)
        if not output_split_sizes and not input_split_sizes:
            return self._run(_abi.ALLTOALL, dst.memory, src.memory, output, dst.store)
        counts = [self._parts(input, input_split_sizes), self._parts(output, output_split_sizes)]
        return self._run(_abi.ALLTOALLV, dst.memory, src.memory, output, dst.store,
                         exchange=(counts[0], counts[1]))

    def _parts(self, t: torch.Tensor, sizes: Sequence[int]) -> list[int]:
        rows = t.shape[0] if t.dim() else 1
        if not sizes:
            if rows % self.size():
                raise ValueError("Tensor's dim 0 does not divide equally across group size")
            sizes = [rows // self.size()] * self.size()
        if sum(sizes) != rows:
            raise ValueError("Split sizes doesn't match total dim 0 size")
        return [n * (t.numel() // rows if rows else 0) for n in sizes]

    def alltoall(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None) -> Any:
        """Sends a tensor to each rank, and receives one from each."""
        src, flat = _flat(inputs, True), _flat(outputs, False)
        counts = [t.numel() for t in inputs], [t.numel() for t in outputs]
        return self._run(_abi.ALLTOALLV, flat, src, outputs, lambda: _unflat(flat, outputs), exchange=counts)

    def barrier(self, opts: Any = None) -> Any:
        """Ends when all ranks have called it."""
        with self._lock:
            return self._begin(lib.barrier, (self.comm._handle,), [], _nothing, has_result=False, small=True)

    # --- Messages.

    def send(self, tensors: Sequence[torch.Tensor], dst: int, tag: int = 0) -> Any:
        """Sends a tensor."""
        t = _Staged(tensors[0], True)
        address, dtype, count = _bytes(t.memory)

        def ended(_: CResult, memory: Any = t) -> None:
            pass

        args = (self.comm._handle, address, count, dtype, dst, tag)
        return self._begin(lib.send, args, tensors, ended, has_result=False)

    def recv(self, tensors: Sequence[torch.Tensor], src: int, tag: int = 0) -> Any:
        """Receives a tensor."""
        return self._recv(tensors, src, tag, [src])

    def recv_anysource(self, tensors: Sequence[torch.Tensor], tag: int = 0) -> Any:
        """Receives a tensor from any rank; the work knows from which."""
        source = [ANY]
        return _Receive(self._recv(tensors, ANY, tag, source), source)

    def _recv(self, tensors: Sequence[torch.Tensor], src: int, tag: int, source: list[int]) -> Any:
        t = _Staged(tensors[0], False)
        address, dtype, count = _bytes(t.memory)

        def ended(result: CResult) -> None:
            source[0] = result.source
            t.store()

        return self._begin(lib.recv, (self.comm._handle, address, count, dtype, src, tag), tensors, ended)

    def _start_coalescing(self) -> None:
        """Messages that are started together need no help: none waits for another."""

    def _end_coalescing(self, reqs: Any) -> None:
        """See _start_coalescing."""


def _op_of(opts: Any) -> Any:
    return opts.reduceOp if opts is not None else _ReduceOp.SUM


def _nothing(_: Any = None) -> None:
    pass


def _value(future: torch.futures.Future) -> Any:
    return future.wait()  # raises what set_exception was given


def failure(group: Optional[dist.ProcessGroup] = None) -> Optional[Error]:
    """The first error of a group's operations, typed; None if there was none.

    Where an error comes out of C++, as of DDP's backward pass, it is a RuntimeError with the text only.
    """
    pg = group if group is not None else dist.distributed_c10d._get_default_group()
    return getattr(pg, "failure", None)


def _create(store: Any, rank: int, size: int, timeout: timedelta) -> ProcessGroup:
    return ProcessGroup(store, rank, size, timeout)


try:
    dist.Backend.register_backend("polyrail", _create, devices=["cpu", "cuda"])
except TypeError:  # torch before 2.0
    dist.Backend.register_backend("polyrail", _create)
