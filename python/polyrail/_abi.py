"""polyrail.h for ctypes: the library, its structures and numbers."""

from __future__ import annotations

import ctypes as c
import importlib
import os
import pathlib
from typing import Any, Optional

from ._errors import BY_CODE, Error

try:
    _quick: Any = importlib.import_module("polyrail._quick")
except ImportError:  # the package was installed without Python's headers
    _quick = None


def _elsewhere(*args: Any) -> Any:
    """In place of _quick.run."""
    return NotImplemented


run = _elsewhere if _quick is None else _quick.run
"""A blocking collective call in C: see _quick.c."""

ABI = 1
MAX_TAG = 2**31 - 1

SLICE = 0.05
"""How many seconds one wait in the library lasts. Python handles signals, like Ctrl-C, between two."""
SLICE_NS = int(SLICE * 1e9)

OK, PENDING = 0, 1

DTYPES = {
    "int8": 1,
    "uint8": 2,
    "int32": 3,
    "uint32": 4,
    "int64": 5,
    "uint64": 6,
    "float16": 7,
    "bfloat16": 8,
    "float32": 9,
    "float64": 10,
    "int32loc": 11,
    "int64loc": 12,
    "float32loc": 13,
    "float64loc": 14,
}
SIZES = {1: 1, 2: 1, 3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 8, 11: 8, 12: 16, 13: 8, 14: 16}
OPS = {
    "sum": 1,
    "prod": 2,
    "min": 3,
    "max": 4,
    "avg": 5,
    "bitand": 6,
    "bitor": 7,
    "bitxor": 8,
    "minloc": 10,
    "maxloc": 11,
}
ALLREDUCE, REDUCE, REDUCESCATTER, ALLGATHER, GATHER = 1, 5, 6, 7, 8
SCATTER, BROADCAST, ALLTOALL, SCAN, EXSCAN, ALLTOALLV = 9, 10, 11, 12, 13, 14
EVENTS = {
    1: "rail up",
    2: "rail down",
    3: "rank lost",
    4: "communicator formed",
    5: "communicator broken",
    6: "table changed",
    7: "rail moved",
    8: "tree up",
    9: "tree down",
}


class CError(c.Structure):
    _fields_ = [
        ("code", c.c_int32),
        ("rank", c.c_int32),
        ("seq", c.c_uint64),
        ("node", c.c_char * 136),
        ("rail", c.c_char * 136),
        ("text", c.c_char * 1024),
    ]


class CAsync(c.Structure):
    _fields_ = [
        ("queue", c.c_uint64),
        ("tag", c.c_uint64),
        ("patience_ns", c.c_int64),
        ("work", c.c_uint64),
    ]


class CResult(c.Structure):
    _fields_ = [
        ("handle", c.c_uint64),
        ("seq", c.c_uint64),
        ("first", c.c_uint64),
        ("last", c.c_uint64),
        ("count", c.c_uint64),
        ("source", c.c_int32),
        ("tag", c.c_int32),
    ]


class COperation(c.Structure):
    _fields_ = [
        ("size", c.c_uint32),
        ("kind", c.c_int32),
        ("dtype", c.c_int32),
        ("op", c.c_int32),
        ("root", c.c_int32),
        ("algorithm", c.c_int32),
        ("dst", c.c_void_p),
        ("src", c.c_void_p),
        ("dst_count", c.c_uint64),
        ("src_count", c.c_uint64),
        ("counts", c.c_void_p),
        ("send_counts", c.c_void_p),
        ("recv_counts", c.c_void_p),
        ("name", c.c_char_p),
    ]


class CBuffer(c.Structure):
    _fields_ = [("data", c.c_void_p), ("count", c.c_uint64)]


class CCompletion(c.Structure):
    _fields_ = [
        ("work", c.c_uint64),
        ("tag", c.c_uint64),
        ("code", c.c_int32),
        ("reserved", c.c_int32),
    ]


class CRail(c.Structure):
    _fields_ = [
        ("name", c.c_char * 136),
        ("address", c.c_char * 64),
        ("up", c.c_int32),
        ("reserved", c.c_int32),
        ("bytes_sent", c.c_uint64),
        ("bytes_received", c.c_uint64),
        ("resent_bytes", c.c_uint64),
        ("reconnects", c.c_uint64),
        ("link_downs", c.c_uint64),
        ("silences", c.c_uint64),
    ]


class CEvent(c.Structure):
    _fields_ = [
        ("time_ns", c.c_int64),
        ("kind", c.c_int32),
        ("rank", c.c_int32),
        ("version", c.c_uint32),
        ("reserved", c.c_uint32),
        ("missed", c.c_uint64),
        ("node", c.c_char * 136),
        ("rail", c.c_char * 136),
        ("communicator", c.c_char * 136),
        ("text", c.c_char * 1024),
    ]


