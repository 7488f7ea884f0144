"""The backend "polyrail" for torch.distributed: importing this module registers it.

    import polyrail.torch
    torch.distributed.init_process_group("polyrail")

Ranks find each other through torch's own store. Rails are POLYRAIL_RAILS, written as on the command
line ("a=tcp:eth1 b=tcp:10.1.0.0/16"), or else every interface that is not loopback.

docs/pytorch.md of the repository has what is supported and what an error looks like.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from datetime import timedelta
from typing import Any, Callable, Optional, Sequence

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work as _Work
from torch._C._distributed_c10d import _create_work_from_future  # type: ignore[attr-defined]

from . import _abi
from ._abi import COperation, CResult, lib
from ._comm import ANY
from ._completions import completions
from ._errors import Error
from ._spec import whole
from ._tensors import DTYPES, Staged, bytes_of, flat_of, operator_of, unflat
from ._world import join_world, leave, rails, release

__all__ = ["ProcessGroup", "failure", "rails"]

# Bytes up to which an operation is likely to end while it is polled for. Larger ones are in flight while
# the program goes on.
_SMALL = 32 << 10


class _State:
    """What became of a work."""

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: Optional[BaseException] = None


_states: weakref.WeakKeyDictionary[Any, _State] = weakref.WeakKeyDictionary()
_wait_in_c = _Work.wait


def _wait(self: Any, *args: Any, **kwargs: Any) -> bool:
    """Work.wait, with the errors of polyrail's works: torch drops those of works made of futures."""
    ok = _wait_in_c(self, *args, **kwargs)
    state = _states.get(self)
    if state is not None and state.error is not None:
        raise state.error
    return ok


