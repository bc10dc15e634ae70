"""The strategy ``cache_aware``, the default: picks the engine from which the first token is expected soonest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import ClassVar, Final

import msgspec

from enginehouse import Candidate, Extractor, ReplicaState, Requirements, Strategy
from enginehouse.engine_caches import EngineCaches, PromptTokens
from enginehouse.requests import Tokens
from enginehouse.routing_facts import Placement, PrefixFacts, Verdict
from enginehouse_kit.prefixes import Prompt, PromptExtractor, prompt_of
from enginehouse_routing.cached_blocks import CachedBlocks
from enginehouse_routing.engine_costs import CostParts, EngineCosts
from enginehouse_routing.known_engines import FIRST_RATE, OVERHEAD, EngineState, KnownEngines
from enginehouse_routing.known_sections import KnownSections
from enginehouse_routing.shared_index import SharedPrefixIndex
from enginehouse_routing.structs import CacheAwareConfig, LearnedMemory, PrefixNews

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
_ANSWER_EVERY_S: Final = 0.002
"""Thousands of short answers a second tell no more than some, and to learn from one takes a tenth of its time."""
_AT_ONCE_S: Final = 0.001
"""A prompt that is probably read within this time counts as read when it is sent."""
_CHARACTERS_PER_TOKEN: Final = 4
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
        self._engines = KnownEngines()
        self._costs = EngineCosts(self._engines, config.priority_s, self._prefixes.crowded)
        self._only: Candidate | None = None
        self._plain: Candidate | None = None
        """The last pick, if it was ready and no adapter, as all of its candidates."""
        self._picked: Requirements | None = None
        self._prompt: Prompt | None = None
        self._cached: Mapping[str, int] = _NOTHING
        """The last pick: its requirements, the prompt, and what replicas had of it."""

    def __deepcopy__(self, memo: object) -> CacheAware:
        """Return the strategy itself: a pick changes nothing that another pick reads."""
        return self

    def start(self, clock: Callable[[], float]) -> None:
        self._engines.now = clock

    def use_waiting(self, waiting: Mapping[str, int]) -> None:
        self._costs.waiting = waiting

    def use_caches(self, caches: EngineCaches) -> None:
        self._caches = caches
        self._blocks.follows = caches.follows
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
        chosen = self._costs.pick(candidates, cached, _tokens(requirements, prompt), requirements.stream)
        self._plain = chosen if self._costs.were_plain else None
        return chosen

    def placed(self, requirements: Requirements, chosen: Candidate) -> Placement | None:
        is_picked, is_plain, there = requirements is self._picked, chosen is self._plain, _NOTHING
        prompt = self._prompt if is_picked else prompt_of(requirements) if requirements.extra else None
        engine, tokens = self._engines.used(chosen.backend), _tokens(requirements, prompt)
        if not is_plain and chosen.state in _WITHOUT_CACHE:
            self._prefixes.keep(chosen.replica, chosen.cache_kept)
            is_picked = False
        prefix: PrefixFacts | None = None
        if prompt is not None:
            there = self._cached if is_picked else self._prefixes.leading(prompt)
            prefix = self._prefix(tokens, prompt, there, chosen.replica)
            self._sections.note(prompt)
            room = self._cache_tokens or chosen.load.cache_tokens or _CACHE_TOKENS
            if self._blocks.is_exact(chosen.backend):
                room *= _TRUSTED
            self._prefixes.note(chosen.replica, prompt, room)
        if prefix is None:
            prefix = PrefixFacts(tokens, 0, 0, "new")
        unread = max(0, tokens - there.get(chosen.replica, 0))
        learning = Learning(
            self._engines, engine, tokens, unread, requirements.stream, prefix, None if is_plain else chosen
        )
        if prompt is not None:
            learning.tokens_of = self._tokens_of(prompt, chosen)
            prompt.drop_content()  # the request may live long
        return learning

    def prefix(self, requirements: Requirements, chosen: Candidate) -> PrefixFacts | None:
        prompt = prompt_of(requirements)
        tokens = _tokens(requirements, prompt)
        if prompt is None:
            return PrefixFacts(tokens, 0, 0, "new")
        there = self._prefixes.leading(prompt)
        if _is_empty(chosen):
            had = there.get(chosen.replica, 0)
            there = {replica: tokens for replica, tokens in there.items() if replica != chosen.replica}
            if had > max(there.values(), default=0):
                return PrefixFacts(tokens, 0, had, "restarted")
        return self._prefix(tokens, prompt, there, chosen.replica)

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
        prompt = prompt_of(requirements)
        tokens = _tokens(requirements, prompt)
        cached = self._prefixes.leading(prompt) if prompt is not None else _NOTHING
        explained = self._costs.explained(candidates, cached, tokens, requirements.stream)
        return [self._verdict(*each, cached, tokens) for each in zip(candidates, explained, strict=True)]

    def score(self, requirements: Requirements, candidates: Sequence[Candidate], chosen: Candidate) -> float | None:
        """Return what the last pick found, if ``chosen`` was among the candidates."""
        cost = self._costs.last_cost(chosen) if self._only is None else None
        return _score(cost) if cost is not None else super().score(requirements, candidates, chosen)

    def learned(self) -> Mapping[str, Mapping[str, float]]:
        """Return each engine's rate, its requests' time in a slot, and the tokens of prompts without an answer yet."""
        return self._engines.learned()

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
        return msgspec.msgpack.encode(LearnedMemory(self._prefixes.remembered(), self._engines.memory()))

    def recall(self, remembered: bytes) -> None:
        memory = msgspec.msgpack.decode(remembered, type=LearnedMemory)
        self._prefixes.recall(memory.prefixes)
        self._engines.recall(memory.rates)

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
        figures |= {name: each for name, each in self._engines.rates(candidate.backend).items() if each}
        return Verdict(_score(cost), figures)


def _tokens(requirements: Requirements, prompt: Prompt | None) -> int:
    """The tokens of a prompt, as what engines have of it is counted: with its tools, which are in no message."""
    tokens: int = requirements.estimated_tokens
    return tokens if prompt is None else max(tokens, prompt.length // _CHARACTERS_PER_TOKEN)


def _is_empty(candidate: Candidate) -> bool:
    """Whether the engine of ``candidate`` begins without a prefix cache."""
    return candidate.state in _WITHOUT_CACHE and not candidate.cache_kept


def _score(cost: float) -> float:
    return -round(1e6 * cost) / 1e3 if cost < inf else -inf


class Learning(Placement):
    """A request at one engine: part of its backlog until the prompt is read, then an example to learn from.

    ``tokens``: of its prompt; ``unread``: those of them that the engine probably has not cached. The first byte of a
    ``stream`` is its first token; that of another answer is its last one. ``chosen``: the replica, whose load and
    adapter are followed too; ``None`` if it needs no load and is no adapter.
    ``tokens_of``: called once the engine has read the prompt.
    """

    __slots__ = (
        *("_adapter", "_ahead", "_began", "_engine", "_engines", "_first", "_granted", "_in_backlog", "_is_stream"),
        *("_tokens", "_unread", "_waking", "tokens_of"),
    )

    def __init__(
        self,
        engines: KnownEngines,
        engine: EngineState,
        tokens: int,
        unread: int,
        stream: bool,
        prefix: PrefixFacts,
        chosen: Candidate | None,
    ) -> None:
        self._engines = engines
        self._engine = engine
        self._tokens = tokens
        self._unread = unread
        self._is_stream = stream
        self.prefix: PrefixFacts | None = prefix  # declared here, too: a field, not an entry of a dictionary
        self.tokens_of: Callable[[], None] | None = None
        self._granted = self._ahead = self._first = 0.0
        self._in_backlog = 0
        self._began = False
        self._waking: Candidate | None = None
        self._adapter = ""
        if chosen is not None:
            self._waking = chosen if chosen.wake_s else None
            self._adapter = (chosen.name_there or chosen.model) if chosen.capabilities.parent is not None else ""

    def queued(self) -> None:
        engine, waking = self._engine, self._waking
        if waking is not None:
            self._engines.loading.setdefault(waking.host, {})[waking.replica] = waking.wake_s
        self._in_backlog = self._unread
        engine.backlog += self._unread
        engine.changes.append(engine.backend)
        if self._adapter:
            engine.begin_adapter(self._adapter)

    def granted(self) -> None:
        engines, engine = self._engines, self._engine
        self._granted = now = engines.now()
        self._ahead = max(0.0, engine.backlog - self._unread)
        if self._in_backlog and not self._is_stream:  # its answer tells only at its end
            rate = engine.per_token or engines.all.per_token or FIRST_RATE
            seconds = rate * (self._ahead + OVERHEAD + self._unread)
            if seconds < _AT_ONCE_S:
                self._is_read()
            else:
                engines.will_be_read(now, seconds, self._is_read)
        if self._waking is not None:
            self._loaded(self._waking)

    def first_byte(self) -> None:
        self._began = True
        if self._is_stream:
            self._first = self._engines.now()
            self._engine.learn(self._first - self._granted, self._unread + self._ahead + OVERHEAD, 0.0)
        if self._in_backlog:
            self._is_read()
        if self.tokens_of is not None:
            self.tokens_of()
            self.tokens_of = None

    def counted(self, tokens: Tokens) -> None:
        engine, now, written = self._engine, self._engines.now(), float(tokens.output - 1)
        if self._is_stream:
            if written > 0:
                engine.learn(now - self._first, 0.0, written)
            return
        if not tokens.input or now - engine.answered < _ANSWER_EVERY_S:
            return
        engine.answered = now
        read, took, timings = self._ahead + self._read_of(tokens) + OVERHEAD, now - self._granted, tokens.timings
        rate = (timings.decode_rate if timings is not None else None) or 0.0
        writing = tokens.output / rate if rate > 0 else 0.0
        if written <= 0:
            engine.learn(took, read, 0.0)
        elif 0 < writing <= took:
            engine.learn(took - writing, read, 0.0)
            engine.learn(writing, 0.0, written)
        else:
            engine.learn(took, read, written)

    def ended(self) -> None:
        if self._began:
            self._engine.ended(self._engines.now() - self._granted)
        if self._in_backlog:
            self._is_read()
        if self._waking is not None:
            self._loaded(self._waking)
        if self._adapter:
            self._engine.end_adapter(self._adapter)

    def _is_read(self) -> None:
        """Take the prompt from the engine's backlog, if it is still there."""
        if self._in_backlog:
            self._engine.backlog -= self._in_backlog
            self._in_backlog = 0
            self._engine.changes.append(self._engine.backend)

    def _read_of(self, tokens: Tokens) -> float:
        """The tokens of the prompt that the engine has read, by its own count, as prompts are measured here."""
        if tokens.cached is None:
            return self._unread
        return self._tokens * max(0.0, 1 - tokens.cached / tokens.input)

    def _loaded(self, waking: Candidate) -> None:
        there = self._engines.loading.get(waking.host)
        if there is not None:
            there.pop(waking.replica, None)
