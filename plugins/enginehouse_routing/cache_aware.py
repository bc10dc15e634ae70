"""The strategy ``cache_aware``, the default: picks the engine from which the first token is expected soonest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, ClassVar

import msgspec

from enginehouse import (
    Candidate,
    EngineCaches,
    Extractor,
    Placement,
    Prompt,
    PromptExtractor,
    PromptTokens,
    ReplicaState,
    Requirements,
    Strategy,
    Verdict,
    drop_prompt,
    prompt_of,
)
from enginehouse_routing.cached_blocks import CachedBlocks
from enginehouse_routing.engine_costs import CostParts, EngineCosts
from enginehouse_routing.shared_index import PrefixNews, SharedPrefixIndex

_WITHOUT_CACHE = (
    ReplicaState.STOPPED,
    ReplicaState.DOWNLOADING,
    ReplicaState.PLACING,
    ReplicaState.STARTING,
    ReplicaState.FAILED,
)
_CACHE_TOKENS = 500_000
"""The size of a prefix cache that is neither configured nor reported."""
_TRUSTED = 4
"""An engine whose events are all known may have so many times the tokens that it should have room for."""
_NOTHING: Mapping[str, int] = {}
_read_news = msgspec.msgpack.Decoder(list[PrefixNews]).decode


class CacheAwareConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``cache_tokens``: the size of one engine's prefix cache, by default what it reports, else 500,000.

    ``priority_s``: the seconds that a worse priority costs. A backend with a worse one is picked when those with a
    better one would answer that much later.
    """

    cache_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    priority_s: Annotated[float, msgspec.Meta(ge=0)] = 1.0


class _Memory(msgspec.Struct, frozen=True):
    """What is kept: what was learned of engines, by backend, and what they have cached, by replica."""

    sums: dict[str, tuple[float, float, float, float]]
    prefixes: dict[str, tuple[bytes, bytes]]


class CacheAware(Strategy):
    """Picks the candidate with the lowest cost: the seconds to the first token, and what the prompt costs the others.

    The seconds are those until a slot is free or the replica is loaded, those for prompts that were sent there before,
    and those for the part of this prompt that is not in the engine's prefix cache. An engine is assumed to have the
    beginnings of the prompts that it was sent last, ``cache_tokens`` of them. How long a token takes, and how long
    a request holds its slot, is learned from each engine's answers; one that was slow is tried again now and then. Of
    candidates that cost about the same, the one that was used least recently is picked.
    """

    Config: ClassVar[type[CacheAwareConfig]] = CacheAwareConfig
    binds_late = True

    def __init__(self, config: CacheAwareConfig) -> None:
        self._cache_tokens = config.cache_tokens
        self._prefixes = SharedPrefixIndex()
        self._caches: EngineCaches | None = None
        self._blocks = CachedBlocks(self._prefixes)
        self._costs = EngineCosts(config.priority_s)
        self._only: Candidate | None = None
        self._looked_up: tuple[Prompt | None, Mapping[str, int]] = None, _NOTHING
        """The prompt of the last pick, and what replicas had of it."""
        self._now: Callable[[], float] = lambda: 0.0

    def __deepcopy__(self, memo: object) -> CacheAware:
        """Return the strategy itself: a pick changes nothing that another pick reads."""
        return self

    def start(self, clock: Callable[[], float]) -> None:
        self._now = clock

    def use_caches(self, caches: EngineCaches) -> None:
        self._caches = caches
        caches.listen(self._blocks.happened)

    def extractors(self) -> Sequence[Extractor]:
        return [PromptExtractor()]

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        if len(candidates) == 1:  # there is nothing to decide, and so nothing to learn
            drop_prompt(requirements)
            self._only = candidates[0]
            return candidates[0]
        self._only = None
        cached = self._cached(requirements)
        self._looked_up = prompt_of(requirements), cached
        return self._costs.pick(candidates, cached, requirements.estimated_tokens)

    def placed(self, requirements: Requirements, chosen: Candidate) -> Placement | None:
        if chosen is self._only and chosen.state is ReplicaState.READY:
            return None
        prompt, cached = prompt_of(requirements), 0
        self._costs.used(chosen.backend)
        if chosen.state in _WITHOUT_CACHE:
            self._prefixes.forget(chosen.replica)
        if prompt is not None:
            picked, found = self._looked_up
            cached = (found if picked is prompt else self._prefixes.leading(prompt)).get(chosen.replica, 0)
            room = self._cache_tokens or chosen.load.cache_tokens or _CACHE_TOKENS
            if self._blocks.is_exact(chosen.backend):
                room *= _TRUSTED
            self._prefixes.note(chosen.replica, prompt, room)
        learning = _Learning(self._costs, self._now, chosen, max(0, requirements.estimated_tokens - cached))
        if prompt is not None:
            learning.tokens_of = self._tokens_of(prompt, chosen)
            prompt.drop_content()  # the request may live long
        return learning

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        """Return what each candidate costs, in milliseconds; the score is less their sum and that of its priority."""
        cached, tokens = self._cached(requirements), requirements.estimated_tokens
        explained = self._costs.explained(candidates, cached, tokens)
        return [self._verdict(*each, cached, tokens) for each in zip(candidates, explained, strict=True)]

    def score(self, requirements: Requirements, candidates: Sequence[Candidate], chosen: Candidate) -> float | None:
        """Return what the last pick found, if ``chosen`` was among the candidates."""
        cost = self._costs.last_cost(chosen) if self._only is None else None
        return _score(cost) if cost is not None else super().score(requirements, candidates, chosen)

    def learned(self) -> Mapping[str, Mapping[str, float]]:
        """Return each engine's rate, its requests' time in a slot, and the tokens of prompts without an answer yet."""
        return self._costs.learned()

    def _tokens_of(self, prompt: Prompt, chosen: Candidate) -> Callable[[], None] | None:
        """What finds out the tokens of ``prompt``, once the engine has read it; ``None`` if nobody needs them."""
        caches = self._caches
        if caches is None or not caches.follows(chosen.backend) or not self._blocks.needs(prompt):
            return None
        there = chosen.name_there or chosen.model
        lora = there if chosen.capabilities.parent is not None else ""
        link = partial(self._blocks.link, prompt, backend=chosen.backend, model=chosen.model, lora=lora)
        if prompt.ids is not None:
            return partial(link, PromptTokens(prompt.ids))
        return partial(caches.tokenize, chosen.backend, there, prompt.raw, link) if prompt.raw else None

    def news(self) -> bytes:
        news = self._prefixes.news()
        return msgspec.msgpack.encode(news) if news else b""

    def hear(self, news: bytes) -> None:
        self._prefixes.hear(_read_news(news))

    def remembered(self) -> bytes:
        return msgspec.msgpack.encode(_Memory(self._costs.sums(), self._prefixes.remembered()))

    def recall(self, remembered: bytes) -> None:
        memory = msgspec.msgpack.decode(remembered, type=_Memory)
        self._prefixes.recall(memory.prefixes)
        self._costs.recall(memory.sums)

    def _cached(self, requirements: Requirements) -> Mapping[str, int]:
        prompt = prompt_of(requirements)
        return self._prefixes.leading(prompt) if prompt is not None else _NOTHING

    def _verdict(
        self, candidate: Candidate, explained: tuple[float, CostParts], cached: Mapping[str, int], tokens: int
    ) -> Verdict:
        there = min(tokens, cached.get(candidate.replica, 0)) if candidate.state not in _WITHOUT_CACHE else 0
        cost, parts = explained
        figures = {
            "cached_tokens": there,
            "backlog_s": round(parts.wait, 6),
            "own_ms": round(1e3 * parts.own, 3),
            "harm_ms": round(1e3 * parts.harm, 3),
        }
        return Verdict(_score(cost), figures)


