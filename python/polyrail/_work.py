"""Calls in flight, and calls that block."""

from __future__ import annotations

import atexit
import collections
import ctypes
import os
import threading
import time
from typing import Any, Callable, Optional

from ._abi import OK, PENDING, SLICE, SLICE_NS, CAsync, CError, COperation, CResult, check, lib
from ._errors import Closed, Timeout

_byref = ctypes.byref


def call(function: Callable[..., int], *args: Any, timeout: Optional[float] = None) -> CResult:
    """Makes a call that has an async and a result, and waits for its end. Interrupted it leaves no
    handle behind."""
    async_, result, error = CAsync(0, 0, SLICE_NS, 0), CResult(), CError()
    ended = _byref(result)
    try:
        _finish(function, (*args, _byref(async_), ended, _byref(error)), async_, ended, error, timeout)
    except BaseException:
        if result.handle:  # it had succeeded: the other ranks must not wait for this one
            if lib.comm_abort(result.handle, None) == OK:
                lib.comm_close(result.handle, None, None)
            else:
                lib.node_close(result.handle, None, None)
        raise
    return result


def finish(function: Callable[..., int], *args: Any, timeout: Optional[float] = None) -> None:
    """Makes a call that has an async and no result, and waits for its end."""
    async_, error = CAsync(0, 0, SLICE_NS, 0), CError()
    _finish(function, (*args, _byref(async_), _byref(error)), async_, None, error, timeout)


class Call:
    """A call whose result nobody asks for, and what the library reads and writes while it is made."""

    __slots__ = ("operation", "place", "function", "args", "keep", "_async", "_error", "_tail")

    def __init__(self) -> None:
        self.operation = COperation()
        self.place = ctypes.addressof(self.operation)
        self.function: Callable[..., int] = lib.run
        self.args: tuple = ()
        """All but async, result and error."""
        self.keep: Any = None
        """The memory that it uses."""
        self._async, self._error = CAsync(0, 0, SLICE_NS, 0), CError()
        self._tail = (ctypes.addressof(self._async), None, ctypes.addressof(self._error))

    def run(self) -> None:
        """Makes the call and waits for its end."""
        _finish(self.function, self.args + self._tail, self._async, None, self._error, None)

    def reuse(self) -> None:
        """Keeps the object for another call, after one that succeeded."""
        self.keep = None
        _calls.append(self)


# Calls that nobody makes: as many as were made at once. A new one each time would cost as much as the
# way into the library and back.
_calls: list[Call] = []


def new_call() -> Call:
    """A call to be filled in. Its function and args are those of an earlier one."""
    try:
        return _calls.pop()
    except IndexError:
        return Call()


def _finish(
    function: Callable[..., int],
    args: tuple,
    async_: CAsync,
    ended: Any,
    error: CError,
    timeout: Optional[float],
) -> None:
    """Makes a call and waits for its end. ended gets its result."""
    try:
        code = function(*args)
        if code == OK:
            return
        if code == PENDING:
            code = _wait(async_, ended, error, timeout)
    except BaseException:
        _end(async_, ended)
        raise
    check(code, error)


def go_on(work: int) -> None:
    """Waits for the end of a call that was begun in C. What C does itself it does not do: end the call
    when an exception interrupts it."""
    error = CError()
    check(_wait(CAsync(0, 0, 0, work), None, error, None), error)


def _wait(async_: CAsync, ended: Any, error: CError, timeout: Optional[float]) -> int:
    """Waits for the end of a call that goes on after its first slice, and returns its code."""
    begun = time.monotonic()
    code = PENDING
    while code == PENDING:
        if timeout is not None and time.monotonic() >= begun + timeout - SLICE:
            lib.expire(async_.work, int(timeout * 1e9), None)
            return lib.wait(async_.work, -1, ended, _byref(error))
        code = lib.wait(async_.work, SLICE_NS, ended, _byref(error))
    return code


def _end(async_: CAsync, ended: Any) -> None:
    """Ends a call that an exception interrupts, KeyboardInterrupt above all: the memory must be free
    before that is raised. One that succeeds before it is canceled leaves its result in ended."""
    if lib.cancel(async_.work, None) == OK:  # nothing has waited for its end yet
        lib.wait(async_.work, -1, ended, _byref(CError()))


class Closable:
    """Has a handle of the library until it is closed."""

    _open = 0
    """The handle; 0: it is closed."""

    @property
    def _handle(self) -> int:
        """The handle, for a call."""
        if not self._open:
            raise Closed(f"the {type(self).__name__.lower()} is closed")
        return self._open

    def _take(self) -> int:
        """The handle, for the last call; 0: it is closed already."""
        handle, self._open = self._open, 0
        return handle


