from __future__ import annotations

import gc
from collections import Counter, deque
from collections.abc import Sequence
from copy import deepcopy

import msgspec
import pytest

from enginehouse import Candidate, Capabilities, ReplicaState, Requirements
from enginehouse.domain.replica import Load
from enginehouse.requests import Tokens
from enginehouse.routing_facts import Placement
from enginehouse_kit.testing import candidate, request, requirements
from enginehouse_routing.cache_aware import CacheAware, Learning
from enginehouse_routing.needs import TokensExtractor

RATE = 1e-4
"""The seconds for a token that are assumed before any answer."""


class Gateway:
    """A strategy, and what becomes of the requests that it places. ``now``: its clock."""

    def __init__(self, **parameters: object) -> None:
        self.now = 0.0
        self.strategy = CacheAware(msgspec.convert(parameters, CacheAware.Config))
        self.strategy.start(lambda: self.now)

    def asks(self, *parts: int, tokens: int = 0, stream: bool = True) -> Requirements:
        """The requirements of a prompt with these parts, of one fine chunk each."""
        prompt = [part for part in parts for _ in range(64)]
        needs = requirements(estimated_tokens=tokens or len(prompt), stream=stream)
        [extractor] = self.strategy.extractors()
        extractor.extract(request({"prompt": prompt}), needs)
        return needs

    def learn(self, needs: Requirements, engine: Candidate, first: float = 0.1, rest: float = 0.1) -> None:
        """Let ``engine``, and a worse one that gets nothing, serve a request."""
        self.serve(needs, [engine, candidate("worse", priority=10_000_000)], first, rest)

    def place(self, needs: Requirements, candidates: Sequence[Candidate]) -> tuple[Candidate, Placement]:
        chosen = self.strategy.pick(needs, candidates)
        placement = self.strategy.placed(needs, chosen) or Placement()
        chosen.load.begin()
        placement.queued()
        return chosen, placement

    def serve(self, needs: Requirements, candidates: Sequence[Candidate], first: float = 0.1, rest: float = 0.1) -> str:
        """Serve one request to its end; the backend that did."""
        chosen, placement = self.place(needs, candidates)
        placement.granted()
        self.now += first
        placement.first_byte()
        self.now += rest
        chosen.load.end()
        placement.ended()
        return chosen.backend


def fleet(*names: str, slots: int = 0) -> list[Candidate]:
    return [candidate(name, load=Load(slots=slots)) for name in names]


def test_a_prompt_goes_where_its_beginning_is() -> None:
    gateway, engines = Gateway(), fleet("a", "b", "c")
    first = gateway.serve(gateway.asks(*range(20)), engines)
    for more in range(21, 25):
        assert gateway.serve(gateway.asks(*range(more)), engines) == first


def test_prompts_with_nothing_in_common_spread_over_equal_engines() -> None:
    gateway, engines = Gateway(), fleet(*"abcdefgh")
    places = Counter(gateway.serve(gateway.asks(*range(100 * n, 100 * n + 20)), engines) for n in range(40))
    assert set(places.values()) == {5}


def test_requests_without_a_prompt_go_where_the_load_is_least() -> None:
    gateway, engines = Gateway(), fleet("a", "b")
    engines[0].load.begin()
    assert gateway.strategy.pick(requirements(), engines).backend == "b"


def test_one_beginning_in_many_requests_does_not_queue_at_one_engine() -> None:
    gateway, engines = Gateway(), fleet("a", "b", slots=2)
    gateway.serve(gateway.asks(*range(20)), engines, first=0.2, rest=2)
    places = Counter(gateway.place(gateway.asks(*range(20), 99 + n), engines)[0].backend for n in range(8))
    assert places == {"a": 4, "b": 4}


def test_a_giant_goes_to_a_busy_engine_before_it_waits_for_another_giant() -> None:
    gateway, (idle, busy) = Gateway(), fleet("idle", "busy")
    busy.load.pending = 15
    assert gateway.place(gateway.asks(1, tokens=30_000), [idle, busy])[0] is idle
    assert gateway.place(gateway.asks(2, tokens=30_000), [idle, busy])[0] is busy


