"""The strategy ``session``: the requests of a session go to one engine while it has room."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from math import ceil, inf, log
from typing import Annotated, ClassVar

import msgspec

from enginehouse import Candidate, Requirements, Strategy
from enginehouse.routing_facts import Verdict
from enginehouse_routing.draws import Draws
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
        self._draws = Draws(config.seed)

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        if not requirements.session:
            return fewest_pending(candidates, self._draws.first)
        within = self._within(candidates)
        return max(within, key=lambda each: _rank(requirements.session, each))

    def placed(self, requirements: Requirements, chosen: Candidate) -> None:
        if not requirements.session:
            self._draws.renew()

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        """Return each candidate's rank for the session, and whether it is within its bound."""
        within = {each.replica for each in self._within(candidates)}
        return [
            Verdict(
                _rank(requirements.session, each),
                {"pending": each.load.pending, "within_bound": float(each.replica in within)},
            )
            for each in candidates
        ]

    def _within(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """The candidates that may get more; there is at least one."""
        share = self._bound * (sum([each.load.pending for each in candidates]) + 1)
        share /= sum([each.weight for each in candidates])
        return [each for each in candidates if each.load.pending < ceil(share * each.weight)]


def _rank(session: str, candidate: Candidate) -> float:
    """A number that is the same at every gateway.

    It is the highest of all for a share of the sessions in proportion to the candidate's weight: Schindelhauer,
    Schomaker, "Weighted distributed hash tables" (2005).
    """
    text = f"{session}\0{candidate.replica}".encode(errors="replace")
    drawn = (int.from_bytes(blake2b(text, digest_size=8).digest(), "big") + 1) / 2**64
    return candidate.weight / -log(drawn) if drawn < 1 else inf