class _Learning(Placement):
    """A request at one engine: part of its backlog until the answer begins, then an example to learn from."""

    __slots__ = (
        *("_ahead", "_at", "_costs", "_engine", "_granted", "_host", "_now", "_replica", "_tokens", "_waits"),
        *("_adapter", "tokens_of", "_wake_s"),
    )

    def __init__(self, costs: EngineCosts, now: Callable[[], float], chosen: Candidate, tokens: int) -> None:
        self._costs = costs
        self._now = now
        self._engine = costs.engine(chosen.backend)
        self._tokens = tokens
        self.tokens_of: Callable[[], None] | None = None
        self._granted = self._ahead = 0.0
        self._at = self._waits = False
        self._host, self._replica = chosen.host, chosen.replica
        self._wake_s = chosen.wake_s
        self._adapter = (chosen.name_there or chosen.model) if chosen.capabilities.parent is not None else ""

    def queued(self) -> None:
        if self._wake_s:
            self._costs.loading.setdefault(self._host, {})[self._replica] = self._wake_s
        self._costs.expect(self._engine, self._tokens)
        self._waits = True
        if self._adapter:
            self._engine.begin_adapter(self._adapter)

    def granted(self) -> None:
        self._granted, self._at = self._now(), True
        self._ahead = max(0.0, self._engine.backlog - self._tokens)
        self._loaded()

    def first_byte(self) -> None:
        if self._at:
            self._costs.answered(self._engine, self._now() - self._granted, self._tokens + self._ahead)
        self._answered()
        if self.tokens_of is not None:
            self.tokens_of()
            self.tokens_of = None

    def ended(self) -> None:
        if self._at and not self._waits:
            self._costs.ended(self._engine, self._now() - self._granted)
        self._answered()
        self._loaded()
        if self._adapter:
            self._engine.end_adapter(self._adapter)

    def _answered(self) -> None:
        if self._waits:
            self._waits = False
            self._costs.expect(self._engine, -self._tokens)

    def _loaded(self) -> None:
        loading = self._costs.loading.get(self._host)
        if loading is not None:
            loading.pop(self._replica, None)


def _score(cost: float) -> float:
    return round(-1e3 * cost, 3)
