"""Multimodal inputs: the cache of encoded ones, and which of them a step encodes."""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from enginehouse_sim.simulator.domain.request import RequestState


class EncoderCache:
    """At most ``size`` tokens. Requests share equal content, and content that no request holds stays until evicted.

    The cache first evicts the content that was released first.
    """

    def __init__(self, size: int) -> None:
        self.num_free = size
        self.num_evictable = size
        self._holders: dict[str, set[str]] = {}
        self._held: dict[str, list[int]] = {}
        self._released: OrderedDict[str, int] = OrderedDict()

    @property
    def in_use(self) -> bool:
        return bool(self._held)

    def share(self, request: RequestState, index: int) -> bool:
        """Hold an input that is encoded, or will be after the step planned last. Return whether it is."""
        source = request.mm_inputs[index]
        holders = self._holders.get(source.identifier)
        if holders is None:
            return False
        if not holders:
            self.num_evictable -= self._released.pop(source.identifier)
        holders.add(request.request_id)
        self._note(request, index)
        return True

    def make_room(self, num_tokens: int) -> bool:
        """Evict content until ``num_tokens`` are free. Return ``False``, and evict nothing, if they cannot be."""
        if num_tokens > self.num_evictable:
            return False
        while num_tokens > self.num_free:
            identifier, length = self._released.popitem(last=False)
            del self._holders[identifier]
            self.num_free += length
        return True

    def hold(self, request: RequestState, index: int) -> None:
        """Keep an input that the next step encodes, after ``make_room``."""
        source = request.mm_inputs[index]
        self._holders.setdefault(source.identifier, set()).add(request.request_id)
        self.num_free -= source.length
        self.num_evictable -= source.length
        self._note(request, index)

    def release_computed(self, request: RequestState, num_computed_tokens: int) -> None:
        """Release the inputs that end within the first ``num_computed_tokens``."""
        for index in tuple(self._held.get(request.request_id, ())):
            source = request.mm_inputs[index]
            if source.offset + source.length <= num_computed_tokens:
                self._release(request, index)

    def release_all(self, request: RequestState) -> None:
        for index in tuple(self._held.get(request.request_id, ())):
            self._release(request, index)

    def _note(self, request: RequestState, index: int) -> None:
        held = self._held.setdefault(request.request_id, [])
        if index not in held:
            insort(held, index)

    def _release(self, request: RequestState, index: int) -> None:
        source = request.mm_inputs[index]
        held = self._held[request.request_id]
        held.remove(index)
        if not held:
            del self._held[request.request_id]
        if any(request.mm_inputs[other].identifier == source.identifier for other in held):
            return
        holders = self._holders[source.identifier]
        holders.remove(request.request_id)
        if not holders:
            self._released[source.identifier] = source.length
            self.num_evictable += source.length


class EncoderPlan(NamedTuple):
    """How many tokens are possible, which inputs to encode for them, and which others are equal to one of these."""

    num_new_tokens: int
    to_encode: Sequence[int] = ()
    duplicates: Sequence[int] = ()
    cost: int = 0


def plan_encoder(
    cache: EncoderCache,
    reads_ahead: bool,
    request: RequestState,
    num_computed_tokens: int,
    num_new_tokens: int,
    budget: int,
) -> EncoderPlan:
    """Stop before the first input that exceeds ``budget`` or the cache; ``cost`` is in tokens.

    ``reads_ahead``: the drafter reads a token beyond those computed. Inputs that are encoded already are held for the
    request at once, even if its step fails later, as in vLLM.
    """
    if not request.mm_inputs or not num_new_tokens:
        return EncoderPlan(num_new_tokens)
    to_encode: dict[str, int] = {}
    duplicates: list[int] = []
    cost = 0
    first = num_computed_tokens + reads_ahead
    end = first + num_new_tokens
    for index, source in enumerate(request.mm_inputs):
        if source.offset >= end:
            break
        if source.offset + source.length <= num_computed_tokens:
            continue
        if source.identifier in to_encode:
            duplicates.append(index)
            continue
        if cache.share(request, index):
            continue
        if source.length > budget - cost or not cache.make_room(cost + source.length):
            num_new_tokens = max(0, source.offset - first)
            break
        to_encode[source.identifier] = index
        cost += source.length
    return EncoderPlan(num_new_tokens, tuple(to_encode.values()), duplicates, cost)