_Work.wait = _wait  # type: ignore[assignment]


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
        super().__init__(rank, size)  # type: ignore[call-arg]
        world, name = join_world(store, rank, size)
        try:
            comm = world.node.communicator(name, size, timeout=timeout.total_seconds())
        except BaseException:
            release(world)
            raise
        if comm.rank != rank:
            raise RuntimeError(f"rank {rank} of torch is rank {comm.rank} of polyrail")
        self.comm = comm
        self.failure: Optional[Error] = None
        """The first error of an operation of this group, with rank, node, rail and seq."""
        self._limit = timeout.total_seconds()
        self._lock = threading.Lock()
        self._done = completions()
        self._end = weakref.finalize(self, leave, world, comm)
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
            if this is not None and isinstance(error, Error):
                this._failed(error)
            state.error = error
            future.set_exception(error)

        try:
            self._done.start(function, args, end, self._limit, has_result, small)
        except Error as e:
            self._failed(e)
            raise
        return work

    def _failed(self, error: Error) -> None:
        """Notes the first error. Operations in flight fail together, and are told of in any order."""
        first = self.failure
        if first is None or (error.seq and first.seq and error.seq < first.seq):
            self.failure = error

    def _run(self, kind: int, dst: Optional[torch.Tensor], src: Optional[torch.Tensor], value: Any,
             then: Callable[[], None], op: Any = None, root: int = 0,
             counts: Optional[Sequence[int]] = None,
             exchange: Optional[tuple[Sequence[int], Sequence[int]]] = None) -> Any:
        if dst is not None and src is not None and dst.dtype != src.dtype:
            # The library gets one type for both, and would write behind the end of the smaller one.
            raise ValueError(f"an output of {dst.dtype} and an input of {src.dtype}: both must be of one type")
        o = COperation()
        o.size, o.kind, o.root = ctypes.sizeof(COperation), kind, root
        dtype = (dst if dst is not None else src).dtype  # type: ignore[union-attr]
        scale = 1 if dtype in DTYPES else torch.empty(0, dtype=dtype).element_size()
        if op is not None:
            name, o.dtype = operator_of(op, dtype)
            o.op = _abi.OPS[name]
        if dst is not None:
            o.dst, o.dtype, o.dst_count = bytes_of(dst)
        if src is not None:
            o.src, o.dtype, o.src_count = bytes_of(src)
        arrays = []
        def array(list_: Sequence[int]) -> int:
            if len(list_) != self.size():  # the library reads as many
                raise ValueError(f"{len(list_)} parts for {self.size()} ranks")
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

    # --- Collectives, by torch's names. Its stubs have a second form of some that torch never calls.

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        """Replaces each element by its combination on all ranks."""
        if isinstance(tensors, torch.Tensor):
            tensors = [tensors]
        if len(tensors) != 1:
            raise ValueError("polyrail takes one tensor, on one device, for each rank")
        t = Staged(tensors[0], True)
        op = _op_of(opts)
        return self._run(_abi.ALLREDUCE, t.memory, t.memory, tensors, t.store, op)

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        """allreduce of several tensors as one operation."""
        flat = flat_of(tensors, True)
        return self._run(_abi.ALLREDUCE, flat, flat, tensors, lambda: unflat(flat, tensors), _op_of(opts))

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        """Copies the root's tensor to all."""
        if isinstance(tensors, torch.Tensor):
            tensors = [tensors]
        root = opts.rootRank if opts is not None else 0
        sends = self.rank() == root  # then the tensor is only read
        t = Staged(tensors[0], sends)
        then: Callable[[], None] = t.store
        if sends:
            then = _nothing
        return self._run(_abi.BROADCAST, t.memory, t.memory, tensors, then, root=root)

    def reduce(self, tensors: Sequence[torch.Tensor], opts: Any) -> Any:  # type: ignore[override]
        """Puts the combination into the root's tensor."""
        t = Staged(tensors[0], True)
        if self.rank() == opts.rootRank:
            return self._run(_abi.REDUCE, t.memory, t.memory, tensors, t.store, opts.reduceOp, opts.rootRank)
        return self._run(_abi.REDUCE, None, t.memory, tensors, _nothing, opts.reduceOp, opts.rootRank)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Puts the tensors of all ranks into a list."""
        out = outputs[0]
        src, flat = Staged(inputs[0], True), flat_of(out, False)
        return self._run(_abi.ALLGATHER, flat, src.memory, outputs, lambda: unflat(flat, out),
                         counts=[t.numel() for t in out])

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """allgather of several tensors as one operation. outputs: by rank, then by tensor."""
        src = flat_of(inputs, True)
        for own, *parts in zip(inputs, *outputs, strict=True):
            self._fit(parts, own)
        every = [t for by_rank in outputs for t in by_rank]
        flat = flat_of(every, False)
        return self._run(_abi.ALLGATHER, flat, src, outputs, lambda: unflat(flat, every))

    def _allgather_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        """Puts the tensors of all ranks into one."""
        dst, src = Staged(output, False), Staged(input, True)
        return self._run(_abi.ALLGATHER, dst.memory, src.memory, [output], dst.store)

    def gather(self, outputs: Any, inputs: Any, opts: Any) -> Any:  # type: ignore[override]
        """Puts the tensors of all ranks into the root's list."""
        src = Staged(inputs[0], True)
        if self.rank() != opts.rootRank:
            return self._run(_abi.GATHER, None, src.memory, [], _nothing, root=opts.rootRank)
        out = outputs[0]
        self._fit(out, inputs[0])
        flat = flat_of(out, False)
        return self._run(_abi.GATHER, flat, src.memory, outputs, lambda: unflat(flat, out), root=opts.rootRank)

    def scatter(self, outputs: Any, inputs: Any, opts: Any) -> Any:  # type: ignore[override]
        """Gives each rank a tensor of the root's list."""
        dst, src = Staged(outputs[0], False), None
        if self.rank() == opts.rootRank:
            self._fit(inputs[0], outputs[0])
            src = flat_of(inputs[0], True)
        return self._run(_abi.SCATTER, dst.memory, src, outputs, dst.store, root=opts.rootRank)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any) -> Any:  # type: ignore[override]
        """Puts the combination of the rank's tensor in all lists into its output."""
        dst, src = Staged(outputs[0], False), flat_of(inputs[0], True)
        return self._run(_abi.REDUCESCATTER, dst.memory, src, outputs, dst.store, opts.reduceOp,
                         counts=[t.numel() for t in inputs[0]])

    def _reduce_scatter_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        """reduce_scatter of one tensor's equal parts."""
        dst, src = Staged(output, False), Staged(input, True)
        return self._run(_abi.REDUCESCATTER, dst.memory, src.memory, [output], dst.store, _op_of(opts))

    def alltoall_base(self, output: torch.Tensor, input: torch.Tensor, output_split_sizes: Any,
                      input_split_sizes: Any, opts: Any = None) -> Any:
        """Exchanges the parts of one tensor; sizes are of its first dimension."""
        dst, src = Staged(output, False), Staged(input, True)
        counts = self._parts(input, input_split_sizes), self._parts(output, output_split_sizes)
        if not output_split_sizes and not input_split_sizes:
            return self._run(_abi.ALLTOALL, dst.memory, src.memory, [output], dst.store)
        return self._run(_abi.ALLTOALLV, dst.memory, src.memory, [output], dst.store, exchange=counts)

    def _fit(self, parts: Sequence[torch.Tensor], own: torch.Tensor) -> None:
        """Refuses parts that are not as many as ranks, or not as large as the rank's own."""
        sizes = [t.numel() for t in parts]
        if sizes != [own.numel()] * self.size():
            raise ValueError(f"tensors of {sizes} elements for {self.size()} ranks with {own.numel()} each")

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
        src, flat = flat_of(inputs, True), flat_of(outputs, False)
        counts = [t.numel() for t in inputs], [t.numel() for t in outputs]
        return self._run(_abi.ALLTOALLV, flat, src, outputs, lambda: unflat(flat, outputs), exchange=counts)

    def barrier(self, opts: Any = None) -> Any:
        """Ends when all ranks have called it."""
        with self._lock:
            return self._begin(lib.barrier, (self.comm._handle,), [], _nothing, has_result=False, small=True)

    # --- Messages.

    def send(self, tensors: Sequence[torch.Tensor], dst: int, tag: int = 0) -> Any:
        """Sends a tensor."""
        t = Staged(tensors[0], True)
        address, dtype, count = bytes_of(t.memory)

        def ended(_: CResult, memory: Any = t) -> None:
            pass

        args = (self.comm._handle, address, count, dtype, whole("dst", dst), _tag(tag))
        return self._begin(lib.send, args, tensors, ended, has_result=False)

    def recv(self, tensors: Sequence[torch.Tensor], src: int, tag: int = 0) -> Any:
        """Receives a tensor."""
        return self._recv(tensors, src, tag, [src])

    def recv_anysource(self, tensors: Sequence[torch.Tensor], tag: int = 0) -> Any:
        """Receives a tensor from any rank; the work knows from which."""
        source = [ANY]
        return _Receive(self._recv(tensors, ANY, tag, source), source)

    def _recv(self, tensors: Sequence[torch.Tensor], src: int, tag: int, source: list[int]) -> Any:
        t = Staged(tensors[0], True)  # a message may be shorter, and the rest stays as it was
        address, dtype, count = bytes_of(t.memory)

        def ended(result: CResult) -> None:
            source[0] = result.source
            t.store()

        args = (self.comm._handle, address, count, dtype, whole("src", src), _tag(tag))
        return self._begin(lib.recv, args, tensors, ended)

    def _start_coalescing(self) -> None:
        """Messages that are started together need no help: none waits for another."""

    def _end_coalescing(self, reqs: Any) -> None:
        """See _start_coalescing."""


def _op_of(opts: Any) -> Any:
    return opts.reduceOp if opts is not None else dist.ReduceOp.SUM


def _tag(tag: int) -> int:
    if not 0 <= tag <= _abi.MAX_TAG:
        raise ValueError(f"tag is {tag}, and must be from 0 to {_abi.MAX_TAG}")
    return tag


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
    dist.Backend.register_backend("polyrail", _create, devices=["cpu", "cuda"])  # type: ignore[call-arg]
except TypeError:  # torch before 2.0
    dist.Backend.register_backend("polyrail", _create)
