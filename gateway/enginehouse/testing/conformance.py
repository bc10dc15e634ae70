"""Conformance checks: each tries a plugin's class on many candidates or requests and holds it to its interface.

Give a check a factory, which is called without arguments for a fresh instance::

    def test_it_keeps_the_rules_of_a_filter() -> None:
        check_filter(lambda: create("filter", "my_filter", {"size": 3}))

A broken rule raises ``AssertionError`` with the rule and what was seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from typing import Any

import msgspec

from enginehouse.domain.errors import ConfigError, InvalidRequest
from enginehouse.domain.replica import Candidate
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Verdict
from enginehouse.interfaces.extractors import Extractor
from enginehouse.interfaces.filters import Filter
from enginehouse.interfaces.scorers import Scorer, WeightedScorer
from enginehouse.interfaces.strategies import Strategy
from enginehouse.testing.expect import expect, expect_sequence
from enginehouse.testing.samples import batches, needs, requests


def check_filter(factory: Callable[[], Filter]) -> None:
    """Candidates are kept in their order, none is added or changed, and every dropped one gets a reason."""
    it = factory()
    for required, candidates in _decisions(empty=True):
        with _unchanged(required, candidates):
            kept = it.keep(required, candidates)
            expect_sequence("keep", kept)
            _expect_some_in_order(kept, candidates)
            for dropped in _without(candidates, kept):
                why, missing = it.why(required, dropped), it.missing(required, dropped)
                expect(isinstance(why, str) and why != "", f"why must say why a candidate was dropped, got {why!r}")
                expect_sequence("missing", missing)
                expect(all(isinstance(name, str) for name in missing), f"missing must name texts, got {missing!r}")


def check_scorer(factory: Callable[[], Scorer]) -> None:
    """As many figures as candidates, each from 0 to 100, and nothing changed."""
    it = factory()
    for required, candidates in _decisions(empty=True):
        with _unchanged(required, candidates):
            scores = it.score(required, candidates)
        expect_sequence("score", scores)
        expect(
            len(scores) == len(candidates),
            f"score must give one figure per candidate, got {len(scores)} for {len(candidates)}",
        )
        for score in scores:
            expect(_is_score(score), f"score must give figures from 0 to 100, got {score!r}")


def check_strategy(factory: Callable[[], Strategy]) -> None:
    """One of the candidates is picked, with scorers and without, and picking and explaining change nothing.

    ``ConfigError`` is a legal answer to no scorers.
    """
    for it in _with_scorers(factory):
        for required, candidates in _decisions(empty=False):
            with _unchanged(required, candidates):
                picked = it.pick(required, candidates)
                expect(_among(picked, candidates), f"pick must return one of the candidates, got {picked!r}")
                _expect_verdicts(it.explain(required, candidates), candidates)


def check_extractor(factory: Callable[[], Extractor]) -> None:
    """Requirements get values of their declared types, the same for the same request, which stays as it was.

    ``InvalidRequest`` is a legal answer to any request.
    """
    it = factory()
    for request in requests():
        headers, body = list(request.headers), deepcopy(request.body)
        outcomes = []
        for _ in range(2):
            required = Requirements(model=request.body.model, path=request.path)
            try:
                returned: Any = it.extract(request, required)  # type: ignore[func-returns-value]
            except InvalidRequest:
                returned = None
            expect(returned is None, f"extract must write to the requirements and return nothing, got {returned!r}")
            _expect_types(required)
            outcomes.append(required)
        expect(outcomes[0] == outcomes[1], f"the same request must give the same: {outcomes[0]} and {outcomes[1]}")
        expect(list(request.headers) == headers and request.body == body, "extract must not change the request")


def _with_scorers(factory: Callable[[], Strategy]) -> Iterator[Strategy]:
    """The strategy with two scorers and, if it can do without, with none."""
    it = factory()
    it.use((WeightedScorer("first", 2, _First()), WeightedScorer("idle", 1, _Idle())))
    yield it
    it = factory()
    with suppress(ConfigError):
        it.use(())
        yield it


def _decisions(empty: bool) -> Iterator[tuple[Requirements, Sequence[Candidate]]]:
    """Every need with every batch, as a list and as a tuple: both are sequences that a plugin may be given."""
    for required in needs():
        for candidates in ([], *batches()) if empty else batches():
            yield required, candidates
            yield required, tuple(candidates)


@contextmanager
def _unchanged(required: Requirements, candidates: Sequence[Candidate]) -> Iterator[None]:
    """Fails if what a decision may only read is not as before."""
    before = deepcopy(required), list(candidates), [_figures(each) for each in candidates]
    yield
    expect(required == before[0], f"requirements must not be changed: {before[0]} became {required}")
    expect(_same(candidates, before[1]), "the sequence of candidates must not be changed")
    expect([_figures(each) for each in candidates] == before[2], "candidates must not be changed")


def _figures(candidate: Candidate) -> tuple[Any, ...]:
    """All that a plugin could change in a candidate: its fields, and those of its load."""
    return (*msgspec.structs.astuple(candidate), *msgspec.structs.astuple(candidate.load))


def _expect_some_in_order(kept: Sequence[Candidate], candidates: Sequence[Candidate]) -> None:
    position = {id(candidate): place for place, candidate in enumerate(candidates)}
    expect(all(id(each) in position for each in kept), "keep must not add candidates or return copies")
    places = [position[id(each)] for each in kept]
    expect(places == sorted(set(places)), "keep must keep the order of the candidates, each once")


def _expect_verdicts(verdicts: Sequence[Verdict], candidates: Sequence[Candidate]) -> None:
    expect_sequence("explain", verdicts)
    expect(len(verdicts) == len(candidates), "explain must give one verdict per candidate")
    expect(all(isinstance(each, Verdict) for each in verdicts), "explain must give objects of the class Verdict")


def _expect_types(required: Requirements) -> None:
    for field in msgspec.structs.fields(Requirements):
        value = getattr(required, field.name)
        try:
            msgspec.convert(value, field.type)
        except msgspec.ValidationError as error:
            raise AssertionError(f"requirements.{field.name} has a wrong value {value!r}: {error}") from error


def _is_score(value: object) -> bool:
    return isinstance(value, (int, float)) and not math.isnan(value) and 0 <= value <= 100


def _same(these: Sequence[object], those: Sequence[object]) -> bool:
    return len(these) == len(those) and all(this is that for this, that in zip(these, those, strict=True))


def _among(picked: object, candidates: Iterable[Candidate]) -> bool:
    return any(picked is candidate for candidate in candidates)


def _without(candidates: Iterable[Candidate], kept: Iterable[Candidate]) -> list[Candidate]:
    gone = {id(each) for each in kept}
    return [each for each in candidates if id(each) not in gone]


class _First:
    """A scorer for strategies to use: the first candidate is best."""

    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        return [100.0 / (1 + place) for place in range(len(candidates))]


class _Idle:
    """A scorer for strategies to use: the fewer requests, the better."""

    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        return [100 - min(each.load.pending, 100) for each in candidates]
