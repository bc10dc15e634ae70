"""The conformance checks of filters, scorers and strategies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

from enginehouse import Candidate, ConfigError, Filter, RequestError, Requirements, Scorer, Strategy
from enginehouse.routing_facts import MOST_REMEMBERED, Load, Placement, Verdict, WeightedScorer
from enginehouse_kit.checks.samples import MANY, batches, needs
from enginehouse_kit.expect import affordable, expect, expect_sequence
from enginehouse_kit.make import candidate, requirements

Decision = tuple[Requirements, Sequence[Candidate]]
Answer = TypeVar("Answer")
_candidate_figures = attrgetter(*(each.name for each in fields(Candidate)))
_load_figures = attrgetter(*(each.name for each in fields(Load)))


def check_filter(factory: Callable[[], Filter]) -> None:
    """Check that ``keep`` keeps the order, adds and changes no candidate, and that every dropped one has a reason.

    The same arguments must always give the same result.
    """
    _check_pure(factory, "keep", lambda it, question: it.keep(*question), _check_kept)


def check_scorer(factory: Callable[[], Scorer]) -> None:
    """Check that ``score`` returns one figure from 0 to 100 per candidate and changes nothing.

    The same arguments must always give the same result.
    """
    _check_pure(factory, "score", lambda it, question: it.score(*question), _check_scores)


def check_strategy(factory: Callable[[], Strategy]) -> None:
    """Check that ``pick`` returns one of the candidates, with and without scorers.

    Also checks that ``explain`` returns one verdict of figures per candidate, that neither changes its arguments, and
    that both leave the strategy as it is: the gateway also picks to explain, and for requests that go elsewhere. Only
    ``placed`` may move a rotation or a random source on. A strategy that needs scorers may raise ``ConfigError``
    when it gets none. After the picks, another object must be able to ``recall`` what the first one has
    ``remembered``, and pick. Two objects pick in turn as in two workers: each must ``hear`` the ``news`` of the
    other, and not tell it again.
    """
    for it in _with_scorers(factory):
        large = _large()
        for question in affordable(_decisions(empty=False), "pick", lambda: _asked(it.pick, large)):  # noqa: B023
            with suppress(RequestError), _unchanged(*question):
                _check_pick(it, question)
        _check_learned(it.learned())
        remembered = it.remembered()
        expect(isinstance(remembered, bytes), f"remembered returned {remembered!r} instead of bytes")
        expect(len(remembered) <= MOST_REMEMBERED, f"remembered returned {len(remembered)} bytes, which are not kept")
        if remembered:
            _check_recall(factory, remembered)
    for one, other in zip(_with_scorers(factory), _with_scorers(factory), strict=True):
        _check_workers(one, other)


def _asked(ask: Callable[..., object], question: Decision) -> None:
    """Ask, though a plugin may refuse any request."""
    with suppress(RequestError):
        ask(*question)


def _check_learned(learned: Any) -> None:
    fits = isinstance(learned, Mapping) and all(
        isinstance(figures, Mapping) and all(map(_is_figure, figures.values())) for figures in learned.values()
    )
    expect(fits, f"learned must return figures by backend and name, got {learned!r}")


def _check_recall(factory: Callable[[], Strategy], remembered: bytes) -> None:
    for another in _with_scorers(factory):
        try:
            another.recall(remembered)
        except Exception as error:
            raise AssertionError(f"recall failed with what remembered had returned: {error!r}") from error
        for question in _decisions(empty=False):
            with suppress(RequestError):
                _check_pick(another, question)


def _check_workers(one: Strategy, other: Strategy) -> None:
    for question in _decisions(empty=False):
        with suppress(RequestError):
            one.placed(question[0], _picked(one, question))
        _tell(one, other)
        heard = other.news()
        expect(not heard, f"news returned {heard[:50]!r}, which was heard from another worker: it would never end")
        one, other = other, one


def _tell(one: Strategy, other: Strategy) -> None:
    news = one.news()
    expect(isinstance(news, bytes), f"news returned {news!r} instead of bytes")
    if news:
        try:
            other.hear(news)
        except Exception as error:
            raise AssertionError(f"hear failed with what news had returned: {error!r}") from error
    expect(not one.news(), "news must return what has been learned since the last call, not the same again")


def _check_pure(
    factory: Callable[[], Answer],
    method: str,
    ask: Callable[[Answer, Decision], Sequence[Any]],
    check: Callable[[Answer, Decision, Sequence[Any]], None],
) -> None:
    """Ask one object all questions in order and another one backwards, each twice. Check and compare the answers."""
    it, large = factory(), _large()
    questions = affordable(_decisions(empty=True), method, lambda: _asked(lambda *question: ask(it, question), large))
    first = [_answers(it, method, question, ask, check) for question in questions]
    another = factory()
    for question, answer in zip(reversed(questions), reversed(first), strict=True):
        expect(
            _answers(another, method, question, ask, check) == answer,
            f"{method} must give the same answer to the same question, whatever was asked before",
        )


def _answers(
    it: Answer,
    method: str,
    question: Decision,
    ask: Callable[[Answer, Decision], Sequence[Any]],
    check: Callable[[Answer, Decision, Sequence[Any]], None],
) -> list[Any]:
    with _unchanged(*question):
        try:
            answer = ask(it, question)
            expect_sequence(method, answer)
            check(it, question, answer)
            again = list(ask(it, question))
        except RequestError as refusal:
            return [type(refusal), str(refusal)]
    expect(list(answer) == again, f"{method} must give the same answer to the same question")
    return again


def _check_kept(it: Filter, question: Decision, kept: Sequence[Candidate]) -> None:
    required, candidates = question
    _expect_some_in_order(kept, candidates)
    for dropped in _without(candidates, kept):
        why, missing = it.why(required, dropped), it.missing(required, dropped)
        expect(isinstance(why, str) and why != "", f"why must say why a candidate was dropped, got {why!r}")
        expect_sequence("missing", missing)
        expect(all(isinstance(name, str) for name in missing), f"missing must name texts, got {missing!r}")


def _check_scores(it: Scorer, question: Decision, scores: Sequence[float]) -> None:
    wanted = len(question[1])
    expect(len(scores) == wanted, f"score must give one figure per candidate, got {len(scores)} for {wanted}")
    for score in scores:
        if not _is_score(score):
            raise AssertionError(f"score must give figures from 0 to 100, got {score!r}")


def _check_pick(it: Strategy, question: Decision) -> None:
    required, candidates = question
    picked = _picked(it, question)
    _expect_verdicts(it.explain(required, candidates), candidates)
    expect(
        _picked(it, question) is picked,
        "pick and explain must not change what another pick reads: move a rotation or a random source on in placed",
    )
    score: object = it.score(required, candidates, picked)
    expect(score is None or _is_figure(score), f"score returned {score!r}, no figure")
    decodes = it.pick_decode(required, candidates, picked)
    fits = decodes is None or _among(decodes, candidates)
    expect(fits, f"pick_decode must return one of the candidates or None, got {decodes!r}")
    placement: object = it.placed(required, picked)
    expect(placement is None or isinstance(placement, Placement), f"placed returned {placement!r}, no Placement")


def _picked(it: Strategy, question: Decision) -> Candidate:
    picked = it.pick(*question)
    if not _among(picked, question[1]):
        raise AssertionError(f"pick must return one of the candidates, got {picked!r}")
    return picked


def _with_scorers(factory: Callable[[], Strategy]) -> Iterator[Strategy]:
    """A strategy with two scorers, then, unless it raises ``ConfigError``, one without."""
    it = factory()
    it.use((WeightedScorer("first", 2, _First()), WeightedScorer("idle", 1, _Idle())))
    yield it
    it = factory()
    with suppress(ConfigError):
        it.use(())
        yield it


def _large() -> Decision:
    return requirements(), [candidate(f"gpu-{number}", pending=number % 5) for number in range(MANY)]


def _decisions(empty: bool) -> list[Decision]:
    """All requirements with all batches, as a list and as a tuple. The gateway may pass either."""
    sequences: list[list[Candidate]] = [*([[]] if empty else []), *batches()]
    return [(required, form) for required in needs() for each in sequences for form in (each, tuple(each))]


@contextmanager
def _unchanged(required: Requirements, candidates: Sequence[Candidate]) -> Iterator[None]:
    """Raise ``AssertionError`` if the block changes the requirements, the sequence or a candidate."""
    before = deepcopy(required), list(candidates), [_counters(each) for each in candidates]
    yield
    if required != before[0]:  # writing the text takes longer than the rest of this check
        raise AssertionError(f"requirements must not be changed: {before[0]} became {required}")
    expect(_same(candidates, before[1]), "the sequence of candidates must not be changed")
    expect([_counters(each) for each in candidates] == before[2], "candidates must not be changed")


def _counters(candidate: Candidate) -> tuple[Any, ...]:
    """The fields of a candidate and of its load."""
    return _candidate_figures(candidate), _load_figures(candidate.load)


def _expect_some_in_order(kept: Sequence[Candidate], candidates: Sequence[Candidate]) -> None:
    position = {id(candidate): place for place, candidate in enumerate(candidates)}
    expect(all(id(each) in position for each in kept), "keep must not add candidates or return copies")
    places = [position[id(each)] for each in kept]
    expect(places == sorted(set(places)), "keep must keep the order of the candidates, each once")


def _expect_verdicts(verdicts: Sequence[Verdict], candidates: Sequence[Candidate]) -> None:
    expect_sequence("explain", verdicts)
    expect(len(verdicts) == len(candidates), "explain must give one verdict per candidate")
    expect(all(isinstance(each, Verdict) for each in verdicts), "explain must give objects of the class Verdict")
    for each in verdicts:
        if not all(map(_is_figure, (*each.parts.values(), 0 if each.score is None else each.score))):
            raise AssertionError(f"explain must give figures, got {each!r}")


def _is_figure(value: object) -> bool:
    return isinstance(value, (int, float))


def _is_score(value: object) -> bool:
    return isinstance(value, (int, float)) and not math.isnan(value) and 0 <= value <= 100


def _same(these: Sequence[object], those: Sequence[object]) -> bool:
    return len(these) == len(those) and all(this is that for this, that in zip(these, those, strict=True))


def _among(picked: object, candidates: Iterable[Candidate]) -> bool:
    return any(picked is candidate for candidate in candidates)


def _without(candidates: Iterable[Candidate], kept: Iterable[Candidate]) -> list[Candidate]:
    ids = {id(each) for each in kept}
    return [each for each in candidates if id(each) not in ids]


class _First(Scorer):
    """Prefers the first candidate."""

    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        return [100.0 / (1 + place) for place in range(len(candidates))]


class _Idle(Scorer):
    """Prefers candidates with fewer pending requests."""

    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        return [100 - min(each.load.pending, 100) for each in candidates]