def test_a_prompt_that_only_one_engine_could_serve_returns_to_it() -> None:
    gateway, engines = Gateway(), fleet("a", "b")
    for number in range(16):
        gateway.serve(gateway.asks(*range(100 * number, 100 * number + 20)), engines[number % 2 :][:1])
    places = [gateway.serve(gateway.asks(*range(100 * n, 100 * n + 20)), engines) for n in range(16)]
    assert places == ["a", "b"] * 8


def test_a_cold_prompt_goes_where_nothing_is_dropped_for_it() -> None:
    gateway, engines = Gateway(cache_tokens=64 * 50), fleet("a", "b")
    gateway.learn(gateway.asks(*range(40)), engines[0])
    gateway.learn(gateway.asks(*range(100, 110)), engines[1], first=0.032)
    assert {gateway.serve(gateway.asks(*range(n, n + 20)), engines) for n in (200, 300)} == {"b"}


def test_an_engine_that_answers_slowly_gets_less() -> None:
    gateway, engines = Gateway(), fleet("slow", "fast")
    for n in range(10):
        for each, first in zip(engines, (0.4, 0.1), strict=True):
            gateway.learn(gateway.asks(*range(1000 * n, 1000 * n + 20)), each, first)
    places = [gateway.place(gateway.asks(-n, -n - 1), engines) for n in range(1, 5)]
    assert [chosen.backend for chosen, _ in places].count("fast") > 2


def test_the_wait_for_a_slot_is_what_requests_there_have_taken() -> None:
    gateway, engines = Gateway(), fleet("a", "b", slots=1)
    for each in engines:
        gateway.learn(gateway.asks(1), each, first=0.1, rest=5.9 if each is engines[0] else 0.9)
    for each in engines:
        each.load.begin()
    a, b = gateway.strategy.explain(gateway.asks(1), engines)
    step = 64 * 0.1 / (64 + 256)
    assert a.parts["backlog_s"] == pytest.approx(6.0 + step, abs=0.01)
    assert b.parts["backlog_s"] == pytest.approx(1.0 + step, abs=0.01)


def test_while_others_wait_a_prompt_is_not_read_twice() -> None:
    gateway, (a, b) = Gateway(), fleet("a", "b", slots=1)
    waiting: dict[str, int] = {}
    gateway.strategy.use_waiting(waiting)
    gateway.learn(gateway.asks(*range(20)), a, first=0.1, rest=0.2)
    a.load.begin()
    assert gateway.strategy.pick(gateway.asks(*range(21)), [a, b]) is b
    waiting[a.model] = 12
    assert gateway.strategy.pick(gateway.asks(*range(21)), [a, b]) is a
    assert gateway.strategy.pick(gateway.asks(*range(50, 71)), [a, b]) is b, "neither has it"


def test_prompts_that_are_not_answered_yet_are_read_first() -> None:
    gateway, engines = Gateway(), fleet("a", "b")
    gateway.place(gateway.asks(*range(100)), engines)
    chosen, long = gateway.place(gateway.asks(*range(100, 2000)), engines)
    assert chosen.backend == "b"
    assert gateway.place(gateway.asks(7, 8, 9), engines)[0].backend == "a", "both have one request"
    long.ended()
    chosen.load.end()
    assert gateway.place(gateway.asks(17, 18, 19), engines)[0].backend == "b"


def test_a_worse_priority_is_picked_when_the_better_ones_cost_clearly_more() -> None:
    gateway = Gateway(priority_s=1)
    better, worse = candidate("better", load=Load(slots=1)), candidate("worse", priority=7)
    assert gateway.serve(gateway.asks(1), [worse, better], rest=0.5) == "better"
    better.load.begin()
    assert gateway.strategy.pick(gateway.asks(1), [worse, better]) is better
    better.load.begin()
    assert gateway.strategy.pick(gateway.asks(1), [worse, better]) is worse


def test_a_ready_replica_is_picked_before_one_that_must_be_loaded() -> None:
    gateway = Gateway()
    cold, ready = candidate("cold", wake_s=2.0, state=ReplicaState.STOPPED), candidate("ready", load=Load(pending=9))
    assert gateway.strategy.pick(gateway.asks(1), [cold, ready]) is ready


