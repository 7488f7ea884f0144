"""Communicators: collective calls, and messages between two ranks."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Optional, Sequence

from . import _abi
from ._abi import CError, check, lib, run
from ._buffer import view
from ._errors import Closed, Error
from ._forms import blocking, prepared, started
from ._spec import BATCH, NO_OP, Spec, call_of, spec_of, whole, wholes
from ._work import Call, Closable, Work, call, finish, flying, go_on

ANY = -1
"""Any source, any tag."""


class Status(NamedTuple):
    """Which message a receive took. count is in elements."""

    source: int
    tag: int
    count: int  # type: ignore[assignment] # of a tuple, it is a method


class Uneven(NamedTuple):
    """What became of the operations in flight when a communicator was shrunk, by seq.

    Those before first were finished by all members, those after last by none, and those between by
    some. first > last: there are none of these.
    """

    first: int
    last: int


class Communicator(Closable):
    """A group of nodes that call collectives together, all in the same order.

    Threads that share a communicator must order their calls, or use one each (dup). An operation
    that fails breaks its communicator: what is in flight ends with the first cause, and so do later
    calls. Buffers of in-place operations are undefined then.

    Of all methods: a buffer has the buffer protocol, is contiguous, and is used in place. dtype says
    what buffers hold where they cannot say so themselves: "bfloat16", "float32loc". op is "sum",
    "prod", "min", "max", "avg", "bitand", "bitor", "bitxor", "minloc" or "maxloc"; the sum of bools is
    their "bitor". name is compared between ranks, so that calls in different orders are found out.
    Lengths and counts are in elements. Without counts all ranks give equally long buffers.

    What cannot be called at all, as an unknown op, is a TypeError or ValueError and has no effect.
    Lengths that don't fit, or a root that is no rank, end the call on all ranks with an Error.
    """

    def __init__(self, handle: int) -> None:
        """Communicators come from Node.communicator, dup, sub, split and shrink."""
        self._open = handle
        self.rank: int = lib.comm_rank(handle)
        """This process's number: 0 to size - 1."""
        self.size: int = lib.comm_size(handle)
        """The number of members."""

    def __repr__(self) -> str:
        return f"<polyrail.Communicator rank {self.rank} of {self.size}>"

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if kind is None:
            self.close()
        else:
            flying.abort(self._open)

    @property
    def nodes(self) -> list[str]:
        """The members' names by rank."""
        names, text, error = [], ctypes.create_string_buffer(256), CError()
        for rank in range(self.size):
            check(lib.comm_node(self._handle, rank, text, len(text), ctypes.byref(error)), error)
            names.append(text.value.decode())
        return names

    @property
    def error(self) -> Optional[Error]:
        """What broke or closed the communicator, or None."""
        error = CError()
        try:
            if lib.comm_status(self._handle, ctypes.byref(error)) == _abi.OK:
                return None
        except Closed as e:
            return e
        return _abi.error_of(error)

    # --- How calls are made.

    def _launch(self, keep: Any, function: Any, *args: Any, work: Optional[Work] = None) -> Work:
        work = work or Work(keep)
        work._start(self._handle, function, args)
        return work

    def _run(self, spec: Spec) -> None:
        """Makes a call and waits for its end."""
        if self._quickly(spec):
            return
        c = self._call(spec)
        c.run()
        c.reuse()

    def _quickly(self, spec: Spec) -> bool:
        """Makes a call in C and waits for its end. False: it has to be made here."""
        error = run(go_on, self._handle, *spec)
        if error is None:
            return True
        if error is NotImplemented:
            return False
        raise _abi.error_of(CError.from_buffer_copy(error))

    def _at_root(self, root: int, buffer: Any) -> Any:
        """The buffer of a call that only its root uses: elsewhere None."""
        if root != self.rank:
            return None
        if buffer is None:
            raise TypeError("a buffer is needed, not None: this rank is the root")
        return buffer

    def _call(self, spec: Spec) -> Call:
        return call_of(self._handle, self.rank, self.size, spec)

    # --- Collectives.

    @blocking
    def all_reduce(
        self,
        buffer: Any,
        op: str = "sum",
        *,
        out: Any = None,
        dtype: Optional[str] = None,
        name: Optional[str] = None,
    ) -> Spec:
        """Replaces each element by its combination on all ranks.

        With out, which is as long, the result goes there instead.
        """
        return spec_of(_abi.ALLREDUCE, buffer if out is None else out, buffer, op, 0, dtype, name)

    start_all_reduce = started(all_reduce)
    prepare_all_reduce = prepared(all_reduce)

    @blocking
    def all_reduce_batch(
        self, buffers: Sequence[Any], op: str = "sum", *, dtype: Optional[str] = None
    ) -> Spec:
        """An all_reduce of many small buffers as one operation, in place.

        All ranks give as many, of the same lengths in the same order.
        """
        return spec_of(BATCH, None, buffers, op, 0, dtype)

    start_all_reduce_batch = started(all_reduce_batch)
    prepare_all_reduce_batch = prepared(all_reduce_batch)

    @blocking
    def reduce(
        self,
        src: Any,
        dst: Any = None,
        op: str = "sum",
        *,
        root: int = 0,
        dtype: Optional[str] = None,
        name: Optional[str] = None,
    ) -> Spec:
        """Puts the combination of src on all ranks into dst on the root; others need no dst.

        Both are equally long, and may be the same.
        """
        return spec_of(_abi.REDUCE, self._at_root(root, dst), src, op, root, dtype, name)

    start_reduce = started(reduce)
    prepare_reduce = prepared(reduce)

    @blocking
    def broadcast(
        self, buffer: Any, *, root: int = 0, dtype: Optional[str] = None, name: Optional[str] = None
    ) -> Spec:
        """Copies the root's buffer into that of all others."""
        return spec_of(_abi.BROADCAST, buffer, buffer, NO_OP, root, dtype, name)

    start_broadcast = started(broadcast)
    prepare_broadcast = prepared(broadcast)

    @blocking
    def all_gather(
        self,
        dst: Any,
        src: Any,
        *,
        counts: Optional[Sequence[int]] = None,
        dtype: Optional[str] = None,
        name: Optional[str] = None,
    ) -> Spec:
        """Puts the src of all ranks into dst, by rank: dst is size times as long.

        counts are the lengths of each rank's src, if they differ: the same list on all ranks. In
        place src is the rank's own part of dst.
        """
        return spec_of(_abi.ALLGATHER, dst, src, NO_OP, 0, dtype, name, counts)

    start_all_gather = started(all_gather)
    prepare_all_gather = prepared(all_gather)

    @blocking
    def reduce_scatter(
        self,
        dst: Any,
        src: Any,
        op: str = "sum",
        *,
        counts: Optional[Sequence[int]] = None,
        dtype: Optional[str] = None,
        name: Optional[str] = None,
    ) -> Spec:
        """Divides src into a part for each rank, and puts the combination of its part into dst.

        src is size times as long as dst, or counts are the lengths of the parts: the same list on
        all ranks. In place dst is the rank's own part of src.
        """
        return spec_of(_abi.REDUCESCATTER, dst, src, op, 0, dtype, name, counts)

    start_reduce_scatter = started(reduce_scatter)
    prepare_reduce_scatter = prepared(reduce_scatter)

    @blocking
    def gather(
        self,
        src: Any,
        dst: Any = None,
        *,
        root: int = 0,
        counts: Optional[Sequence[int]] = None,
        dtype: Optional[str] = None,
        name: Optional[str] = None,
    ) -> Spec:
        """Puts the src of all ranks into the root's dst, by rank; others need no dst.

        dst and counts are as in all_gather.
        """
        return spec_of(_abi.GATHER, self._at_root(root, dst), src, NO_OP, root, dtype, name, counts)

    start_gather = started(gather)
    prepare_gather = prepared(gather)

    @blocking
    def scatter(
        self,
        dst: Any,
        src: Any = None,
        *,
        root: int = 0,
        counts: Optional[Sequence[int]] = None,
        dtype: Optional[str] = None,
        name: Optional[str] = None,
    ) -> Spec:
        """Divides the root's src into a part for each rank, which gets it in dst.

        Others need no src. src and counts are as in reduce_scatter.
        """
        return spec_of(_abi.SCATTER, dst, self._at_root(root, src), NO_OP, root, dtype, name, counts)

    start_scatter = started(scatter)
    prepare_scatter = prepared(scatter)

    @blocking
    def all_to_all(
        self,
        dst: Any,
        src: Any,
        *,
        send_counts: Optional[Sequence[int]] = None,
        recv_counts: Optional[Sequence[int]] = None,
        dtype: Optional[str] = None,
        name: Optional[str] = None,
    ) -> Spec:
        """Sends a part of src to each rank, and puts what they have for this one into dst, by rank.

        Parts are equal, or send_counts[j] elements to rank j and recv_counts[j] from it.
        """
        if send_counts is None and recv_counts is None:
            return spec_of(_abi.ALLTOALL, dst, src, NO_OP, 0, dtype, name)
        if send_counts is None or recv_counts is None:
            raise ValueError("both send_counts and recv_counts, or none")
        counts = send_counts, recv_counts
        return spec_of(_abi.ALLTOALLV, dst, src, NO_OP, 0, dtype, name, exchange=counts)

    start_all_to_all = started(all_to_all)
    prepare_all_to_all = prepared(all_to_all)

    @blocking
    def scan(
        self,
        buffer: Any,
        op: str = "sum",
        *,
        out: Any = None,
        exclusive: bool = False,
        dtype: Optional[str] = None,
        name: Optional[str] = None,
    ) -> Spec:
        """The combination of ranks 0 to r on rank r; exclusive: 0 to r-1, rank 0 keeps its own.

        With out, which is as long, the result goes there instead. There is no "avg".
        """
        dst, kind = buffer if out is None else out, _abi.EXSCAN if exclusive else _abi.SCAN
        return spec_of(kind, dst, buffer, op, 0, dtype, name)

    start_scan = started(scan)
    prepare_scan = prepared(scan)

    def barrier(self, timeout: Optional[float] = None) -> None:
        """Returns when all ranks have called it. After timeout seconds it breaks the communicator."""
        finish(lib.barrier, self._handle, timeout=timeout)

    # --- Messages.

    def send(self, buffer: Any, to: int, tag: int = 0, *, dtype: Optional[str] = None) -> None:
        """Sends a message, and returns when the buffer can be used again.

        That does not mean that it was received. tag is from 0 to 2**31 - 1.
        """
        *memory, keep = view(buffer, False, dtype)  # keep holds it until the call has ended
        finish(lib.send, self._handle, *memory, whole("to", to), whole("tag", tag))

    def start_send(self, buffer: Any, to: int, tag: int = 0, *, dtype: Optional[str] = None) -> Work:
        """Begins a send."""
        *memory, keep = view(buffer, False, dtype)
        args = (self._handle, *memory, whole("to", to), whole("tag", tag))

        def send(*all_: Any) -> int:
            *arguments, _, error = all_  # a send has no result
            return lib.send(*arguments, error)

        return self._launch(keep, send, *args)

    def recv(
        self, buffer: Any, source: int = ANY, tag: int = ANY, *, dtype: Optional[str] = None
    ) -> Status:
        """Receives a message into the beginning of a buffer.

        One that is longer, or of another element type, is lost: the call raises Mismatch, and the
        communicator goes on.
        """
        *memory, keep = view(buffer, True, dtype)
        r = call(lib.recv, self._handle, *memory, whole("source", source), whole("tag", tag))
        return Status(r.source, r.tag, r.count)

    def start_recv(
        self, buffer: Any, source: int = ANY, tag: int = ANY, *, dtype: Optional[str] = None
    ) -> Receive:
        """Begins a recv."""
        *memory, keep = view(buffer, True, dtype)
        work = Receive(keep)
        args = (self._handle, *memory, whole("source", source), whole("tag", tag))
        self._launch(keep, lib.recv, *args, work=work)
        return work

    # --- Other communicators, and the end.

    def dup(self) -> Communicator:
        """Another communicator of the same members. A collective call, as the next two are."""
        return Communicator(call(lib.comm_dup, self._handle).handle)

    def sub(self, ranks: Sequence[int]) -> Optional[Communicator]:
        """A communicator of the ranks listed, in this order; None on the others. All call it."""
        array = (ctypes.c_int * len(ranks))(*wholes("ranks", ranks, 32))
        handle = call(lib.comm_sub, self._handle, array, len(ranks)).handle
        return Communicator(handle) if handle else None

    def split(self, color: int, key: int = 0) -> Optional[Communicator]:
        """A communicator of those with the same color, in the order of keys; negative: None."""
        handle = call(lib.comm_split, self._handle, whole("color", color), whole("key", key)).handle
        return Communicator(handle) if handle else None

    def shrink(self, timeout: Optional[float] = None) -> tuple[Communicator, Uneven]:
        """A communicator of those that live and call it too. This one is closed."""
        r = call(lib.comm_shrink, self._handle, timeout=timeout)
        lib.comm_close(self._take(), None, None)
        return Communicator(r.handle), Uneven(r.first, r.last)

    def abort(self) -> None:
        """Breaks the communicator on all ranks."""
        lib.comm_abort(self._open, None)

    def close(self, timeout: Optional[float] = None) -> None:
        """Waits for what is in flight, and tells the others. Closing it again does nothing."""
        if handle := self._take():
            finish(lib.comm_close, handle, timeout=timeout)


class Receive(Work):
    """A receive that was started."""

    @property
    def status(self) -> Optional[Status]:
        """Which message it took, once it has ended without an error."""
        r = self._result
        return None if r is None or self._error is not None else Status(r.source, r.tag, r.count)
