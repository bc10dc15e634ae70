"""What is known of a request once it has ended: its figures and its trace are made from it."""

from __future__ import annotations

import msgspec

from enginehouse.domain.route import Route


class AttemptRecord(msgspec.Struct, frozen=True, gc=False):
    """One try of a request at one replica. All times are in ``perf_counter`` seconds; 0 if it never came to that.

    ``queued``: the backend has a queue, which granted the attempt at ``granted``. ``sent``: the engine may have the
    request. ``first_byte``: the first byte of the engine's body came. ``status``: of the engine's answer.
    ``outcome``: ``served``; ``answered``, if the answer was a reason to ask another replica; ``client_left``; or the
    code of the error that ended the attempt.
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