def test_loads_spread_over_hosts() -> None:
    gateway, taken = Gateway(), []
    for model in range(4):
        replicas = [
            candidate(f"{model}-{host}", f"m{model}", host=host, state=ReplicaState.STOPPED, wake_s=3.0)
            for host in ("h1", "h2")
        ]
        taken.append(gateway.place(gateway.asks(model), replicas))
    assert [chosen.host for chosen, _ in taken] == ["h1", "h2", "h1", "h2"]
    taken[0][1].granted()
    [verdict] = gateway.strategy.explain(
        gateway.asks(5), [candidate("new", host="h1", state=ReplicaState.STOPPED, wake_s=3.0)]
    )
    assert verdict.parts["backlog_s"] == pytest.approx(6.0), "its own load, and the one that still waits"


def test_a_load_that_nobody_waits_for_after_all_keeps_no_host_busy() -> None:
    gateway = Gateway()
    cold = candidate("cold", host="h1", state=ReplicaState.STOPPED, wake_s=3.0)
    gateway.strategy.placed(gateway.asks(1), cold)  # it is sent elsewhere, and never queued
    [verdict] = gateway.strategy.explain(
        gateway.asks(2), [candidate("other", host="h1", state=ReplicaState.STOPPED, wake_s=3.0)]
    )
    assert verdict.parts["backlog_s"] == 3.0


def test_an_engine_that_is_launched_again_has_nothing_cached() -> None:
    gateway = Gateway()
    gateway.learn(gateway.asks(1, 2), candidate("a"))
    gateway.serve(gateway.asks(7, 8), [candidate("a", state=ReplicaState.STOPPED)])
    cached = [each.parts["cached_tokens"] for each in gateway.strategy.explain(gateway.asks(1, 2), fleet("a", "b"))]
    assert cached == [0, 0]


def test_the_index_keeps_what_the_cache_has_room_for() -> None:
    gateway = Gateway(cache_tokens=10 * 64)
    for n in range(3):
        gateway.learn(gateway.asks(*range(100 * n, 100 * n + 5)), candidate("a"))
    cached = [gateway.strategy.explain(gateway.asks(*range(100 * n, 100 * n + 5)), fleet("a"))[0] for n in range(3)]
    assert [each.parts["cached_tokens"] for each in cached] == [0, 5 * 64, 5 * 64]


def test_it_explains_what_counts_and_notes_nothing() -> None:
    gateway, engines = Gateway(), fleet("a", "b")
    gateway.learn(gateway.asks(1, 2), engines[0])
    engines[0].load.pending = 4
    before = gateway.strategy.explain(gateway.asks(1, 2, 3, 4), engines)
    assert deepcopy(gateway.strategy).pick(gateway.asks(1, 2, 3, 4), engines).backend == "b"
    assert gateway.strategy.explain(gateway.asks(1, 2, 3, 4), engines) == before
    assert [each.parts["cached_tokens"] for each in before] == [128, 0]
    for each in before:
        parts = each.parts
        assert each.score == pytest.approx(-(1e3 * parts["backlog_s"] + parts["own_ms"] + parts["harm_ms"]), abs=0.01)


def test_a_request_that_ends_unserved_teaches_nothing_and_leaves_nothing_behind() -> None:
    gateway, engines = Gateway(), fleet("a", "b")
    before = gateway.strategy.explain(gateway.asks(9), engines)
    for granted in (False, True):
        chosen, placement = gateway.place(gateway.asks(*range(50)), engines)
        if granted:
            placement.granted()
        gateway.now += 100
        chosen.load.end()
        placement.ended()
    assert gateway.strategy.explain(gateway.asks(9), engines) == before


@pytest.mark.parametrize("at_once", [1, 4, 8])
@pytest.mark.parametrize("slow", "abc")
def test_a_slow_start_costs_no_engine_its_share(slow: str, at_once: int) -> None:
    """600 requests at three equal engines, of which one needed 3 s for its first answer."""
    gateway, engines, asked = Gateway(), fleet(*"abc"), Counter[str]()
    for engine in engines:
        gateway.learn(gateway.asks(number_of(engine)), engine, first=3.0 if engine.backend == slow else 0.02)
    live: deque[tuple[Candidate, Placement]] = deque()
    for number in range(600):
        if len(live) == at_once:
            end(gateway, *live.popleft(), pause=0.02 / at_once)
        chosen, placement = gateway.place(gateway.asks(1000 + number), engines)
        placement.granted()
        asked[chosen.backend] += 1
        live.append((chosen, placement))
    assert min(asked[name] for name in "abc") >= 150, asked


def number_of(engine: Candidate) -> int:
    return ord(engine.backend)


