"""Calls in flight whose ends are told by a thread, and that end with a Timeout after a while."""

from __future__ import annotations

import ctypes
import math
import os
import select
import threading
import time
from typing import Callable, Optional

from . import _abi
from ._abi import CAsync, CCompletion, CError, CResult, lib
from ._errors import Canceled, Error, Timeout


class _Flight:
    """A call in flight: what becomes of its outcome, and when it has taken too long."""

    __slots__ = ("then", "limit", "deadline", "work", "late")

    def __init__(self, then: Callable[[Optional[Error], CResult], None], limit: float) -> None:
        self.then, self.limit = then, limit
        self.deadline = time.monotonic() + limit
        self.work = 0  # the library's handle, once it is known
        self.late = False  # it was canceled after its deadline


class Completions:
    """The thread that ends the works of this process: one, whatever is in flight."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, _Flight] = {}
        self._tag = 0
        self._next = math.inf  # when the thread looks at deadlines again; never after the first of them
        # Is written to where that has become earlier. (mypy's stubs have no eventfd.)
        self._earlier = os.eventfd(0)  # type: ignore[attr-defined]
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
            os.eventfd_write(self._earlier, 1)  # type: ignore[attr-defined]
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
                    os.eventfd_read(fd)  # type: ignore[attr-defined]
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
_shared: Optional[Completions] = None
_shared_pid = 0


def completions() -> Completions:
    """Those of this process. One that was forked has none of its parent's threads."""
    global _shared, _shared_pid
    with _shared_lock:
        if _shared is None or _shared_pid != os.getpid():
            _shared, _shared_pid = Completions(), os.getpid()
        return _shared
