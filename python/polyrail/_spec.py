"""Collective calls: what one is made with, and how the library gets it."""

from __future__ import annotations

import ctypes
import operator
import struct
from typing import Any, Optional, Sequence

from . import _abi
from ._abi import OPS, CBuffer, COperation, lib
from ._buffer import NOTHING, view
from ._work import Call, new_call

_OPERATION_SIZE = ctypes.sizeof(COperation)
_fill = struct.Struct("I5i8Q").pack_into  # all of a COperation


class _Operators(dict[Any, int]):
    def __missing__(self, name: Any) -> int:
        raise ValueError(f"{name!r} is no operator ({', '.join(OPS)})")


NO_OP = object()
"""The operator of a call that combines nothing."""
_OPERATORS = _Operators({NO_OP: 0}, **OPS)
_SUM, _OR, _BYTE = OPS["sum"], OPS["bitor"], _abi.DTYPES["uint8"]


# A collective call as it was made: kind, dst, src, operator, root, dtype, name, counts, and the counts
# that are sent and received. A batch's src is its buffers.
Spec = tuple[
    int, Any, Any, int, int, Optional[str], Optional[str], Optional[Sequence[int]],
    Optional[tuple[Sequence[int], Sequence[int]]],
]  # fmt: skip

BATCH = 0
"""The kind of a batch. It is none of polyrail.h."""

_DST_AT_ROOT = frozenset((BATCH, _abi.REDUCE, _abi.GATHER))  # elsewhere, or never, a dst


def spec_of(
    kind: int,
    dst: Any,
    src: Any,
    op: Any,
    root: int,
    dtype: Optional[str],
    name: Optional[str] = None,
    counts: Optional[Sequence[int]] = None,
    exchange: Optional[tuple[Sequence[int], Sequence[int]]] = None,
) -> Spec:
    """A call with these arguments. Most are checked where the call is made."""
    if dst is None and kind not in _DST_AT_ROOT or src is None and kind != _abi.SCATTER:
        raise TypeError("a buffer is needed, not None")
    return kind, dst, src, _OPERATORS[op], root, dtype, name, counts, exchange


def whole(name: str, value: Any, bits: int = 32) -> int:
    """An argument that is a whole number of so many bits, one of them for the sign."""
    try:
        n = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {value!r}") from None
    if not -1 << bits - 1 <= n < 1 << bits - 1:
        raise ValueError(f"{name} is {n}, which has more than {bits} bits")
    return n


def text_of(name: str, value: Any) -> bytes:
    """An argument that is a string, as C can have it: a 0 byte would end it."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {value!r}")
    if "\0" in value:
        raise ValueError(f"{name} holds a 0 byte: {value!r}")
    return value.encode()


def wholes(name: str, values: Sequence[Any], bits: int) -> list[int]:
    """An argument that is a list of whole numbers."""
    return [whole(name, v, bits) for v in values]


def call_of(comm: int, rank: int, size: int, spec: Spec) -> Call:
    """The call as the library gets it, of a rank of a communicator. It lends the buffers."""
    kind, dst, src, op, root, dtype, name, counts, exchange = spec
    if kind == BATCH:
        return _batch(comm, src, op, dtype)
    root = whole("root", root)
    writable = kind != _abi.BROADCAST or root != rank
    target = NOTHING if dst is None else view(dst, writable, dtype)
    source = target if src is dst else NOTHING if src is None else view(src, False, dtype)
    to, to_count, elements, _ = target
    of, of_count, others, _ = source
    if elements != others and dst is not None and src is not None:
        raise TypeError("the buffers have different element types")
    if op == _SUM and dtype is None:
        op = _sum_of(elements or others, src)
    keep: tuple[Any, ...] = (target, source)
    parts = sent = received = text = 0  # addresses
    if counts is not None:
        keep += (array := _counts("counts", counts, size),)
        parts = ctypes.addressof(array)
    if exchange is not None:
        out, in_ = _counts("send_counts", exchange[0], size), _counts("recv_counts", exchange[1], size)
        keep += (out, in_)
        sent, received = ctypes.addressof(out), ctypes.addressof(in_)
    if name is not None:
        keep += (string := ctypes.create_string_buffer(text_of("name", name)),)
        text = ctypes.addressof(string)
    c = new_call()
    _fill(c.operation, 0, _OPERATION_SIZE, kind, elements or others, op, root, 0,
          to, of, to_count, of_count, parts, sent, received, text)  # fmt: skip
    c.function, c.args, c.keep = lib.run, (comm, c.place), keep
    return c


def _batch(comm: int, buffers: Sequence[Any], op: int, dtype: Optional[str]) -> Call:
    views = [view(b, True, dtype) for b in buffers]
    kinds = {kind for _, _, kind, _ in views}
    if len(kinds) != 1:
        raise TypeError("a batch needs buffers, of one element type")
    number = kinds.pop()
    if op == _SUM and dtype is None:
        op, *others = {_sum_of(number, b) for b in buffers}
        if others:
            raise TypeError("a batch has bools and numbers, whose sums differ")
    array = (CBuffer * len(views))(*(CBuffer(address, count) for address, count, _, _ in views))
    c = new_call()
    c.function, c.keep = lib.batch, (views, array)
    c.args = (comm, array, len(views), number, op)
    return c


def _sum_of(elements: int, buffer: Any) -> int:
    """The operator of a sum. A byte of a bool is 0 or 1, so that of bools is their or, as numpy's."""
    if elements != _BYTE:
        return _SUM
    element = getattr(buffer, "dtype", None)  # of numpy and torch
    text = memoryview(buffer).format if element is None else str(element)
    return _OR if text in ("?", "bool", "torch.bool") else _SUM


def _counts(name: str, counts: Sequence[int], size: int) -> ctypes.Array[ctypes.c_int64]:
    """Elements by rank."""
    if len(counts) != size:
        raise ValueError(f"{name} has {len(counts)} numbers for {size} ranks")
    return (ctypes.c_int64 * size)(*wholes(name, counts, 64))