def end(gateway: Gateway, engine: Candidate, placement: Placement, pause: float) -> None:
    gateway.now += pause
    placement.first_byte()
    engine.load.end()
    placement.ended()


def test_an_engine_that_stays_slow_is_tried_now_and_then() -> None:
    gateway, engines, asked = Gateway(), fleet("slow", "fast"), Counter[str]()
    for number in range(1000):
        chosen, placement = gateway.place(gateway.asks(number), engines)
        placement.granted()
        asked[chosen.backend] += 1
        end(gateway, chosen, placement, pause=2.0 if chosen.backend == "slow" else 0.2)
    assert 5 <= asked["slow"] <= 50, asked


@pytest.mark.parametrize(("configured", "reported"), [(64 * 10, 0), (None, 64 * 10), (64 * 10, 64 * 1000)])
def test_the_size_of_a_cache_is_configured_or_reported(configured: int | None, reported: int) -> None:
    gateway, [engine] = Gateway(cache_tokens=configured), fleet("a")
    engine.load.cache_tokens = reported
    gateway.learn(gateway.asks(*range(10)), engine)
    gateway.learn(gateway.asks(*range(100, 110)), engine)
    [first, _] = gateway.strategy.explain(gateway.asks(*range(10)), [engine, candidate("b")])
    assert first.parts["cached_tokens"] == 0


def test_of_whole_answers_that_follow_each_other_at_once_the_first_one_counts() -> None:
    gateway, engine = Gateway(), candidate("a")
    placements = [gateway.place(gateway.asks(tokens=1000, stream=False), [engine])[1] for _ in range(3)]
    for placement in placements:
        placement.granted()
    rates = []
    for placement, gateway.now in zip(placements, (5.0, 5.001, 5.0021), strict=True):
        placement.first_byte()
        placement.counted(Tokens(1000, 10))
        rates.append(gateway.strategy.learned()["a"]["ms_per_token"])
    assert rates[0] == rates[1] < rates[2]


def test_little_is_kept_of_requests_that_the_only_engine_has_answered() -> None:
    gateway, engine = Gateway(), candidate("a")
    for _ in range(1000):
        gateway.serve(gateway.asks(tokens=1000, stream=False), [engine], first=1.0)
    gc.collect()
    assert sum(isinstance(each, Learning) for each in gc.get_objects()) <= 100


def test_it_shows_what_it_has_learned() -> None:
    gateway, [engine] = Gateway(), fleet("a")
    gateway.learn(gateway.asks(*range(10)), engine, first=0.0896, rest=0.4104)
    learned = gateway.strategy.learned()["a"]
    assert learned.keys() == {"ms_per_token", "ms_per_output_token", "slot_ms", "backlog_tokens"}
    assert learned["ms_per_token"] == pytest.approx(0.1, rel=0.02)
    assert (learned["slot_ms"], learned["backlog_tokens"]) == (500.0, 0)


def adapters(*names: str, most: int = 0, slots: int = 0) -> list[Candidate]:
    """Replicas of the LoRA adapter ``sql`` at engines that run ``most`` adapters at once."""
    base = Capabilities(parent="base")
    return [candidate(n, "sql", capabilities=base, load=Load(slots=slots, max_adapters=most)) for n in names]


def of(engine: Candidate, model: str) -> Candidate:
    """The replica of another adapter at the same engine."""
    return candidate(engine.backend, model, capabilities=engine.capabilities, load=engine.load)


def test_requests_for_an_adapter_go_where_it_is_loaded() -> None:
    gateway, engines = Gateway(), adapters("a", "b", "c")
    first = gateway.serve(gateway.asks(1), engines)
    assert {gateway.serve(gateway.asks(10 * n), engines) for n in range(1, 6)} == {first}, "nothing else is in common"
    reported = adapters("a", "b")
    reported[1].load.report_adapters(("sql",), 4)
    assert Gateway().strategy.pick(requirements(), reported).backend == "b", "somebody else asked for it"


def test_an_adapter_that_is_much_asked_for_is_loaded_elsewhere_too() -> None:
    gateway, engines = Gateway(), adapters("a", "b", slots=2)
    gateway.serve(gateway.asks(1), engines, rest=2.0)
    places = Counter(gateway.place(gateway.asks(10 * n), engines)[0].backend for n in range(1, 5))
    assert places == {"a": 2, "b": 2}


