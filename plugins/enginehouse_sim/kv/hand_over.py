"""Requests whose prompt one engine reads and another one answers: both ends, in one engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from enginehouse_sim.kv.block_hashes import BlockHasher
from enginehouse_sim.kv.offers import KvOffer, KvOffers
from enginehouse_sim.kv.source import KvSource
from enginehouse_sim.scheduler.request import RequestState, RequestStatus
from enginehouse_sim.steps.transfer import KvTransfer

FETCH_TIMEOUT = 480.0
"""Seconds for which blocks are kept for whoever is to fetch them."""


class HandOver(KvSource):
    """Follows ``kv_transfer_params``, with vLLM's keys.

    A request with ``do_remote_decode`` leaves its blocks to be fetched when it ends by its length; its client gets what
    it has to say elsewhere. A request with ``do_remote_prefill`` fetches them from where the other keys point to, as
    far as they hold its own tokens; if nothing is there any more, it is computed here. ``address``: host and port at
    which this engine is known to others.
    """

    def __init__(
        self,
        engine_id: str,
        offers: KvOffers,
        hasher: BlockHasher,
        transfer: KvTransfer,
        now: Callable[[], float],
        address: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        self._engine_id = engine_id
        self._offers = offers
        self._hasher = hasher
        self._transfer = transfer
        self._now = now
        self._address = address
        self._fetching: dict[str, tuple[str, str]] = {}

    @property
    def version(self) -> int:
        """Changes when an offer was closed."""
        return self._offers.version

    def match(self, request: RequestState, num_computed_tokens: int) -> int:
        """Up to all tokens of the request: the last block need not be full."""
        key = _origin(request)
        offer = self._offers.find(*key) if key is not None else None
        if offer is None:
            return 0
        return max(0, self._num_common_tokens(request, offer) - num_computed_tokens)

    def seconds(self, num_tokens: int) -> float:
        """The link's time for so many tokens."""
        return self._transfer.seconds(num_tokens)

    def claim(self, request: RequestState, num_tokens: int) -> None:
        """Begin to fetch; or tell the other engine that nothing is needed."""
        key = _origin(request)
        if key is None:
            return
        if num_tokens:
            self._offers.fetch(*key)
            self._fetching[request.request_id] = key
        elif self._offers.find(*key) is not None:
            self._offers.close(*key)

    def delivered(self, request_id: str) -> None:
        """The other engine may reuse its blocks."""
        self._offers.close(*self._fetching.pop(request_id))

    def forget(self, request: RequestState) -> None:
        """Nothing will be fetched for a request that ended before its turn."""
        self.claim(request, 0)

    def request_finished(
        self, request: RequestState, block_ids: Sequence[int]
    ) -> tuple[bool, Mapping[str, Any] | None]:
        """Whether the blocks are kept for another engine, and what the client has to tell it."""
        params = request.kv_transfer_params
        wanted = params is not None and params.get("do_remote_decode")
        if not wanted or not block_ids or request.status is not RequestStatus.FINISHED_LENGTH_CAPPED:
            return False, None
        return True, self.offer(request, block_ids)

    def offer(self, request: RequestState, block_ids: Sequence[int]) -> Mapping[str, Any]:
        """Let another engine fetch what is computed of a request; the ``kv_transfer_params`` with which it can.

        Its blocks have to be kept until ``finished_sending`` names it.
        """
        num_tokens = min(request.num_computed_tokens, request.num_tokens - 1)
        hashes = self._hasher.extend(request)[: num_tokens // self._hasher.block_size]
        self._offers.open(
            KvOffer(
                engine_id=self._engine_id,
                request_id=request.request_id,
                num_tokens=num_tokens,
                block_hashes=tuple(hashes),
                beginning=self._hasher.of_beginning(request, num_tokens),
                expires_at=self._now() + FETCH_TIMEOUT,
            )
        )
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_engine_id": self._engine_id,
            "remote_request_id": request.request_id,
            "remote_block_ids": list(block_ids),
            "remote_host": self._address[0],
            "remote_port": self._address[1],
            "tp_size": 1,
        }

    def finished_sending(self) -> Sequence[str]:
        """Requests whose blocks were fetched, or waited for in vain, since this was asked before."""
        return self._offers.take_closed(self._engine_id, self._now())

    def _num_common_tokens(self, request: RequestState, offer: KvOffer) -> int:
        if self._hasher.of_beginning(request, offer.num_tokens) == offer.beginning:
            return offer.num_tokens
        pairs = zip(self._hasher.extend(request), offer.block_hashes, strict=False)
        same = takewhile(lambda pair: pair[0] == pair[1], pairs)
        return sum(1 for _ in same) * self._hasher.block_size


def _origin(request: RequestState) -> tuple[str, str] | None:
    """The engine and the request there that a request goes on from."""
    params = request.kv_transfer_params
    if params is None or not params.get("do_remote_prefill") or "remote_engine_id" not in params:
        return None
    return str(params["remote_engine_id"]), str(params.get("remote_request_id", request.request_id))
