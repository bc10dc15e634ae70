"""Predicts the tokens that an instance has computed since it reported, from the steps that it and others reported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import hypot, sqrt

from enginehouse import Role
from enginehouse_kit.rescheduling import ClusterView, InstanceView

_SHORTEST_MS, _LONGEST_MS = 1e-3, 1e6
_Column = list[float]
_DEGREES = ((2, 3, 1e8), (1, 2, 1e12))
"""Degree, least number of points, and largest condition number: a fit beyond it would be noise."""
_SWEEPS = 30


class PrefillProgress:
    """Learns the duration of a step from its tokens of prompts, once, from ``samples`` steps of prefill instances.

    Before that, and for other instances, nothing is predicted: decodes would lengthen the steps.
    """

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._steps: dict[tuple[str, int], tuple[float, float]] = {}
        self._duration: Function | None = None

    def learn(self, view: ClusterView) -> None:
        """Take the last steps of all prefill instances."""
        if self._duration is not None:
            return
        for each in view.instances:
            tokens, duration = each.status.num_scheduled_prefill_tokens, each.status.step_duration
            if each.role is Role.PREFILL and tokens > 0 and _SHORTEST_MS <= duration <= _LONGEST_MS:
                self._steps[each.id, each.status.step_id] = tokens, duration
        if len(self._steps) >= self._samples:
            self._duration = fit(list(self._steps.values()))
            self._steps = {}

    def computed(self, instance: InstanceView, now_ms: int) -> int:
        """The tokens of prompts that the instance has probably computed since its status; at most all it had."""
        if self._duration is None or instance.role is not Role.PREFILL:
            return 0
        status, most = instance.status, instance.max_num_batched_tokens
        running = status.num_uncomputed_tokens_scheduler_running_prefills
        left = running + status.num_uncomputed_tokens_all_waiting_prefills
        elapsed, done = float(now_ms - status.timestamp_ms), 0
        step = running if 0 < running < most else 0  # a prompt that has begun is finished first
        while left > 0 and elapsed > 0:
            step = min(step or left, most or left)
            duration = self._duration(step)
            if not _SHORTEST_MS <= duration <= _LONGEST_MS:
                break
            if duration > elapsed:
                return done + round(step * elapsed / duration)
            done, left, elapsed, step = done + step, left - step, elapsed - duration, 0
        return done


Function = Callable[[float], float]


def fit(points: Sequence[tuple[float, float]]) -> Function:
    """The function with the least squares of differences from ``points``, of which there is at least one."""
    xs, ys = zip(*points, strict=True)
    for degree, least, most in _DEGREES:
        if len(xs) >= least and (found := _polynomial(xs, ys, degree, most)) is not None:
            return found
    mean = sum(ys) / len(ys)
    return lambda x: mean


def _polynomial(xs: Sequence[float], ys: Sequence[float], degree: int, most: float) -> Function | None:
    """The polynomial, or ``None`` if the condition number of its matrix is above ``most``."""
    columns = [[float(x) ** power for x in xs] for power in range(degree + 1)]
    rotations = _orthogonalize(columns)
    sizes = [sqrt(sum(value * value for value in column)) for column in columns]
    if min(sizes) <= 0 or max(sizes) / min(sizes) > most:
        return None
    shares = [
        sum(value * y for value, y in zip(column, ys, strict=True)) / size**2
        for column, size in zip(columns, sizes, strict=True)
    ]
    factors = [
        sum(rotation[row] * share for rotation, share in zip(rotations, shares, strict=True))
        for row in range(degree + 1)
    ]
    return lambda x: sum(factor * x**power for power, factor in enumerate(factors))


def _orthogonalize(columns: list[_Column]) -> list[_Column]:
    """Rotate ``columns`` in place until they are orthogonal; returns the rotations, by column (Jacobi's SVD).

    Their lengths are then the singular values.
    """
    count = len(columns)
    rotations = [[float(row == column) for row in range(count)] for column in range(count)]
    for _ in range(_SWEEPS):
        turned = [_rotate(columns, rotations, p, q) for p in range(count) for q in range(p + 1, count)]
        if not any(turned):
            break
    return rotations


def _rotate(columns: list[_Column], rotations: list[_Column], p: int, q: int) -> bool:
    """Make two columns orthogonal; whether they were not."""
    left, right = columns[p], columns[q]
    a, b = sum(value * value for value in left), sum(value * value for value in right)
    product = sum(x * y for x, y in zip(left, right, strict=True))
    if abs(product) <= 1e-15 * sqrt(a * b):
        return False
    zeta = (b - a) / (2 * product)
    tangent = (1 if zeta >= 0 else -1) / (abs(zeta) + hypot(1, zeta))
    cosine = 1 / hypot(1, tangent)
    sine = cosine * tangent
    for matrix in (columns, rotations):
        pairs = list(zip(matrix[p], matrix[q], strict=True))
        matrix[p] = [cosine * x - sine * y for x, y in pairs]
        matrix[q] = [sine * x + cosine * y for x, y in pairs]
    return True