def test_an_engine_whose_adapters_are_all_in_use_is_avoided() -> None:
    gateway, engines = Gateway(), adapters("a", "b", most=2)
    gateway.learn(gateway.asks(7), engines[0], rest=1.0)
    for model in ("x", "y"):
        gateway.place(gateway.asks(8), [of(engines[0], model)] * 2)
    engines[1].load.pending = 2
    a, b = gateway.strategy.explain(gateway.asks(1), engines)
    assert a.parts["backlog_s"] > b.parts["backlog_s"] + 0.5
    assert gateway.strategy.pick(gateway.asks(1), engines).backend == "b"


def test_an_engine_forgets_the_adapters_that_it_was_asked_for_least_recently() -> None:
    gateway, engines = Gateway(), adapters("a", "b", most=2)
    for model in ("sql", "x", "y"):
        gateway.serve(gateway.asks(8), [of(engines[0], model)] * 2)
    sql, other = (gateway.strategy.explain(gateway.asks(1), [of(engines[0], name)])[0] for name in ("sql", "x"))
    assert sql.parts["backlog_s"] == pytest.approx(other.parts["backlog_s"] + 0.1)


def test_other_models_wait_for_no_adapter() -> None:
    gateway = Gateway()
    [plain] = gateway.strategy.explain(gateway.asks(1), fleet("a"))
    [adapter] = gateway.strategy.explain(gateway.asks(1), adapters("a"))
    assert adapter.parts["backlog_s"] == pytest.approx(plain.parts["backlog_s"] + 0.1)


def test_another_instance_goes_on_where_one_has_learned() -> None:
    gateway, other, engines = Gateway(), Gateway(), fleet("a", "b")
    for number in range(6):
        first = gateway.serve(gateway.asks(*range(100 * number, 100 * number + 20)), engines, first=0.05 * (number + 1))
    other.strategy.recall(gateway.strategy.remembered())
    assert {name: figures["ms_per_token"] for name, figures in other.strategy.learned().items()} == {
        name: figures["ms_per_token"] for name, figures in gateway.strategy.learned().items()
    }
    assert other.serve(other.asks(*range(500, 530)), engines) == first


SHORT = msgspec.msgpack.encode({"rates": {"a": [1.0] * 4}, "prefixes": {"a": [b"1", b""]}})


@pytest.mark.parametrize("memory", [b"", b"nonsense", SHORT])
def test_a_memory_that_cannot_be_read_changes_nothing(memory: bytes) -> None:
    gateway = Gateway()
    with pytest.raises((msgspec.DecodeError, ValueError)):
        gateway.strategy.recall(memory)
    assert gateway.strategy.learned() == {}


class Agent:
    """A session: the same tools as all others, and more text with each turn."""

    def __init__(self, gateway: Gateway, name: str) -> None:
        self._gateway = gateway
        self._texts = [name * 4096]

    def turn(self) -> Requirements:
        self._texts.append(f"more {len(self._texts)}" * 100)
        body = {
            "messages": [{"role": "user", "content": text} for text in self._texts],
            "tools": [{"type": "function", "function": {"name": "read", "description": "x" * 65_536}}],
        }
        needs = requirements(stream=True)
        for extractor in (TokensExtractor(), *self._gateway.strategy.extractors()):
            extractor.extract(request(body), needs)
        return needs


def test_a_session_stays_where_it_is_although_all_engines_have_its_tools() -> None:
    gateway, engines = Gateway(), fleet("a", "b")
    first, second = Agent(gateway, "1"), Agent(gateway, "2")
    for agent, engine in zip((first, second), engines, strict=True):
        gateway.serve(agent.turn(), [engine])
    assert [gateway.serve(each.turn(), engines) for each in (second, first, first, second)] == ["b", "a", "a", "b"]


def test_tools_count_as_a_part_of_the_prompt() -> None:
    gateway, engines = Gateway(), fleet("a", "b")
    agent = Agent(gateway, "1")
    gateway.serve(agent.turn(), engines)
    needs = agent.turn()
    facts = gateway.strategy.prefix(needs, engines[0])
    assert facts is not None
    assert facts.tokens > facts.cached > 16_384
    [a, b] = gateway.strategy.explain(needs, engines)
    assert (a.parts["cached_tokens"], b.parts["cached_tokens"]) == (facts.cached, 0)
    assert b.parts["own_ms"] > 10 * a.parts["own_ms"]
