"""What engines keep ready for one another: the keys and values of requests that go on elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class KvOffer(msgspec.Struct, frozen=True, kw_only=True):
    """The keys and values of the first tokens of a request, in the blocks of the engine that computed them.

    ``block_hashes`` name its full blocks, ``beginning`` all of it. ``expires_at``: seconds on the engines' clock, after
    which nobody is waited for.
    """

    engine_id: str
    request_id: str
    num_tokens: int
    block_hashes: Sequence[int]
    beginning: int
    expires_at: float


class KvOffers:
    """All open offers that engines of one process know of. ``version`` changes whenever one is closed."""

    def __init__(self) -> None:
        self.version = 0
        self._open: dict[str, dict[str, KvOffer]] = {}
        self._fetched: set[tuple[str, str]] = set()
        self._closed: dict[str, list[str]] = {}

    def open(self, offer: KvOffer) -> None:
        """Others may fetch it from now on."""
        self._open.setdefault(offer.engine_id, {})[offer.request_id] = offer

    def find(self, engine_id: str, request_id: str) -> KvOffer | None:
        """The offer, if it is open and nobody fetches it yet."""
        if (engine_id, request_id) in self._fetched:
            return None
        return self._open.get(engine_id, {}).get(request_id)

    def fetch(self, engine_id: str, request_id: str) -> None:
        """Somebody begins to read it: nobody else finds it, and it does not expire before it is closed."""
        self._fetched.add((engine_id, request_id))

    def close(self, engine_id: str, request_id: str) -> None:
        """Nobody needs it any more; no error if it is closed already."""
        if self._open.get(engine_id, {}).pop(request_id, None) is None:
            return
        self._fetched.discard((engine_id, request_id))
        self._closed.setdefault(engine_id, []).append(request_id)
        self.version += 1

    def take_closed(self, engine_id: str, now: float) -> Sequence[str]:
        """Which offers of an engine were closed, or expired, since it last asked: it may reuse their blocks."""
        expired = [
            offer.request_id
            for offer in self._open.get(engine_id, {}).values()
            if offer.expires_at <= now and (engine_id, offer.request_id) not in self._fetched
        ]
        for request_id in expired:
            self.close(engine_id, request_id)
        return self._closed.pop(engine_id, ())
