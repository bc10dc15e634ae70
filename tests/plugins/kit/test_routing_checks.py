from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from enginehouse import Candidate, ConfigError, Filter, InvalidRequest, Requirements, Scorer, Strategy
from enginehouse.routing_facts import Verdict
from enginehouse_kit.testing import candidate, check_filter, check_scorer, check_strategy


@pytest.fixture(autouse=True)
def no_call_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, a check would ask a few questions only, and miss what is broken."""
    monkeypatch.setattr("enginehouse_kit.expect.perf_counter", lambda: 0.0)


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


class Alternates(AnyFilter):
    calls = 0

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        self.calls += 1
        return candidates[: self.calls % 2]


class Remembers(AnyFilter):
    """Drops the backends of earlier questions."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, ...]] = {}

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        names = tuple(each.backend for each in candidates)
        return [each for each in candidates if self._seen.setdefault(each.backend, names) == names]


class Refuses(AnyFilter):
    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        if requirements.needs_vision:
            raise InvalidRequest("no pictures")
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
        (Alternates, "must give the same answer to the same question$"),
        (Remembers, "same answer to the same question, whatever was asked before"),
    ],
)
def test_a_filter_that_breaks_a_rule_is_caught(broken: type[Filter], rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_filter(broken)


def test_a_filter_must_bear_an_empty_sequence() -> None:
    with pytest.raises(IndexError):
        check_filter(NeedsOne)


@pytest.mark.parametrize("filter", [AnyFilter, Refuses])
def test_a_filter_that_keeps_the_rules_passes(filter: type[Filter]) -> None:
    check_filter(filter)


class Gives(Scorer):
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


class Throws(Scorer):
    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        return [random.uniform(0, 100) for _ in candidates]


class Learns(Scorer):
    """Scores a backend by the number of questions that it was in."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, ...]] = Counter()

    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        self._counts[tuple(each.backend for each in candidates)] += 1
        return [min(100, len(self._counts))] * len(candidates)


@pytest.mark.parametrize(
    ("broken", "rule"), [(Throws, "same answer to the same question$"), (Learns, "whatever was asked before")]
)
def test_a_scorer_that_is_not_deterministic_is_caught(broken: type[Scorer], rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_scorer(broken)


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


class ScoresInWords(First):
    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        return [Verdict(parts={"idle": "very"}) for _ in candidates]  # type: ignore[dict-item]


class TracesInWords(First):
    def score(self, requirements: Requirements, candidates: Sequence[Candidate], chosen: Candidate) -> Any:
        return "high"


class LearnsOfNoBackend(First):
    def learned(self) -> Any:
        return {"ms_per_token": 1.0}


class DecodesElsewhere(First):
    def pick_decode(
        self, requirements: Requirements, candidates: Sequence[Candidate], prefill: Candidate
    ) -> Candidate | None:
        return candidate("new")


class WantsScorers(First):
    def use(self, scorers: Sequence[Any]) -> None:
        self.best = scorers[0]


class Rotates(Strategy):
    def __init__(self) -> None:
        self._turn = 0

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        return candidates[self._turn % len(candidates)]

    def placed(self, requirements: Requirements, chosen: Candidate) -> None:
        self._turn += 1


class AdvancesWhenExplained(Rotates):
    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        self.placed(requirements, candidates[0])
        return super().explain(requirements, candidates)


class AdvancesWhenAsked(Rotates):
    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        self._turn += 1
        return super().pick(requirements, candidates)


class FollowsWithNonsense(First):
    def placed(self, requirements: Requirements, chosen: Candidate) -> Any:
        return "nonsense"


class Gossips(Rotates):
    """Tells the number of its turns, and what it has heard."""

    def __init__(self) -> None:
        super().__init__()
        self._told = 0

    def news(self) -> bytes:
        told, self._told = self._told, self._turn
        return str(self._turn).encode() if told != self._turn else b""

    def hear(self, news: bytes) -> None:
        self._turn = int(news)


class Discusses(Gossips):
    """As ``Gossips``, but what it has heard is no news."""

    def hear(self, news: bytes) -> None:
        self._turn = self._told = int(news)


class TellsTwice(Discusses):
    def news(self) -> bytes:
        return str(self._turn).encode()


class CannotHear(Discusses):
    def hear(self, news: bytes) -> None:
        self._turn = int(news.decode("utf-16"))


class RefusesPictures(First):
    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        if requirements.needs_vision:
            raise InvalidRequest("no pictures")
        return super().pick(requirements, candidates)


@pytest.mark.parametrize(
    ("broken", "error", "rule"),
    [
        (AdvancesWhenExplained, AssertionError, "pick and explain must not change"),
        (AdvancesWhenAsked, AssertionError, "pick and explain must not change"),
        (FollowsWithNonsense, AssertionError, "no Placement"),
        (Invents, AssertionError, "must return one of the candidates"),
        (SaysTooLittle, AssertionError, "one verdict per candidate"),
        (ScoresInWords, AssertionError, "explain must give figures"),
        (TracesInWords, AssertionError, "score returned 'high'"),
        (LearnsOfNoBackend, AssertionError, "learned must return figures by backend"),
        (DecodesElsewhere, AssertionError, "pick_decode must return one of the candidates or None"),
        (WantsScorers, IndexError, "out of range"),
        (Gossips, AssertionError, "heard from another worker"),
        (TellsTwice, AssertionError, "not the same again"),
        (CannotHear, AssertionError, "hear failed"),
    ],
)
def test_a_strategy_that_breaks_a_rule_is_caught(broken: type[Strategy], error: type[Exception], rule: str) -> None:
    with pytest.raises(error, match=rule):
        check_strategy(broken)


@pytest.mark.parametrize("strategy", [First, Rotates, Discusses, RefusesPictures])
def test_a_strategy_that_keeps_the_rules_passes(strategy: type[Strategy]) -> None:
    check_strategy(strategy)


def test_a_strategy_may_refuse_to_go_without_scorers() -> None:
    class Insists(First):
        def use(self, scorers: Sequence[Any]) -> None:
            if not scorers:
                raise ConfigError("nothing to score with")

    check_strategy(Insists)


class RefusesMany(AnyFilter):
    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        if len(candidates) > 1:
            raise InvalidRequest("Too many")
        return candidates


class PicksOfFew(Strategy):
    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        if len(candidates) > 1:
            raise InvalidRequest("Too many")
        return candidates[0]


def test_any_question_may_be_refused() -> None:
    check_filter(RefusesMany)
    check_strategy(PicksOfFew)
