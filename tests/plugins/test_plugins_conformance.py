from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from enginehouse import (
    Candidate,
    ConfigError,
    Extractor,
    Filter,
    InferenceRequest,
    InvalidRequest,
    Requirements,
    Scorer,
    Strategy,
    Verdict,
)
from enginehouse.config.schema import Plugins
from enginehouse.plugin_manager.discovery import collect
from enginehouse.testing import candidate, check_extractor, check_filter, check_scorer, check_strategy, request

CHECKS: dict[str, Callable[[Callable[[], Any]], None]] = {
    "extractor": check_extractor,
    "filter": check_filter,
    "scorer": check_scorer,
    "strategy": check_strategy,
}
BUNDLED = [
    (entry.kind, entry.type)
    for entry in collect(Plugins(enabled=[])).registry.all()
    if entry.bundled and entry.kind in CHECKS
]


@pytest.mark.parametrize(("kind", "type"), BUNDLED)
def test_a_bundled_plugin_keeps_the_rules_of_its_interface(kind: str, type: str) -> None:
    registry = collect(Plugins(enabled=[])).registry

    CHECKS[kind](lambda: registry.create(kind, type))


class AnyFilter(Filter):
    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return candidates[::2]

    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        return "every second one must go"


class Reverses(AnyFilter):
    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return candidates[::-1]


class Adds(AnyFilter):
    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return [*candidates, candidate("new")]


class Repeats(AnyFilter):
    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return [*candidates[:1], *candidates]


class NeedsOne(AnyFilter):
    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return [candidates[0]]


class Removes(AnyFilter):
    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        if isinstance(candidates, list) and candidates:
            del candidates[0]
        return candidates


class Lazy(AnyFilter):
    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return (each for each in candidates)  # type: ignore[return-value]


class Mute(AnyFilter):
    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        return ""


class CountsItself(AnyFilter):
    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        for each in candidates:
            each.load.begin()
        return candidates


class Notes(AnyFilter):
    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        requirements.extra["seen"] = True
        return candidates


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (Reverses, "order"),
        (Adds, "must not add"),
        (Repeats, "each once"),
        (Removes, "sequence of candidates must not be changed"),
        (Lazy, "keep must return a sequence"),
        (Mute, "why must say"),
        (CountsItself, "candidates must not be changed"),
        (Notes, "requirements must not be changed"),
    ],
)
def test_a_filter_that_breaks_a_rule_is_caught(broken: type[Filter], rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_filter(broken)


def test_a_filter_must_bear_an_empty_sequence() -> None:
    with pytest.raises(IndexError):
        check_filter(NeedsOne)


def test_a_filter_that_keeps_the_rules_passes() -> None:
    check_filter(AnyFilter)


class Gives:
    """A scorer that gives the same figure to every candidate but the last, which gets ``last``."""

    def __init__(self, last: Any, more: int = 0) -> None:
        self.last = last
        self.more = more

    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        return [*[50.0] * (len(candidates) - 1), *[self.last] * (bool(candidates) + self.more)]


@pytest.mark.parametrize(
    ("scorer", "rule"),
    [
        (Gives(100.001), "from 0 to 100"),
        (Gives(-1), "from 0 to 100"),
        (Gives(float("nan")), "from 0 to 100"),
        (Gives("50"), "from 0 to 100"),
        (Gives(50, more=1), "one figure per candidate"),
    ],
)
def test_a_scorer_that_breaks_a_rule_is_caught(scorer: Scorer, rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_scorer(lambda: scorer)


@pytest.mark.parametrize("figure", [0, 100, 33.3])
def test_a_scorer_that_keeps_the_rules_passes(figure: float) -> None:
    check_scorer(lambda: Gives(figure))


class First(Strategy):
    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        return candidates[0]


class Invents(Strategy):
    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        return candidate("new")


class SaysTooLittle(First):
    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        return [Verdict()]


class WantsScorers(First):
    def use(self, scorers: Sequence[Any]) -> None:
        self.best = scorers[0]


@pytest.mark.parametrize(
    ("broken", "error", "rule"),
    [
        (Invents, AssertionError, "must return one of the candidates"),
        (SaysTooLittle, AssertionError, "one verdict per candidate"),
        (WantsScorers, IndexError, "out of range"),
    ],
)
def test_a_strategy_that_breaks_a_rule_is_caught(broken: type[Strategy], error: type[Exception], rule: str) -> None:
    with pytest.raises(error, match=rule):
        check_strategy(broken)


def test_a_strategy_that_keeps_the_rules_passes() -> None:
    check_strategy(First)


def test_a_strategy_may_refuse_to_go_without_scorers() -> None:
    class Insists(First):
        def use(self, scorers: Sequence[Any]) -> None:
            if not scorers:
                raise ConfigError("nothing to score with")

    check_strategy(Insists)


class Extracts:
    """An extractor that does what the function says."""

    def __init__(self, what: Callable[[InferenceRequest, Requirements], Any]) -> None:
        self.extract = what


def count_calls() -> Callable[[InferenceRequest, Requirements], None]:
    calls = iter(range(1_000_000))
    return lambda request, requirements: setattr(requirements, "estimated_tokens", next(calls))


def drop_messages(request: InferenceRequest, requirements: Requirements) -> None:
    request.body.messages = None


@pytest.mark.parametrize(
    ("what", "rule"),
    [
        (lambda request, requirements: requirements, "return nothing"),
        (lambda request, requirements: setattr(requirements, "estimated_tokens", "many"), "estimated_tokens"),
        (drop_messages, "must not change the request"),
        (count_calls(), "the same request must give the same"),
    ],
)
def test_an_extractor_that_breaks_a_rule_is_caught(
    what: Callable[[InferenceRequest, Requirements], Any], rule: str
) -> None:
    extractor: Extractor = Extracts(what)

    with pytest.raises(AssertionError, match=rule):
        check_extractor(lambda: extractor)


def test_an_extractor_may_call_a_request_wrong() -> None:
    def extract(request: InferenceRequest, requirements: Requirements) -> None:
        if not request.body.messages:
            raise InvalidRequest("messages are missing")
        requirements.extra["x_messages"] = len(request.body.messages)

    check_extractor(lambda: Extracts(extract))


def test_a_made_request_reads_as_it_would_from_a_client() -> None:
    made = request({"messages": [{"role": "user", "content": "hi"}]}, headers={"X-Tenant": "a"})

    assert made.body.messages is not None
    assert made.body.messages[0].content == "hi"
    assert made.header(b"x-tenant") == b"a"
    assert made.json["model"] == made.body.model
