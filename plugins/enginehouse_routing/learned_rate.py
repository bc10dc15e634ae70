"""What is learned of one engine from its answers. Compiled: it runs for every request."""

from __future__ import annotations

from typing import Final

from enginehouse import Candidate

_KEPT: Final = 0.97
"""The weight that older answers keep when a new one comes."""
_ADAPTER_S: Final = 0.1
"""Seconds to load a LoRA adapter. vLLM reads one of rank 16 for 8 billion parameters, 80 MB, from memory or a disk."""
_MOST_ADAPTERS: Final = 256
"""Adapters that are remembered of an engine."""


class LearnedRate:
    """Means over the last answers; 0 before the first.

    ``per_token``: seconds for a token of a prompt. ``in_slot``: seconds from grant to end.
    """

    __slots__ = ("_requests", "_seconds", "_slot_seconds", "_tokens", "in_slot", "per_token")

    def __init__(self) -> None:
        self.per_token = self.in_slot = 0.0
        self._seconds = self._tokens = 0.0
        self._slot_seconds = self._requests = 0.0

    def answered(self, seconds: float, tokens: float) -> None:
        """Add a first token that came ``seconds`` after the request was sent, with so many ``tokens`` to read."""
        self._seconds = _KEPT * self._seconds + seconds
        self._tokens = _KEPT * self._tokens + tokens
        self.per_token = self._seconds / self._tokens

    def fade(self, share: float) -> None:
        """Keep ``share`` of the weight of the answers so far, so that the next one decides the more."""
        self._seconds *= share
        self._tokens *= share

    @property
    def sums(self) -> tuple[float, float, float, float]:
        """What the means are made of: weighted seconds and tokens, seconds in slots and requests."""
        return self._seconds, self._tokens, self._slot_seconds, self._requests

    def recall(self, sums: tuple[float, float, float, float]) -> None:
        """Go on from the ``sums`` of another one."""
        self._seconds, self._tokens, self._slot_seconds, self._requests = sums
        if self._tokens:
            self.per_token = self._seconds / self._tokens
        if self._requests:
            self.in_slot = self._slot_seconds / self._requests

    def ended(self, seconds: float) -> None:
        """Add a request that held its slot for so many ``seconds``."""
        self._slot_seconds = _KEPT * self._slot_seconds + seconds
        self._requests = _KEPT * self._requests + 1
        self.in_slot = self._slot_seconds / self._requests


class EngineState:
    """What is known of the engine of a backend. ``backlog``: tokens of prompts that are there without an answer yet.

    ``adapters``: the LoRA adapters that it was asked for, least recently asked for first, with their live requests.
    """

    __slots__ = ("adapters", "backend", "backlog", "learned", "used")

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.adapters: dict[str, int] = {}
        self.learned = LearnedRate()
        self.backlog = 0.0
        self.used = 0
        """The turn in which it was picked last; 0 for never."""

    def begin_adapter(self, name: str) -> None:
        """Count a request for an adapter."""
        known = self.adapters
        known[name] = known.pop(name, 0) + 1
        if len(known) > _MOST_ADAPTERS:
            for idle in [each for each, live in known.items() if not live]:
                del known[idle]
                break

    def end_adapter(self, name: str) -> None:
        """Count the end of a request for an adapter."""
        if name in self.adapters:
            self.adapters[name] -= 1

    def adapter_s(self, candidate: Candidate, usual_in_slot: float) -> float:
        """Seconds until the engine has loaded the adapter that ``candidate`` is; 0 if it has.

        An engine has the adapters that it was asked for last, as many as it runs at once. If all of these are in use,
        the next one waits until a request ends, which takes ``usual_in_slot`` seconds until this one has told.
        """
        name, load = candidate.name_there or candidate.model, candidate.load
        active: tuple[str, ...] = load.adapters
        most: int = load.max_adapters
        asked = list(self.adapters)
        if name in active or name in (asked[max(0, len(asked) - most) :] if most else asked):
            return 0.0
        busy = {each for each, live in self.adapters.items() if live}
        busy.update(active)
        if not most or len(busy) < most:
            return _ADAPTER_S
        return _ADAPTER_S + (self.learned.in_slot or usual_in_slot or _ADAPTER_S)
