"""The strategy ``cache_aware``, the default: picks the engine from which the first token is expected soonest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import ClassVar, Final

import msgspec

from enginehouse import Candidate, Extractor, ReplicaState, Requirements, Strategy
from enginehouse.engine_caches import EngineCaches, PromptTokens
from enginehouse.routing_facts import Placement, PrefixFacts, Verdict
from enginehouse_kit.prefixes import Prompt, PromptExtractor, prompt_of
from enginehouse_routing.cache_aware_config import CacheAwareConfig, LearnedMemory
from enginehouse_routing.cached_blocks import CachedBlocks
from enginehouse_routing.engine_costs import CostParts, EngineCosts
from enginehouse_routing.known_sections import KnownSections
from enginehouse_routing.learning import Learning
from enginehouse_routing.prefix_news import PrefixNews
from enginehouse_routing.shared_index import SharedPrefixIndex

_WITHOUT_CACHE: Final = frozenset(
    {
        ReplicaState.STOPPED,
        ReplicaState.DOWNLOADING,
        ReplicaState.PLACING,
        ReplicaState.STARTING,
        ReplicaState.FAILED,
    }
)
_CACHE_TOKENS: Final = 500_000
"""The size of a prefix cache that is neither configured nor reported."""
_TRUSTED: Final = 4
"""An engine whose events are all known may have so many times the tokens that it should have room for."""
_NOTHING: Final[Mapping[str, int]] = {}
_PROMPTS: Final = PromptExtractor()
"""One object, so that it runs once for all strategies of this kind."""
_read_news: Final = msgspec.msgpack.Decoder(list[PrefixNews]).decode


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
        self._sections = KnownSections()
        self._costs = EngineCosts(config.priority_s, self._prefixes.crowded)
        self._only: Candidate | None = None
        self._plain: Candidate | None = None
        """The last pick, if it was ready and no adapter, as all of its candidates."""
        self._picked: Requirements | None = None
        self._prompt: Prompt | None = None
        self._cached: Mapping[str, int] = _NOTHING
        """The last pick: its requirements, the prompt, and what replicas had of it."""
        self._now: Callable[[], float] = lambda: 0.0

    def __deepcopy__(self, memo: object) -> CacheAware:
        """Return the strategy itself: a pick changes nothing that another pick reads."""
        return self

    def start(self, clock: Callable[[], float]) -> None:
        self._now = self._costs.now = clock

    def use_waiting(self, waiting: Mapping[str, int]) -> None:
        self._costs.waiting = waiting

    def use_caches(self, caches: EngineCaches) -> None:
        self._caches = caches
        caches.listen(self._blocks.happened)

    def extractors(self) -> Sequence[Extractor]:
        return [_PROMPTS]

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        if len(candidates) == 1:
            self._only, self._picked = candidates[0], None
            return candidates[0]
        self._only, self._picked = None, requirements
        self._prompt = prompt = prompt_of(requirements)
        self._cached = cached = self._prefixes.leading(prompt) if prompt is not None else _NOTHING
        chosen = self._costs.pick(candidates, cached, requirements.estimated_tokens, requirements.stream)
        self._plain = chosen if self._costs.were_plain else None
        return chosen

    def placed(self, requirements: Requirements, chosen: Candidate) -> Placement | None:
        is_picked, is_plain, there = requirements is self._picked, chosen is self._plain, _NOTHING
        prompt = self._prompt if is_picked else prompt_of(requirements)
        engine = self._costs.used(chosen.backend)
        if not is_plain and chosen.state in _WITHOUT_CACHE:
            self._prefixes.keep(chosen.replica, chosen.cache_kept)
            is_picked = False
        prefix: PrefixFacts | None = None
        if prompt is not None:
            there = self._cached if is_picked else self._prefixes.leading(prompt)
            prefix = self._prefix(requirements.estimated_tokens, prompt, there, chosen.replica)
            self._sections.note(prompt)
            room = self._cache_tokens or chosen.load.cache_tokens or _CACHE_TOKENS
            if self._blocks.is_exact(chosen.backend):
                room *= _TRUSTED
            self._prefixes.note(chosen.replica, prompt, room)
        tokens = requirements.estimated_tokens
        unread = max(0, tokens - there.get(chosen.replica, 0))
        learning = Learning(self._costs, engine, tokens, unread, requirements.stream)
        learning.prefix = prefix or PrefixFacts(tokens, 0, 0, "new")
        if not is_plain:
            learning.take_note_of(chosen)
        if prompt is not None:
            learning.tokens_of = self._tokens_of(prompt, chosen)
            prompt.drop_content()  # the request may live long
        return learning

    def prefix(self, requirements: Requirements, chosen: Candidate) -> PrefixFacts | None:
        prompt = prompt_of(requirements)
        if prompt is None:
            return PrefixFacts(requirements.estimated_tokens, 0, 0, "new")
        there = self._prefixes.leading(prompt)
        if _is_empty(chosen):
            had = there.get(chosen.replica, 0)
            there = {replica: tokens for replica, tokens in there.items() if replica != chosen.replica}
            if had > max(there.values(), default=0):
                return PrefixFacts(requirements.estimated_tokens, 0, had, "restarted")
        return self._prefix(requirements.estimated_tokens, prompt, there, chosen.replica)

    def _prefix(self, tokens: int, prompt: Prompt, there: Mapping[str, int], replica: str) -> PrefixFacts:
        """What ``replica`` has of ``prompt``, and why not more. ``there``: what each replica has."""
        cached, most = there.get(replica, 0), max(there.values(), default=0)
        if most > cached:
            return PrefixFacts(tokens, min(tokens, cached), most - cached, "moved")
        dropped, why = self._prefixes.dropped(prompt, cached)
        found = self._sections.difference(prompt, cached) if not why else None
        if found is not None:
            why = "new" if not cached and found.is_first and not found.tokens else found.name
            dropped = found.tokens
        return PrefixFacts(tokens, min(tokens, cached), dropped, why or ("message:0" if cached else "new"))

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        """Return what each candidate costs, in milliseconds; the score is less their sum and that of its priority."""
        prompt, tokens = prompt_of(requirements), requirements.estimated_tokens
        cached = self._prefixes.leading(prompt) if prompt is not None else _NOTHING
        explained = self._costs.explained(candidates, cached, tokens, requirements.stream)
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
        return msgspec.msgpack.encode(LearnedMemory(self._prefixes.remembered(), self._costs.memory()))

    def recall(self, remembered: bytes) -> None:
        memory = msgspec.msgpack.decode(remembered, type=LearnedMemory)
        self._prefixes.recall(memory.prefixes)
        self._costs.recall(memory.rates)

    def _verdict(
        self, candidate: Candidate, explained: tuple[float, CostParts], cached: Mapping[str, int], tokens: int
    ) -> Verdict:
        there = min(tokens, cached.get(candidate.replica, 0)) if not _is_empty(candidate) else 0
        cost, parts = explained
        figures = {
            "cached_tokens": there,
            "backlog_s": round(parts.wait, 6),
            "own_ms": round(1e3 * parts.own, 3),
            "harm_ms": round(1e3 * parts.harm, 3),
        }
        if parts.writing:
            figures["writing_ms"] = round(1e3 * parts.writing, 3)
        figures |= {name: each for name, each in self._costs.rates(candidate.backend).items() if each}
        return Verdict(_score(cost), figures)


def _is_empty(candidate: Candidate) -> bool:
    """Whether the engine of ``candidate`` begins without a prefix cache."""
    return candidate.state in _WITHOUT_CACHE and not candidate.cache_kept


def _score(cost: float) -> float:
    return -round(1e6 * cost) / 1e3 if cost < inf else -inf
