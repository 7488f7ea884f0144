"""The forms of a collective call: one that blocks, one that is only started, and one that is prepared."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Callable, Concatenate, ParamSpec

from ._work import Call, Work

if TYPE_CHECKING:
    from ._comm import Communicator
    from ._spec import Spec

_P = ParamSpec("_P")


def blocking(
    prepare: Callable[Concatenate[Communicator, _P], Spec],
) -> Callable[Concatenate[Communicator, _P], None]:
    """The method that makes a call and waits for its end."""

    @functools.wraps(prepare)
    def method(self: Communicator, *args: _P.args, **kwargs: _P.kwargs) -> None:
        self._run(prepare(self, *args, **kwargs))

    return _returns(method, "None")


def started(
    method_of: Callable[Concatenate[Communicator, _P], None],
) -> Callable[Concatenate[Communicator, _P], Work]:
    """The method that begins what a blocking one does."""
    prepare = method_of.__wrapped__  # type: ignore[attr-defined]

    @functools.wraps(prepare)
    def method(self: Communicator, *args: _P.args, **kwargs: _P.kwargs) -> Work:
        c = self._call(prepare(self, *args, **kwargs))
        work = self._launch(c.keep, c.function, *c.args)
        c.reuse()
        return work

    return _returns(method, "Work", "start", f"Begins what {prepare.__name__} does, with the same arguments.")


def prepared(
    method_of: Callable[Concatenate[Communicator, _P], None],
) -> Callable[Concatenate[Communicator, _P], Prepared]:
    """The method that prepares what a blocking one does."""
    prepare = method_of.__wrapped__  # type: ignore[attr-defined]

    @functools.wraps(prepare)
    def method(self: Communicator, *args: _P.args, **kwargs: _P.kwargs) -> Prepared:
        return Prepared(self, prepare(self, *args, **kwargs))

    what = f"What {prepare.__name__} does, with the same arguments, to be made many times."
    return _returns(method, "Prepared", "prepare", what)


def _returns(method: Any, type_: str, form: str = "", doc: str = "") -> Any:
    """Has help show what a method returns, and not what prepares it; and what its form is."""
    method.__signature__ = inspect.signature(method).replace(return_annotation=type_)
    if form:
        method.__name__ = f"{form}_{method.__name__}"
        method.__qualname__, method.__doc__ = f"Communicator.{method.__name__}", doc
    return method


class Prepared:
    """A collective call that is made many times. It comes from a prepare method of a communicator.

    Its arguments are put in order once. Other ranks may make the same call in another form. Buffers
    may hold other values each time, and cannot be resized as long as the object lives.
    """

    __slots__ = ("_comm", "_idle")

    def __init__(self, comm: Communicator, spec: Spec) -> None:
        self._comm = comm
        self._idle = [(spec, comm._call(spec))]  # without it while run is called

    def run(self) -> None:
        """Makes the call and waits for its end. By one thread at a time."""
        made = spec, c = self._take()
        try:
            if not self._comm._quickly(spec):
                c.run()
        finally:
            self._idle.append(made)

    def start(self) -> Work:
        """Begins the call. Several are in flight at once only if their buffers may be read so."""
        made = _, c = self._take()
        try:
            return self._comm._launch(c.keep, c.function, *c.args)
        finally:
            self._idle.append(made)

    def _take(self) -> tuple[Spec, Call]:
        try:
            return self._idle.pop()
        except IndexError:
            raise RuntimeError("another thread is in a call of this object") from None