class Work:
    """A call that was started. Its buffers belong to polyrail until it has ended."""

    def __init__(self, keep: Any) -> None:
        self._keep = keep
        self._comm = 0
        self._handle = 0
        self._lock = threading.Lock()
        self._result: Optional[CResult] = None
        self._error: Optional[CError] = None

    def _start(self, comm: int, function: Callable[..., int], args: tuple) -> None:
        async_, result, error = CAsync(), CResult(), CError()
        self._comm = comm
        flying.add(self)  # before the call: an exception right after it loses no memory
        try:
            code = function(*args, _byref(async_), _byref(result), _byref(error))
        finally:
            self._handle = async_.work
            if not async_.work:
                flying.remove(self)
        if code == OK:
            self._end(result, None)
        elif code != PENDING:
            check(code, error)

    def _end(self, result: CResult, error: Optional[CError]) -> None:
        self._result, self._error, self._keep, self._handle = result, error, None, 0
        flying.remove(self)

    def _wait(self, nanoseconds: int) -> bool:
        with self._lock:
            if self._result is not None:
                return True
            if not self._handle:
                return False  # it is still on its way into the library
            result, error = CResult(), CError()
            code = lib.wait(self._handle, nanoseconds, _byref(result), _byref(error))
            if code == PENDING:
                return False
            self._end(result, error if code != OK else None)
            return True

    def _look(self) -> bool:
        """Whether it has ended. Another thread that waits for it finds out itself."""
        return not self._lock.locked() and self._wait(0)

    @property
    def done(self) -> bool:
        """Whether the call has ended, right or with an error."""
        return self._result is not None or self._look()

    def wait(self, timeout: Optional[float] = None) -> None:
        """Waits for the end, and raises the call's error.

        After timeout seconds it raises Timeout; the call goes on. Ctrl-C ends the wait and the call.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                left = SLICE if deadline is None else min(SLICE, deadline - time.monotonic())
                if self._wait(max(0, int(left * 1e9))):
                    break
                if left < SLICE and left <= 0:
                    raise Timeout(f"the call has not ended after {timeout} s; it goes on")
        except KeyboardInterrupt:
            self.cancel()
            while not self._wait(-1):
                pass
            raise
        if self._error is not None:
            check(self._error.code, self._error)

    def cancel(self) -> None:
        """Ends the call. A collective one breaks its communicator on all ranks."""
        if self._handle:
            lib.cancel(self._handle, None)

    @property
    def seq(self) -> Optional[int]:
        """The operation's number in its communicator, once it has ended."""
        return (self._result.seq or None) if self._result is not None else None


class _Flying:
    """The works in flight of all communicators. The library uses their memory, whoever drops them."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """In a process that was forked nothing flies, and nobody gives the lock back."""
        self._lock = threading.RLock()  # a destructor may come in between
        self._works: collections.OrderedDict[Work, None] = collections.OrderedDict()

    def add(self, work: Work) -> None:
        """Holds a work. It looks at earlier ones in turn, until at one that has not ended."""
        while True:
            with self._lock:
                oldest = next(iter(self._works), None)
                if oldest is None:
                    break
                self._works.move_to_end(oldest)
            if not oldest._look():
                break
            self.remove(oldest)
        with self._lock:
            self._works[work] = None

    def remove(self, work: Work) -> None:
        """Lets a work go that has ended, or that did not begin."""
        with self._lock:
            self._works.pop(work, None)

    def of(self, comm: int) -> list[Work]:
        """The works of a communicator."""
        with self._lock:
            return [w for w in self._works if w._comm == comm]

    def abort(self, comm: int) -> None:
        """Breaks a communicator, and waits until the library uses no memory of its works."""
        lib.comm_abort(comm, None)
        for work in self.of(comm):
            while work._handle and not work._wait(SLICE_NS):
                pass

    def exit(self, limit: float = 5) -> None:
        """Ends all works, before the interpreter frees their memory."""
        deadline = time.monotonic() + limit
        with self._lock:
            works = list(self._works)
        for comm in {w._comm for w in works}:
            lib.comm_abort(comm, None)
        for work in works:
            while work._handle and not work._wait(SLICE_NS):
                if time.monotonic() >= deadline:
                    ctypes.pythonapi.Py_IncRef(ctypes.py_object(work._keep))  # it is never freed
                    break


flying = _Flying()
atexit.register(flying.exit)
os.register_at_fork(after_in_child=flying.forget)
