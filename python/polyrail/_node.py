"""Nodes, their rails and their events."""

from __future__ import annotations

import ctypes
import select
from datetime import timedelta
from typing import Any, Iterator, NamedTuple, Optional, Sequence, Union

from ._abi import EVENTS, OK, CError, CEvent, CRail, check, lib
from ._comm import Communicator
from ._spec import text_of, whole
from ._work import Closable, call, finish


class Rail(NamedTuple):
    """A network of this host, and what it has carried, in bytes of payload."""

    name: str
    address: str
    up: bool
    bytes_sent: int
    bytes_received: int
    resent_bytes: int
    reconnects: int
    link_downs: int
    silences: int


class Event(NamedTuple):
    """Something that happened to a node. Fields that the kind does not have are empty.

    kind is "rail up", "rail down", "rail moved", "rank lost", "communicator formed",
    "communicator broken", "table changed", "tree up" or "tree down". missed counts events that were
    lost before this one, since nobody took them.
    """

    time: float
    kind: str
    node: str
    rail: str
    communicator: str
    rank: int
    version: int
    text: str
    missed: int


class Node(Closable):
    """A member of a cluster. Close it, or use it in a with statement."""

    def __init__(
        self,
        name: Optional[str] = None,
        *,
        bind: Optional[str] = None,
        join: Union[str, Sequence[str], None] = None,
        rails: Union[str, Sequence[str], None] = None,
        timeout: Optional[float] = None,
        **settings: Any,
    ) -> None:
        """Starts a node: its rails, then gossip.

        name is unique in the cluster. bind is where gossip listens, ADDR:PORT. join are such
        addresses of other nodes. rails are NAME=tcp:DEVICE, where the device is an interface, an
        address, a CIDR or auto.

        settings are the other flags of "node run", with underscores: rank_timeout="1s",
        order="free". A time may be a datetime.timedelta. What is left out comes from the environment
        (POLYRAIL_RANK_TIMEOUT) and from the file that config names. log_level says what is logged to
        standard error ("warn").
        """
        lines = b""
        for key, value in {"name": name, "bind": bind, "join": join, "rail": rails, **settings}.items():
            for item in _values(value):
                if "\n" in item:
                    raise ValueError(f"{key} holds more than one line")
                lines += text_of(key, f"{key.replace('_', '-')}={item}\n")
        self._open = call(lib.node_open, lines, timeout=timeout).handle

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    @property
    def address(self) -> str:
        """Where other nodes can join: ADDR:PORT."""
        text, error = ctypes.create_string_buffer(128), CError()
        check(lib.node_address(self._handle, text, len(text), ctypes.byref(error)), error)
        return text.value.decode()

    @property
    def rails(self) -> list[Rail]:
        """This host's networks."""
        rails, count, error = (CRail * 32)(), ctypes.c_int(), CError()
        code = lib.node_rails(self._handle, rails, 32, ctypes.byref(count), ctypes.byref(error))
        check(code, error)
        return [
            Rail(
                r.name.decode(),
                r.address.decode(),
                bool(r.up),
                r.bytes_sent,
                r.bytes_received,
                r.resent_bytes,
                r.reconnects,
                r.link_downs,
                r.silences,
            )
            for r in rails[: min(32, count.value)]
        ]

    def communicator(self, name: str, size: int, timeout: Optional[float] = None) -> Communicator:
        """Waits until size nodes have asked for the name. Ranks ascend by the nodes' names.

        After timeout seconds it raises Timeout, which says who is missing.
        """
        r = call(lib.comm_form, self._handle, text_of("name", name), whole("size", size), timeout=timeout)
        return Communicator(r.handle)

    def events(self, timeout: Optional[float] = None) -> Iterator[Event]:
        """What happens to the node from now on.

        It ends when the node is closed, or when timeout seconds pass without any.
        """
        return _events(_Subscription(self._handle), timeout)

    def close(self, timeout: Optional[float] = 5) -> None:
        """Leaves the cluster. Communicators that are open break. Closing again does nothing."""
        if handle := self._take():
            finish(lib.node_close, handle, timeout=timeout)


class _Subscription:
    """The library's handle of a subscription. Who drops an iterator, also before its first event, drops it."""

    def __init__(self, node: int) -> None:
        self.handle = 0
        handle, error = ctypes.c_uint64(), CError()
        check(lib.events_open(node, ctypes.byref(handle), ctypes.byref(error)), error)
        self.handle = handle.value

    def __del__(self) -> None:
        if self.handle:
            lib.events_close(self.handle, None)


def _events(subscription: _Subscription, timeout: Optional[float]) -> Iterator[Event]:
    poll, events, count = select.poll(), (CEvent * 16)(), ctypes.c_int()
    poll.register(lib.events_fd(subscription.handle), select.POLLIN)
    while poll.poll(None if timeout is None else timeout * 1000):
        if lib.events_take(subscription.handle, events, len(events), ctypes.byref(count), None) != OK:
            return  # the node is closed
        for e in events[: count.value]:
            yield Event(
                e.time_ns / 1e9,
                EVENTS.get(e.kind, "unknown"),
                e.node.decode(errors="replace"),
                e.rail.decode(errors="replace"),
                e.communicator.decode(errors="replace"),
                e.rank,
                e.version,
                e.text.decode(errors="replace"),
                e.missed,
            )


def _values(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, bool):
        return ["on" if value else "off"]
    if isinstance(value, timedelta):
        return [f"{value // timedelta(microseconds=1)}us"]
    if isinstance(value, (list, tuple)):
        return [str(v) for v in value]
    return [str(value)]
