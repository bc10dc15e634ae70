"""Observations of an engine, and the costs of a pass that fit them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import mul
from statistics import fmean as mean
from statistics import median
from typing import Literal

import msgspec

from enginehouse_sim.simulator.steps.costs import PassCosts
from enginehouse_sim.simulator.steps.models import pass_ms

Kind = Literal["prompt", "decode", "mixed", "waiting", "cached"]


class StepWork(msgspec.Struct, frozen=True, kw_only=True):
    """Equal passes of an engine, as in ``StepLoad``; ``passes`` of them. Means over passes may be fractions."""

    passes: float = 1.0
    prompt_tokens: float = 0.0
    pairs: float = 0.0
    first_tokens: float = 0.0
    decodes: float = 0.0
    kv_tokens: float = 0.0
    waiting: float = 0.0

    def counts(self, least_tokens: float) -> list[float]:
        """How often the passes have each cost, in the order of ``_COSTS``. ``least_tokens``: what each counts as."""
        tokens, sequences = self.prompt_tokens + self.decodes, self.decodes + self.first_tokens
        counts = (1.0, max(least_tokens, tokens), self.pairs, self.kv_tokens, sequences)
        return [self.passes * count for count in (*counts, float(self.prompt_tokens > 0), self.waiting)]

    def milliseconds(self, costs: PassCosts) -> float:
        sequences = self.decodes + self.first_tokens
        return self.passes * pass_ms(
            costs, self.prompt_tokens, self.decodes, self.pairs, self.kv_tokens, sequences, self.waiting
        )


class Observation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measurement.

    ``point``: the name of what was measured; repeats have the same. ``requests``: the requests whose way through HTTP
    the time includes. ``ms``: the time of all ``work`` together, in milliseconds. ``uncached``: of a ``cached`` prompt,
    the work if the engine reads it again.
    """

    point: str
    kind: Kind
    work: Sequence[StepWork]
    requests: float = 0.0
    ms: float
    uncached: Sequence[StepWork] = ()

    def predicted(self, fitted: Fitted) -> float:
        return self.requests * fitted.request_ms + sum(work.milliseconds(fitted.costs) for work in self.work)


def prompt_work(tokens: int, cached: int = 0) -> StepWork:
    """One pass that computes a prompt of so many ``tokens`` behind those that are ``cached``."""
    return StepWork(prompt_tokens=tokens, pairs=tokens * cached + tokens * (tokens + 1) / 2, first_tokens=1)


