"""The ``fair`` scheduler: callers share engines, whoever sends more."""

from __future__ import annotations

from typing import ClassVar

from enginehouse_scheduling.fifo import Fifo


class Fair(Fifo):
    """As ``fifo``, but requests of the same priority take turns by callers, in proportion to their keys' ``weight``.

    A caller's turn comes the later the more tokens its requests have used. Turns are given on arrival and shared by all
    hosts and models. Requests without a key are one caller.
    """

    shares: ClassVar[bool] = True
