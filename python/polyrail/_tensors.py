"""Tensors of torch as memory that the library can use, and reductions as it has them."""

from __future__ import annotations

from typing import Any, Sequence

import torch
import torch.distributed as dist

from . import _abi

DTYPES = {
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
    (_ReduceOp.AVG, "avg"),  # type: ignore[attr-defined]
]
# Of bools, which are bytes of 0 and 1.
_BOOL_OPS = {"sum": "bitor", "max": "bitor", "bitor": "bitor", "prod": "bitand", "min": "bitand"}
_BOOL_OPS.update(bitand="bitand", bitxor="bitxor")


class Staged:
    """A tensor as contiguous memory on the CPU: the tensor itself where it is that."""

    def __init__(self, tensor: torch.Tensor, load: bool) -> None:
        self.tensor, self.copy = tensor, None
        if tensor.is_sparse:
            raise ValueError("polyrail takes dense tensors only")
        if tensor.is_cuda:
            self.copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        elif not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
            # The memory of a lazy conjugate or negative holds what it was made of.
            self.copy = torch.empty(tensor.shape, dtype=tensor.dtype)
        if self.copy is not None and load:
            self.copy.copy_(tensor.detach())  # of a CUDA tensor: waits for its stream
        # detach shares the memory, and holds it also where tensor.data is replaced.
        self.memory = tensor.detach() if self.copy is None else self.copy

    def store(self) -> None:
        """Takes the result to where it belongs, a parameter too, whatever the thread's grad mode."""
        if self.copy is not None:
            _put(self.copy, self.tensor)


def _put(values: torch.Tensor, tensor: torch.Tensor) -> None:
    """Copies values into a tensor. Where elements share memory, as after expand, the first counts."""
    tensor = tensor.detach()
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dim] > 1:
            values, tensor = values.narrow(dim, 0, 1), tensor.narrow(dim, 0, 1)
    tensor.copy_(values)


def flat_of(tensors: Sequence[torch.Tensor], load: bool) -> torch.Tensor:
    """The elements of all tensors, one after the other."""
    if not tensors:
        raise ValueError("a list of tensors is empty")
    if any(t.dtype != tensors[0].dtype for t in tensors):
        raise ValueError("the tensors of a list have different types")
    if load:
        return torch.cat([t.detach().reshape(-1).cpu() for t in tensors])
    return torch.empty(sum(t.numel() for t in tensors), dtype=tensors[0].dtype)


def unflat(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    """Takes elements to the tensors that they belong to: the reverse of flat_of."""
    at = 0
    for t in tensors:
        _put(flat[at : at + t.numel()].view(t.shape), t)
        at += t.numel()


def bytes_of(t: torch.Tensor) -> tuple[int, int, int]:
    """A tensor's address, element type and elements. What polyrail has no type for is bytes."""
    number = DTYPES.get(t.dtype)
    if number:
        return t.data_ptr(), number, t.numel()
    return t.data_ptr(), _BYTE, t.numel() * t.element_size()


def operator_of(op: Any, dtype: torch.dtype) -> tuple[str, int]:
    """The name of a reduction, and the element type that it is made on."""
    name = next((n for o, n in _OPS if o == op), None)
    if name is None:
        raise ValueError(f"{op} is not supported by polyrail")
    if dtype == torch.bool:
        if name not in _BOOL_OPS:
            raise ValueError(f"{name} is not defined on bool")
        return _BOOL_OPS[name], _BYTE
    if dtype not in DTYPES:
        raise ValueError(f"reductions of {dtype} are not supported by polyrail")
    if dtype.is_floating_point and name.startswith("bit"):
        raise ValueError(f"{name} is not defined on {dtype}, only on integers")
    return name, DTYPES[dtype]