_COSTS = ("fixed_ms", "token_ms", "pair_ms", "kv_token_ms", "sequence_ms", "prompt_ms", "waiting_ms")
_HUBER = 0.15
"""A relative error above this counts in proportion to its size, not to its square."""
_STALLED = 2.5
"""A repeat that took so many times as long as the median of its point, or as short, says nothing about the engine: it
stood still, or its answers were held up."""
_ROUNDS = 5
_CROSSINGS = (0, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""The numbers of tokens to try first at which computing them takes as long as reading the weights."""
_NOTHING = 1e-10
_WORTH = 0.98
"""Weights are a cost of their own only if they make the loss this much smaller."""


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """The costs, and the milliseconds of a request outside of its engine's steps."""

    costs: PassCosts
    request_ms: float


class KindErrors(msgspec.Struct, frozen=True, kw_only=True):
    """The relative errors of predictions: the median size, and that of the sum of all times (positive: too long)."""

    observations: int
    median: float
    sum: float


def fit(observations: Sequence[Observation]) -> Fitted:
    """The costs with the smallest squared relative errors, none below 0. Single observations far off count less.

    A robust fit of medians would be too low: the times of steps are skewed, and their mean is what adds up.
    """
    plain = _fit(observations, 0)
    losses = {0: _loss(observations, plain)}
    fits = {0: plain}

    def loss_at(crossing: int) -> float:
        if crossing not in losses:
            fits[crossing] = _fit(observations, crossing)
            losses[crossing] = _loss(observations, fits[crossing])
        return losses[crossing]

    best = min(_CROSSINGS[1:], key=loss_at)
    step = best // 4
    while step:
        best = min((max(1, best - step), best, best + step), key=loss_at)
        step //= 2
    return fits[best] if loss_at(best) < _WORTH * losses[0] else plain


def held_out(observations: Sequence[Observation]) -> dict[Kind, KindErrors]:
    """The errors of a fit to two thirds of the points, on the others: of each kind, every third by its time."""
    apart = set[str]()
    for kind in dict.fromkeys(each.kind for each in observations):
        times = {each.point: each.ms for each in observations if each.kind == kind}
        apart |= set(sorted(times, key=lambda point: times[point])[1:-1:3])
    fitted = fit([each for each in observations if each.point not in apart])
    return errors(fitted, [each for each in observations if each.point in apart])


def errors(fitted: Fitted, observations: Iterable[Observation]) -> dict[Kind, KindErrors]:
    """The errors of predictions, for each kind of step. Repeats of a point are compared by their mean."""
    kinds: dict[Kind, list[tuple[float, float]]] = {}
    for repeats in _points(observations).values():
        predicted = mean(each.predicted(fitted) for each in repeats)
        kinds.setdefault(repeats[0].kind, []).append((predicted, mean(each.ms for each in repeats)))
    return {
        kind: KindErrors(
            observations=len(pairs),
            median=median(abs(predicted / measured - 1) for predicted, measured in pairs),
            sum=sum(predicted for predicted, _ in pairs) / sum(measured for _, measured in pairs) - 1,
        )
        for kind, pairs in kinds.items()
    }


def spread(observations: Iterable[Observation]) -> float:
    """How far repeats of the same point are apart: the median over the points of (longest - shortest) / mean."""
    points = [[each.ms for each in repeats] for repeats in _points(observations).values()]
    apart = [(max(ms) - min(ms)) * len(ms) / sum(ms) for ms in points if len(ms) > 1]
    return median(apart) if apart else 0.0


def _fit(observations: Sequence[Observation], crossing: int) -> Fitted:
    points = [_mean(_plausible(repeats), crossing) for repeats in _points(observations).values()]
    rows, times = [row for row, _ in points], [ms for _, ms in points]
    weights = [1.0] * len(rows)
    solution: list[float] = []
    for _ in range(_ROUNDS):
        solution = _non_negative(
            [[weight * value / ms for value in row] for weight, row, ms in zip(weights, rows, times, strict=True)],
            weights,
        )
        off = (
            abs(sum(cost * value for cost, value in zip(solution, row, strict=True)) / ms - 1)
            for row, ms in zip(rows, times, strict=True)
        )
        weights = [1.0 if error <= _HUBER else (_HUBER / error) ** 0.5 for error in off]
    *found, request_ms = (float(f"{cost:.4g}") for cost in solution)
    costs = dict(zip(_COSTS, found, strict=True))
    return Fitted(
        costs=PassCosts(weights_ms=float(f"{crossing * costs['token_ms']:.4g}"), **costs), request_ms=request_ms
    )


def _points(observations: Iterable[Observation]) -> dict[str, list[Observation]]:
    points: dict[str, list[Observation]] = {}
    for each in observations:
        points.setdefault(each.point, []).append(each)
    return points


def _plausible(repeats: Sequence[Observation]) -> list[Observation]:
    """The repeats of a point, but for those that are far from the others."""
    middle = median(each.ms for each in repeats)
    return [each for each in repeats if middle / _STALLED <= each.ms <= middle * _STALLED]


def _mean(repeats: Sequence[Observation], crossing: int) -> tuple[list[float], float]:
    rows = [
        [*map(sum, zip(*(work.counts(crossing) for work in each.work), strict=True)), each.requests] for each in repeats
    ]
    return [mean(column) for column in zip(*rows, strict=True)], mean(each.ms for each in repeats)


def _loss(observations: Sequence[Observation], fitted: Fitted) -> float:
    """Huber's loss of the relative errors."""
    total = 0.0
    for each in observations:
        error = abs(each.predicted(fitted) / each.ms - 1)
        total += error * error if error <= _HUBER else _HUBER * (2 * error - _HUBER)
    return total


def _non_negative(rows: Sequence[Sequence[float]], targets: Sequence[float]) -> list[float]:
    """The solution of least squares without negative numbers (Lawson and Hanson 1974, chapter 23)."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    scale = [sum(map(mul, column, column)) ** 0.5 or 1.0 for column in columns]
    scaled = [[value / unit for value in column] for column, unit in zip(columns, scale, strict=True)]
    gram = [[sum(map(mul, a, b)) for b in scaled] for a in scaled]
    goal = [sum(map(mul, column, targets)) for column in scaled]
    least = _NOTHING * max(map(abs, goal))
    found, free = [0.0] * len(columns), list[int]()
    for _ in range(3 * len(columns)):  # rounding may free and fix a variable in turns
        gains = {at: goal[at] - sum(map(mul, gram[at], found)) for at in range(len(columns)) if at not in free}
        best = max(gains, key=lambda at: gains[at], default=0)
        if gains.get(best, 0.0) <= least:
            break
        free.append(best)
        while free:
            values = _solved([[gram[a][b] for b in free] for a in free], [goal[at] for at in free])
            if min(values) > 0:
                break
            pairs = list(zip(free, values, strict=True))
            step = min(found[at] / max(found[at] - value, _NOTHING) for at, value in pairs if value <= 0)
            for at, value in pairs:
                found[at] += step * (value - found[at])
            free = [at for at, value in pairs if value > 0 or found[at] > _NOTHING]
        solution = dict(zip(free, values, strict=True)) if free else {}
        found = [solution.get(at, 0.0) for at in range(len(columns))]
    return [value / unit for value, unit in zip(found, scale, strict=True)]


def _solved(matrix: list[list[float]], goal: list[float]) -> list[float]:
    """Solve a symmetric system by elimination. A column that depends on others gets 0."""
    size = len(goal)
    rows = [[*row, value] for row, value in zip(matrix, goal, strict=True)]
    for at in range(size):
        pivot = max(range(at, size), key=lambda row: abs(rows[row][at]))
        rows[at], rows[pivot] = rows[pivot], rows[at]
        if abs(rows[at][at]) < 1e-12:
            continue
        for row in range(at + 1, size):
            factor = rows[row][at] / rows[at][at]
            rows[row] = [value - factor * above for value, above in zip(rows[row], rows[at], strict=True)]
    found = [0.0] * size
    for at in reversed(range(size)):
        known = sum(rows[at][other] * found[other] for other in range(at + 1, size))
        found[at] = (rows[at][size] - known) / rows[at][at] if abs(rows[at][at]) >= 1e-12 else 0.0
    return found


_TELLING = 1.5
"""How many times as long a prompt must take as the rest of it, so that a measurement tells which of them was read."""


class PrefixCache(msgspec.Struct, frozen=True, kw_only=True):
    """The milliseconds to the first token of a prompt whose beginning the engine has just read.

    ``measured_ms``: the median. ``rest_ms``: what the costs give for the rest of it, ``whole_ms`` for all of it.
    ``works``: whether the engine took the beginning from its cache; ``None`` if the times do not tell.
    """

    measured_ms: float
    rest_ms: float
    whole_ms: float
    works: bool | None

    @property
    def error(self) -> float:
        """The error of the prediction for what the engine did, as a share; positive: too long."""
        return (self.whole_ms if self.works is False else self.rest_ms) / self.measured_ms - 1


def prefix_cache(observations: Sequence[Observation], fitted: Fitted) -> PrefixCache | None:
    """What ``observations`` of kind ``cached`` say; ``None`` without one."""
    if not observations:
        return None
    one, measured = observations[0], median(each.ms for each in observations)
    rest = one.predicted(fitted)
    whole = msgspec.structs.replace(one, work=one.uncached).predicted(fitted)
    works = measured * measured < rest * whole if whole > _TELLING * rest else None
    return PrefixCache(measured_ms=measured, rest_ms=rest, whole_ms=whole, works=works)
