"""The encoder cache: encoded multimodal inputs, until the prompt is computed past them."""

from __future__ import annotations

from enginehouse_sim.simulator.domain.request import RequestState


class EncoderCache:
    """At most ``size`` tokens. Requests that need equal content at the same time share it."""

    def __init__(self, size: int) -> None:
        self.num_free = size
        self._holders: dict[str, int] = {}
        self._held: dict[str, list[int]] = {}
        self._released: list[tuple[str, int]] = []

    def has(self, identifier: str) -> bool:
        """Whether the content is encoded, or will be after the step planned last."""
        return identifier in self._holders

    def holds(self, request: RequestState, index: int) -> bool:
        """Whether the request holds its input ``index`` here."""
        return index in self._held.get(request.request_id, ())

    def hold(self, request: RequestState, index: int) -> None:
        """Keep an input for the request."""
        source = request.mm_inputs[index]
        holders = self._holders.get(source.identifier, 0)
        if not holders:
            self.num_free -= source.length
        self._holders[source.identifier] = holders + 1
        self._held.setdefault(request.request_id, []).append(index)

    def release_computed(self, request: RequestState) -> None:
        """Release the inputs that end within the request's computed tokens."""
        for index in tuple(self._held.get(request.request_id, ())):
            source = request.mm_inputs[index]
            if source.offset + source.length <= request.num_computed_tokens:
                self._release(request, index)

    def release_all(self, request: RequestState) -> None:
        """Release all inputs of the request."""
        for index in tuple(self._held.get(request.request_id, ())):
            self._release(request, index)

    def take_released(self) -> list[tuple[str, int]]:
        """The (request, index) pairs released since the last call."""
        released, self._released = self._released, []
        return released

    def _release(self, request: RequestState, index: int) -> None:
        source = request.mm_inputs[index]
        held = self._held[request.request_id]
        held.remove(index)
        if not held:
            del self._held[request.request_id]
        self._holders[source.identifier] -= 1
        if not self._holders[source.identifier]:
            del self._holders[source.identifier]
            self.num_free += source.length
        self._released.append((request.request_id, index))