_H, _INT, _PTR, _U64 = c.c_uint64, c.c_int, c.c_void_p, c.c_uint64
# To COperation, CAsync, CResult and CError: byref of one, or its address, which takes ctypes less time.
_OPERATION = _ASYNC = _RES = _ERR = _PTR
_INTP = c.POINTER(c.c_int)

# Functions that return a code, and what they take.
_SIGNATURES = {
    "node_open": (c.c_char_p, _ASYNC, _RES, _ERR),
    "node_close": (_H, _ASYNC, _ERR),
    "node_address": (_H, _PTR, c.c_size_t, _ERR),
    "node_rails": (_H, c.POINTER(CRail), _INT, _INTP, _ERR),
    "comm_form": (_H, c.c_char_p, _INT, _ASYNC, _RES, _ERR),
    "comm_sub": (_H, _PTR, _INT, _ASYNC, _RES, _ERR),
    "comm_split": (_H, _INT, _INT, _ASYNC, _RES, _ERR),
    "comm_dup": (_H, _ASYNC, _RES, _ERR),
    "comm_shrink": (_H, _ASYNC, _RES, _ERR),
    "comm_close": (_H, _ASYNC, _ERR),
    "comm_abort": (_H, _ERR),
    "comm_status": (_H, _ERR),
    "comm_rank": (_H,),
    "comm_size": (_H,),
    "comm_node": (_H, _INT, _PTR, c.c_size_t, _ERR),
    "run": (_H, _OPERATION, _ASYNC, _RES, _ERR),
    "batch": (_H, c.POINTER(CBuffer), _INT, _INT, _INT, _ASYNC, _RES, _ERR),
    "barrier": (_H, _ASYNC, _ERR),
    "send": (_H, _PTR, _U64, _INT, _INT, _INT, _ASYNC, _ERR),
    "recv": (_H, _PTR, _U64, _INT, _INT, _INT, _ASYNC, _RES, _ERR),
    "wait": (_H, c.c_int64, _RES, _ERR),
    "cancel": (_H, _ERR),
    "expire": (_H, c.c_int64, _ERR),
    "forget": (_H, _ERR),
    "queue_open": (c.POINTER(_H), _ERR),
    "queue_fd": (_H,),
    "queue_take": (_H, c.POINTER(CCompletion), _INT, _INTP, _ERR),
    "queue_close": (_H, _ERR),
    "events_open": (_H, c.POINTER(_H), _ERR),
    "events_fd": (_H,),
    "events_take": (_H, c.POINTER(CEvent), _INT, _INTP, _ERR),
    "events_close": (_H, _ERR),
}


class _Library:
    """The functions of polyrail.h, without their prefix. Loaded when the first one is used."""

    def __getattr__(self, name: str):
        lib = _load()
        for key, types in _SIGNATURES.items():
            function = getattr(lib, "polyrail_" + key)
            function.argtypes, function.restype = types, c.c_int
            setattr(self, key, function)
        if _quick is not None:
            functions = lib.polyrail_run, lib.polyrail_cancel, lib.polyrail_wait
            _quick.bind(*(c.cast(f, c.c_void_p).value for f in functions), SLICE_NS)
        return object.__getattribute__(self, name)


lib = _Library()


def _load() -> c.CDLL:
    """Loads POLYRAIL_LIBRARY, or else the library that was installed with the package."""
    path = os.environ.get("POLYRAIL_LIBRARY") or str(
        pathlib.Path(__file__).with_name("libpolyrail.so")
    )
    try:
        library = c.CDLL(path)
    except OSError as e:
        raise ImportError(
            f"polyrail's library cannot be loaded ({e}); install the package with pip, or set "
            "POLYRAIL_LIBRARY to a libpolyrail.so"
        ) from e
    library.polyrail_abi.restype = c.c_uint32
    if library.polyrail_abi() != ABI:
        raise ImportError(
            f"{path} has version {library.polyrail_abi()} of the interface, this package needs {ABI}"
        )
    return library


def error_of(e: CError) -> Error:
    """The exception for an error of the library."""
    kind = BY_CODE.get(e.code, Error)
    return kind(
        e.text.decode(errors="replace"),
        rank=e.rank if e.rank >= 0 else None,
        node=_text(e.node),
        rail=_text(e.rail),
        seq=e.seq or None,
    )


def _text(raw: bytes) -> Optional[str]:
    return raw.decode(errors="replace") or None


def check(code: int, e: CError) -> None:
    """Raises what a call returned, if it failed."""
    if code != OK:
        raise error_of(e)
