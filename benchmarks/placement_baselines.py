"""Two strategies to compare with: a greedy planner that knows the truth, and ``cache_aware`` as it was at first."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from enginehouse import Candidate, Extractor, InferenceRequest, Requirements, Strategy
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registered
from enginehouse.routing_facts import Placement
from enginehouse_kit.prefix_index import PrefixIndex
from enginehouse_kit.prefixes import ChunkExtractor, chunks_of
from enginehouse_sim.simulator.replay.played_engine import PlayedEngine
from enginehouse_sim.simulator.replay.traces.reader import TraceRequest
from enginehouse_sim.virtual import VirtualEngines, VirtualGateway, VirtualSettings

_NUMBER = "placement.number"
_CHUNK_TOKENS = 64


class EngineSpeed(NamedTuple):
    """What an engine takes alone. ``first``: seconds to the first token, by ascending tokens of a prompt.

    ``token``: seconds for each further token.
    """

    first: Sequence[tuple[int, float]]
    token: float

    def first_token(self, tokens: float) -> float:
        """Seconds to the first token of a prompt of which so many tokens are not cached."""
        place = min(len(self.first) - 1, max(1, bisect(self.first, (tokens, 0.0))))
        (before, low), (after, high) = self.first[place - 1], self.first[place]
        return low + (high - low) * (tokens - before) / (after - before)

    def reading(self, tokens: float) -> float:
        """Seconds that a prompt of which so many tokens are not cached keeps others waiting."""
        return self.first_token(tokens) - self.first_token(0)


class BaselineSettings(VirtualSettings, frozen=True, kw_only=True):
    """Of a gateway that has the strategies of this file too. ``slow``: how much slower engines are, by name."""

    requests: tuple[TraceRequest, ...] = ()
    speed: EngineSpeed = EngineSpeed((), 0.0)
    slow: tuple[tuple[str, float], ...] = ()

    def gateway(self, engines: VirtualEngines) -> VirtualGateway:
        loaded = self.load()
        registry = load_plugins(loaded.config.plugins).registry
        slow = dict(self.slow)
        made: Mapping[str, Callable[[], Strategy]] = {
            "planner": lambda: Planner(engines, self.requests, self.speed, slow),
            "first_cache_aware": FirstCacheAware,
        }
        registry.add(
            [
                Registered(
                    entry_point="baselines",
                    module=__name__,
                    distribution="enginehouse",
                    version="0",
                    kind="strategy",
                    type=type,
                    factory=factory,
                )
                for type, factory in made.items()
            ]
        )
        return VirtualGateway(loaded.config, registry, engines, self.seed)


class _NumberExtractor(Extractor):
    def extract(self, request: InferenceRequest, requirements: Requirements) -> None:
        requirements.extra[_NUMBER] = int(dict(request.headers)[b"x-request-id"])


class Planner(Strategy):
    """Picks the engine from which the first token comes soonest, as it finds in the engines themselves.

    It knows their speeds, their caches, how far they have read each prompt and how long each answer is going to be.
    """

    binds_late = True

    def __init__(
        self,
        replay: Any,
        requests: Sequence[TraceRequest],
        speed: EngineSpeed,
        slow: Mapping[str, float],
    ) -> None:
        self._replay = replay
        self._requests = requests
        self._speed = speed
        self._slow = slow
        self._unread: dict[str, dict[int, float]] = {}
        """The tokens that an engine had to read when a request was sent to it, by backend and request."""
        self._turn = 0
        self._used: dict[str, int] = {}

    def __deepcopy__(self, memo: object) -> Planner:
        return self

    def extractors(self) -> Sequence[Extractor]:
        return [_NumberExtractor()]

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        number: int = requirements.extra[_NUMBER]
        return min(candidates, key=lambda each: (round(self._cost(number, each), 4), self._used.get(each.backend, 0)))

    def placed(self, requirements: Requirements, chosen: Candidate) -> Placement:
        number: int = requirements.extra[_NUMBER]
        self._turn += 1
        self._used[chosen.backend] = self._turn
        engine = self._replay.engines[chosen.backend]
        unread = self._unread.setdefault(chosen.backend, {})
        unread[number] = self._missing(number, engine)
        return _Reading(unread, number)

    def _missing(self, number: int, engine: PlayedEngine) -> int:
        """The tokens of a prompt that are not in the engine's cache."""
        wanted = engine.wanted(self._requests[number], number, engine.now)
        assert wanted is not None
        return wanted.num_tokens - engine.state.kv_cache.get_computed_blocks(wanted).num_tokens

    def _cost(self, number: int, candidate: Candidate) -> float:
        engine: PlayedEngine = self._replay.engines[candidate.backend]
        state, speed, load = engine.state, self._speed, candidate.load
        known = state.requests
        left = 0.0
        for sent, tokens in self._unread.get(candidate.backend, {}).items():
            request = known.get(str(sent))
            begun = request is not None and request.num_computed_tokens
            left += max(0, request.num_prompt_tokens - request.num_computed_tokens) if request and begun else tokens
        own = speed.first_token(self._missing(number, engine))
        wait = speed.reading(left) if left else 0.0
        if load.slots and load.pending >= load.slots:
            wait = self._turn_s(candidate, [each.max_tokens - len(each.output_token_ids) for each in state.running])
        return self._slow.get(candidate.backend, 1.0) * (wait + own)

    def _turn_s(self, candidate: Candidate, left: Iterable[int]) -> float:
        """Seconds until a slot is free for one more request, from the tokens that those in the slots still make."""
        ends = sorted(each * self._speed.token for each in left) or [0.0]
        turns, place = divmod(candidate.load.pending - candidate.load.slots, len(ends))
        return ends[place] + turns * ends[-1]


class _Reading(Placement):
    """A prompt that an engine has not read yet."""

    def __init__(self, unread: dict[int, float], number: int) -> None:
        self._unread = unread
        self._number = number

    def first_byte(self) -> None:
        self.ended()

    def ended(self) -> None:
        self._unread.pop(self._number, None)


class FirstCacheAware(Strategy):
    """Picks the engine with the fewest tokens to read: those that its cache lacks, and a quarter prompt per request."""

    def __init__(self) -> None:
        self._prefixes = PrefixIndex()
        self._average = 0.0
        self._counted = 0

    def extractors(self) -> Sequence[Extractor]:
        return [ChunkExtractor(_CHUNK_TOKENS)]

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        chosen = min(candidates, key=lambda each: self._tokens(requirements, each))
        self._prefixes.note(chosen.replica, chunks_of(requirements), 500_000 // _CHUNK_TOKENS)
        self._counted = min(self._counted + 1, 100)
        self._average += (requirements.estimated_tokens - self._average) / self._counted
        return chosen

    def _tokens(self, requirements: Requirements, candidate: Candidate) -> float:
        chunks, missing = chunks_of(requirements), float(requirements.estimated_tokens)
        if chunks:
            missing *= 1 - self._prefixes.leading(candidate.replica, chunks) / len(chunks)
        return missing + candidate.load.pending / 4 * max(1, self._average or requirements.estimated_tokens)
