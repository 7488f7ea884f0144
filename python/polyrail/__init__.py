"""polyrail: collective operations over all of a host's networks.

A process starts a Node, which joins its cluster. Nodes that ask for the same name form a
Communicator. Its members make the same collective calls in the same order:

    import polyrail
    node = polyrail.Node(name="a", bind="10.0.0.1:7946", rails="all=tcp:auto")
    comm = node.communicator("train", 4)      # waits for four nodes that ask for "train"
    comm.all_reduce(gradients, op="avg")      # in place

Buffers are anything with the buffer protocol: numpy arrays, array.array, memoryview, bytearray.
They are used where they are, without a copy, and must be contiguous. Torch tensors on the CPU are
taken too. Each call has a form that starts it and returns a Work: several are in flight then. A third
form prepares it: what is called with the same buffers again and again takes less time then.

While a call blocks, other threads of Python run, and Ctrl-C ends the call. A call that is ended in
this way, or fails, breaks its communicator on all ranks.

polyrail.torch is the backend for torch.distributed. This package imports nothing but the standard
library.
"""

from ._abi import MAX_TAG
from ._errors import (
    Aborted,
    ArgumentError,
    Broken,
    Canceled,
    Closed,
    ConfigError,
    Error,
    ForkedError,
    InternalError,
    LimitError,
    Minority,
    Mismatch,
    RailFailed,
    RankLost,
    Timeout,
    ViewError,
)
from ._comm import ANY, Communicator, Status, Uneven
from ._forms import Prepared
from ._node import Event, Node, Rail
from ._work import Work

__all__ = [
    "ANY",
    "Aborted",
    "ArgumentError",
    "Broken",
    "Canceled",
    "Closed",
    "Communicator",
    "ConfigError",
    "Error",
    "Event",
    "ForkedError",
    "InternalError",
    "LimitError",
    "MAX_TAG",
    "Minority",
    "Mismatch",
    "Node",
    "Prepared",
    "Rail",
    "RailFailed",
    "RankLost",
    "Status",
    "Timeout",
    "Uneven",
    "ViewError",
    "Work",
]
__version__ = "0.1.0"
