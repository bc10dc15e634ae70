"""The strategy ``session``: the requests of a session go to one engine while it has room."""

from __future__ import annotations

import random
from collections.abc import Sequence
from hashlib import blake2b
from math import ceil
from typing import Annotated, ClassVar

import msgspec

from enginehouse import Candidate, Requirements, Strategy, Verdict
from enginehouse_routing.pending import fewest_pending


class SessionConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``bound``: how many times its share of the pending requests an engine may have and still get more.

    ``seed``: of the choices for requests without a session; without one, they differ each time.
    """

    bound: Annotated[float, msgspec.Meta(ge=1)] = 1.25
    seed: int | None = None


class Session(Strategy):
    """Picks for each session one candidate by rendezvous hashing, or its next one while that one is above its bound.

    The session is what ``routing.session`` finds in the request. Equal sessions meet at the same candidate at every
    gateway, and a candidate that comes or goes moves only its own sessions. A request without a session goes where the
    fewest requests are.
    """

    Config: ClassVar[type[SessionConfig]] = SessionConfig
    reads_session = True

    def __init__(self, config: SessionConfig) -> None:
        self._bound = config.bound
        self._random = random.Random(config.seed)

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        if not requirements.session:
            return fewest_pending(candidates, self._random)
        most = self._most(candidates)
        within = [each for each in candidates if each.load.pending < most]
        return max(within, key=lambda each: _weight(requirements.session, each))

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        """Return each candidate's weight for the session, and whether it is within its bound."""
        most = self._most(candidates)
        return [
            Verdict(
                _weight(requirements.session, each),
                {"pending": each.load.pending, "within_bound": float(each.load.pending < most)},
            )
            for each in candidates
        ]

    def _most(self, candidates: Sequence[Candidate]) -> int:
        """The requests at which a candidate gets no more of a session; at least one candidate has fewer."""
        pending = sum([each.load.pending for each in candidates]) + 1
        return ceil(self._bound * pending / len(candidates))


def _weight(session: str, candidate: Candidate) -> float:
    """A number from 0 to 1 that is the same at every gateway."""
    text = f"{session}\0{candidate.replica}".encode(errors="replace")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") / 2**64
