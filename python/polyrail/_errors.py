"""The errors of a call, by what went wrong."""

from __future__ import annotations

from typing import Optional


class Error(RuntimeError):
    """A call failed. Fields that are not known are None.

    rank and node name the culprit, or the other side: the rank that is lost, that called something
    else, or that ended the operation. rail is the network at fault. seq is the number of the
    operation in its communicator.
    """

    def __init__(
        self,
        text: str,
        rank: Optional[int] = None,
        node: Optional[str] = None,
        rail: Optional[str] = None,
        seq: Optional[int] = None,
    ) -> None:
        super().__init__(text)
        self.rank = rank
        self.node = node
        self.rail = rail
        self.seq = seq


class ForkedError(Error):
    """This process was forked after polyrail was loaded. Start processes by spawn instead."""


class Canceled(Error):
    """The call was canceled here."""


class RankLost(Error):
    """The process or host of a rank is gone."""


class Mismatch(Error):
    """Ranks called different operations."""


class Minority(Error):
    """Too few members are left of a communicator to go on."""


class Timeout(Error, TimeoutError):
    """It took too long."""


class RailFailed(Error):
    """A rail failed or cannot be used."""


class Closed(Error):
    """The communicator or the node was closed."""


class Aborted(Error):
    """Another rank ended the operation."""


class Broken(Error):
    """An earlier operation broke the communicator."""


class ViewError(Error):
    """A communicator could not be formed."""


class ConfigError(Error, ValueError):
    """The settings have faults."""


class ArgumentError(Error, ValueError):
    """An argument cannot be."""


class LimitError(Error):
    """A limit of the runtime was reached."""


class InternalError(Error):
    """A part of polyrail failed."""


# By code of polyrail.h.
BY_CODE: dict[int, type[Error]] = {
    2: ForkedError,
    3: Canceled,
    4: RankLost,
    5: Mismatch,
    6: Minority,
    7: Timeout,
    8: RailFailed,
    9: Closed,
    10: Aborted,
    11: Broken,
    12: ViewError,
    13: ConfigError,
    14: ArgumentError,
    15: LimitError,
    16: InternalError,
    17: Error,
}
