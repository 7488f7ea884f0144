"""Calls in flight whose ends are told by threads, and that end with a Timeout after a while."""

from __future__ import annotations

import atexit
import collections
import ctypes
import math
import os
import select
import threading
import time
from typing import Callable, Optional

from . import _abi
from ._abi import CAsync, CCompletion, CError, CResult, lib
from ._errors import Error


class _Flight:
    """A call in flight: what becomes of its outcome, and when it has taken too long."""

    __slots__ = ("then", "limit", "deadline", "work", "late")

    def __init__(self, then: Callable[[Optional[Error], CResult], None], limit: float) -> None:
        self.then, self.limit = then, limit
        self.deadline = time.monotonic() + limit
        self.work = 0  # the library's handle, once it is known
        self.late = False  # it was ended after its deadline


_PATIENCE = 0.002
"""How many seconds a callback may take until another thread goes on in place of its own."""


class Completions:
    """The threads that end the works of this process: two, whatever is in flight.

    One leads: it takes ended calls from the queue and sets their results. torch runs callbacks
    there, and a callback may wait for another call. So the other one, the clock, looks at the
    leader now and then, and has another thread lead in place of one that is held up. It keeps the
    deadlines, too.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)  # no thread is in a callback
        self._closed = False
        self._waiting: dict[int, _Flight] = {}
        self._tag = 0
        # Works and tags that the leader took.
        self._ended: collections.deque[tuple[int, int]] = collections.deque()
        self._leader = 0  # the thread's number
        self._told = 0  # how many calls a thread has begun to tell of
        self._telling = True  # the leader is in a callback, or there is none
        self._inside = 0  # threads that are in a callback: the leader, and those that it has replaced
        # When the clock looks at deadlines again; never after the first of them. And when it looks
        # whether more calls were told of than _seen.
        self._next = self._watch = math.inf
        self._seen = 0
        # Is written to where one of both has become earlier. (mypy's stubs have no eventfd.)
        self._earlier = os.eventfd(0)  # type: ignore[attr-defined]
        queue = ctypes.c_uint64()
        error = CError()
        _abi.check(lib.queue_open(ctypes.byref(queue), ctypes.byref(error)), error)
        self.queue = queue.value
        threading.Thread(target=self._keep_time, name="polyrail clock", daemon=True).start()
        self._add_leader(0)
        atexit.register(self.close)

    def close(self, limit: float = 1) -> None:
        """Ends the telling, before the interpreter ends.

        That stops each thread where it next takes the interpreter's lock. One that has C++ of torch
        below it then ends the process by an abort.
        """
        with self._lock:
            self._closed = True
            self._idle.wait_for(lambda: not self._inside, limit)

    def start(self, function: Callable[..., int], args: tuple, then: Callable[[Optional[Error], CResult], None],
              limit: float, has_result: bool = True, small: bool = False) -> None:
        """Makes a call; then is called with its outcome, on a thread. then holds its memory.

        A small call is polled for, for a moment. If it ends meanwhile, then is called here: to tell
        a thread takes longer than the call. After limit seconds the call ends with a Timeout. A
        call that cannot be made, as on a broken group, or fails in that moment raises its error
        here.
        """
        flight = _Flight(then, limit)
        with self._lock:
            if self._closed:
                raise RuntimeError("the interpreter ends: nobody can be told of a call any more")
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
        try:
            code = function(*args, ctypes.byref(async_), *map(ctypes.byref, tail))
        finally:  # also where Ctrl-C takes effect when the call returns
            flight.work = async_.work
            if not flight.work:
                with self._lock:
                    self._waiting.pop(tag, None)
        if code == _abi.PENDING:
            return
        _abi.check(code, error)
        then(None, result)

    def _add_leader(self, told: int) -> None:
        """Has another thread lead, unless another call is told of meanwhile."""
        try:
            name = "polyrail completions"
            threading.Thread(target=self._lead, args=(told,), name=name, daemon=True).start()
        except RuntimeError:
            pass  # there can be no more threads now: the clock tries again

    def _lead(self, told: int) -> None:
        me = threading.get_ident()
        with self._lock:
            if not self._telling or self._told != told or self._closed:
                return  # the leader has gone on, or nobody needs one
            self._leader = me
        poll, ended, count = select.poll(), (CCompletion * 64)(), ctypes.c_int()
        poll.register(lib.queue_fd(self.queue), select.POLLIN)
        tells = False
        while True:
            with self._lock:
                self._inside -= tells
                self._idle.notify_all()
                if self._leader != me:
                    return
                self._telling = tells = bool(self._ended) and not self._closed
                if self._closed:
                    return
                if tells:
                    work, tag = self._ended.popleft()
                    flight = self._waiting.pop(tag)
                    self._told += 1
                    self._inside += 1
                wake = tells and self._watch == math.inf
                if wake:
                    self._seen, self._watch = self._told, time.monotonic() + _PATIENCE
            if wake:
                os.eventfd_write(self._earlier, 1)  # type: ignore[attr-defined]
            if tells:
                result, error = CResult(), CError()
                code = lib.wait(work, 0, ctypes.byref(result), ctypes.byref(error))
                flight.then(_abi.error_of(error) if code else None, result)
                del flight  # and with it the memory of the call
            else:
                poll.poll()
                lib.queue_take(self.queue, ended, len(ended), ctypes.byref(count), None)
                self._ended.extend((c.work, c.tag) for c in ended[: count.value])

    def _keep_time(self) -> None:
        poll = select.poll()
        poll.register(self._earlier, select.POLLIN)
        while True:
            left = min(self._next, self._watch) - time.monotonic()
            if poll.poll(None if left == math.inf else max(0, min(left, 3600) * 1000)):
                os.eventfd_read(self._earlier)  # type: ignore[attr-defined]
            now = time.monotonic()
            if now >= self._next:
                self._expire()
            if now >= self._watch:
                self._relieve()

    def _relieve(self) -> None:
        """Has another thread lead if the leader is in the same callback as before."""
        with self._lock:
            told, same = self._told, self._told == self._seen
            held = self._telling and same
            self._seen = told
            self._watch = time.monotonic() + _PATIENCE if held or not same else math.inf
        if held:
            self._add_leader(told)

    def _expire(self) -> None:
        """Ends what is late: the others of a collective call are told, and its group is broken."""
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
                lib.expire(f.work, int(f.limit * 1e9), None)


_shared_lock = threading.Lock()
_shared: Optional[Completions] = None


def completions() -> Completions:
    """Those of this process."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = Completions()
        return _shared


def _forget() -> None:
    """A process that was forked has none of its parent's threads, and nobody gives the locks back."""
    global _shared, _shared_lock
    if _shared is not None:
        atexit.unregister(_shared.close)
    _shared, _shared_lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)
