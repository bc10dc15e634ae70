"""Extension point: decisions inside a simulated engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol


class EngineRequest(Protocol):
    """A request at a simulated engine, to read; lengths are in tokens.

    ``priority``: smaller is more urgent. ``arrival_time``: in seconds on the engine's clock. ``num_tokens``: the prompt
    and the answer so far, of which ``num_computed_tokens`` are in the KV cache. ``max_tokens``: the most of the answer.
    """

    @property
    def request_id(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def arrival_time(self) -> float: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def num_computed_tokens(self) -> int: ...
    @property
    def num_preemptions(self) -> int: ...
    @property
    def num_prompt_tokens(self) -> int: ...
    @property
    def num_tokens(self) -> int: ...


class EngineStep(Protocol):
    """The load of one step, to read; lengths are in tokens.

    ``prefill_tokens``: of prompts. ``prefill_pairs``, ``own_pairs``: the pairs of these and of earlier tokens, and of
    these with each other. ``first_tokens``: the prompts that end. ``decodes``: the requests that generate.
    ``draft_tokens``: drafts verified. ``active_kv_tokens``: cached tokens that generating requests read.
    ``total_kv_tokens``: the capacity of the cache.
    """

    @property
    def prefill_tokens(self) -> int: ...
    @property
    def prefill_pairs(self) -> int: ...
    @property
    def own_pairs(self) -> int: ...
    @property
    def first_tokens(self) -> int: ...
    @property
    def decodes(self) -> int: ...
    @property
    def draft_tokens(self) -> int: ...
    @property
    def active_kv_tokens(self) -> int: ...
    @property
    def total_kv_tokens(self) -> int: ...


class CachedBlock(NamedTuple):
    """A cached block without references. ``uses``: how often a request has found it since it was computed."""

    block: int
    uses: int


class EnginePolicy:
    """Decides inside a simulated engine. Chosen by ``simulator.policy``.

    Override what should differ: the engine asks only methods that are overridden, and else decides as vLLM does. All
    decisions are pure: the same arguments always lead to the same result.
    """

    def order(self, request: EngineRequest) -> Any:
        """The sort key of a waiting request, which must not change while it waits: the smallest is admitted first.

        Of equals, preempted requests come first, then those that arrived earlier.
        """
        return 0

    def victim(self, running: Sequence[EngineRequest]) -> int:
        """The index of the request to preempt when blocks run out. ``running``: in the order of admission."""
        return len(running) - 1

    def evict(self, blocks: Sequence[CachedBlock]) -> int:
        """The index of the cached block whose content gives way. ``blocks``: in the order in which they became free."""
        return 0

    def seconds(self, step: EngineStep, seconds: float) -> float:
        """The duration of a step. ``seconds``: that of the engine's profile."""
        return seconds
