"""The record of a request that has ended, from which its figures, its log line and its trace are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec

from enginehouse.domain.route import Route


class _AnyAttempt(Protocol):
    """The fields that the records of an attempt, here and in the exporter, have in common."""

    @property
    def outcome(self) -> str: ...
    @property
    def first_byte(self) -> float: ...


_Attempt = TypeVar("_Attempt", bound=_AnyAttempt)


class AttemptRecord(msgspec.Struct, frozen=True, gc=False):
    """One try of a request at one replica. All times are in seconds of the gateway's clock; 0 for a step not reached.

    ``queued``: the backend has a queue, which granted the attempt at ``granted``. ``sent``: the engine may have the
    request. ``first_byte``: the first byte of the engine's body came. ``status``: of the engine's answer.
    ``outcome``: ``served``; ``answered``, if the answer was a reason to ask another replica; ``overtaken``, if a rival
    began first; ``moved``; ``client_left``; or the code of the error that ended the attempt. Of attempts at the same
    time, the one that the client got is the last.
    """

    route: Route
    outcome: str
    began: float
    ended: float
    queued: bool = False
    granted: float = 0.0
    sent: float = 0.0
    first_byte: float = 0.0
    status: int = 0


def first_answered(attempts: Sequence[_Attempt]) -> _Attempt:
    """The attempt that gave the client its first byte, whichever others continued its stream; else the last one."""
    return next((each for each in attempts if each.first_byte and each.outcome != "answered"), attempts[-1])


class SwapRecord(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One swap. Times are in seconds of the gateway's clock. ``outcome``: ``ready`` or ``failed``."""

    target: str
    evicted: tuple[str, ...]
    began: float
    ended: float
    outcome: str


class Tokens(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A request's tokens. ``source``: ``usage`` if the engine counted them, ``chunks`` if the events of a stream were
    counted instead, empty if they are unknown.
    """

    input: int = 0
    output: int = 0
    source: str = ""


NO_TOKENS = Tokens()


class Ending(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The end of a request. ``status``: that the client got, or would have got. ``outcome``: the last attempt's, or the
    code of the error that no attempt caused. ``message``: the error's. ``sent_bytes``: of the body, to the client.
    ``events``: of a stream.
    """

    status: int
    outcome: str
    message: str = ""
    tokens: Tokens = NO_TOKENS
    sent_bytes: int = 0
    events: int = 0
