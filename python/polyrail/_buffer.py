"""Buffers: where the memory of an argument is, and what it holds."""

from __future__ import annotations

import ctypes
import struct
import sys
from typing import Any, Optional

from ._abi import DTYPES, SIZES


# Contiguous memory: its address, how many elements it has and of which type, and what must live while
# it is in use. No named tuple: one of those takes a third of the time of a view.
Buffer = tuple[int, int, int, Any]

NOTHING: Buffer = (0, 0, 0, None)


# By size in bytes.
_SIGNED = {1: DTYPES["int8"], 4: DTYPES["int32"], 8: DTYPES["int64"]}
_UNSIGNED = {1: DTYPES["uint8"], 4: DTYPES["uint32"], 8: DTYPES["uint64"]}
_FLOAT = {2: DTYPES["float16"], 4: DTYPES["float32"], 8: DTYPES["float64"]}
# By format of the struct module.
_KINDS = {
    **dict.fromkeys("bhilqn", _SIGNED),
    **dict.fromkeys("BHILQNc?", _UNSIGNED),
    **dict.fromkeys("efd", _FLOAT),
}
_TORCH_DTYPES = {
    "torch." + name: DTYPES[name]
    for name in ("int8", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64")
}
_TORCH_DTYPES["torch.bool"] = DTYPES["uint8"]


class _Py_buffer(ctypes.Structure):
    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


_WRITABLE, _FORMAT, _C_CONTIGUOUS = 0x1, 0x4, 0x20 | 0x10 | 0x8  # of Python's C interface
_get = ctypes.pythonapi.PyObject_GetBuffer
_get.argtypes = (ctypes.py_object, ctypes.POINTER(_Py_buffer), ctypes.c_int)
_release = ctypes.pythonapi.PyBuffer_Release
_release.argtypes = (ctypes.POINTER(_Py_buffer),)
_release.restype = None
_from_buffer, _addressof = ctypes.c_char.from_buffer, ctypes.addressof


class _View:
    """A buffer that an object has lent. It cannot be resized meanwhile."""

    __slots__ = ("raw",)

    def __init__(self, obj: Any, writable: bool) -> None:
        self.raw: Optional[_Py_buffer] = None
        raw = _Py_buffer()
        flags = _FORMAT | _C_CONTIGUOUS | (_WRITABLE if writable else 0)
        _get(obj, ctypes.byref(raw), flags)  # raises BufferError or TypeError
        self.raw = raw

    def __del__(self) -> None:
        if self.raw is not None:
            _release(ctypes.byref(self.raw))


_tensors: set[type] = set()  # the types of torch's that were met so far


def view(obj: Any, writable: bool, dtype: Optional[str] = None) -> Buffer:
    """The memory of obj. dtype says what it holds where the object cannot, such as bfloat16."""
    if type(obj) in _tensors:
        return _tensor(obj, dtype)
    try:
        m = memoryview(obj)
    except TypeError:
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(obj, torch.Tensor):
            raise
        _tensors.add(type(obj))
        return _tensor(obj, dtype)
    keep: Any
    try:
        keep = _from_buffer(m)
        address = _addressof(keep)
    except (TypeError, ValueError):  # it is read only, or empty, or has gaps
        keep = _View(obj, writable)  # says what is wrong, if something is
        address = keep.raw.buf or 0
    if dtype is not None:
        return _counted(address, m.nbytes, _dtype(dtype), keep)
    number, size = _formats[m.format]
    return address, m.nbytes // size, number, keep


def _tensor(tensor: Any, dtype: Optional[str]) -> Buffer:
    if not tensor.is_cpu or not tensor.is_contiguous() or tensor.is_sparse:
        raise BufferError("a tensor must be dense, contiguous and on the CPU (polyrail.torch takes others)")
    if tensor.is_conj() or tensor.is_neg():
        raise BufferError("a tensor's memory must hold its values: call resolve_conj or resolve_neg")
    keep = tensor.detach()  # holds the memory, also where tensor.data is replaced
    if dtype is not None:
        return _counted(keep.data_ptr(), keep.numel() * keep.element_size(), _dtype(dtype), keep)
    number = _TORCH_DTYPES.get(str(tensor.dtype))
    if number is None:
        raise TypeError(f"{tensor.dtype} is no element type of polyrail; name one with dtype=")
    return keep.data_ptr(), keep.numel(), number, keep


def _counted(address: int, length: int, number: int, keep: Any) -> Buffer:
    size = SIZES[number]
    if length % size:
        raise TypeError(f"{length} bytes are no whole number of elements of {size} bytes")
    return address, length // size, number, keep


def _dtype(name: str) -> int:
    if name not in DTYPES:
        raise TypeError(f"{name!r} is no element type ({', '.join(DTYPES)})")
    return DTYPES[name]


class _Formats(dict[str, tuple[int, int]]):
    """Element types, and their sizes, by the struct module's formats that were met so far."""

    def __missing__(self, text: str) -> tuple[int, int]:
        native = "<" if sys.byteorder == "little" else ">"
        kind = text[1:] if text[:1] in ("@", "=", native) else text
        number = _KINDS[kind].get(struct.calcsize(text)) if kind in _KINDS else None
        if not number:
            raise TypeError(
                f"elements of format {text!r} are no element type of polyrail; name one with dtype="
            )
        self[text] = number, SIZES[number]
        return self[text]


_formats = _Formats()
