"""Sends copies of requests to other models, and compares the answers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from enginehouse import Observer, RequestRecord, Requirements
from enginehouse.records import Figures, ReadContents, RequestContents, SendAside
from enginehouse.services import Configured, MetricInfo
from enginehouse.settings import MirrorSettings

_log = logging.getLogger(__name__)
_HEADERS: Final = frozenset({b"content-type", b"accept"})
"""The client's headers that a copy has. Its key, its session and its deadline concern the client's request alone."""
_OUTCOMES: Final = ("same", "differs", "skipped")
_SIDES: Final = ("real", "mirror")
_ROUNDING: Final = 1e-9  # ten times a share of 0.1 is a little less than 1
MIRRORED = MetricInfo(
    "counter",
    "enginehouse_mirrored_requests",
    "Copies of requests (`routing.mirrors`): answered with the `same` status or one that `differs`, or `skipped` "
    "because no engine had a free slot.",
    ("model", "to", "outcome"),
)
STATUSES = MetricInfo(
    "counter",
    "enginehouse_mirror_statuses",
    "Answered copies, by the statuses of the client's answer (`real`) and of the copy's (`mirror`).",
    ("model", "to", "real", "mirror"),
)
FIRST_BYTE = MetricInfo(
    "histogram",
    "enginehouse_mirror_time_to_first_byte_seconds",
    "From sending a copied request to its engine until the answer began: of the `real` one and of its `mirror`.",
    ("model", "to", "side"),
)
DURATION = MetricInfo(
    "histogram",
    "enginehouse_mirror_duration_seconds",
    "From sending a copied request to its engine to the end of the answer: of the `real` one and of its `mirror`.",
    ("model", "to", "side"),
)


class Mirrors(Observer):
    """Sends a copy of a request when that has been answered, so it never makes a client wait.

    Requests that must not leave a zone, and requests that were not answered, have no copy.
    """

    metrics = (MIRRORED, STATUSES, FIRST_BYTE, DURATION)
    _figures: Figures
    _aside: SendAside

    def __init__(self) -> None:
        self._mirrors: Mapping[str, MirrorSettings] = {}
        self._shares: dict[str, float] = {}

    def use_figures(self, figures: Figures) -> None:
        self._figures = figures

    def use_aside(self, aside: SendAside) -> None:
        self._aside = aside

    def with_contents(self, configured: Configured) -> ReadContents | None:
        self._mirrors = configured.table("routing").mirrors
        for model, mirror in self._mirrors.items():
            for outcome in _OUTCOMES:
                self._figures.count(MIRRORED, (model, mirror.to, outcome), 0)
        return self._ended if self._mirrors else None

    def status(self) -> Mapping[str, Any]:
        return {"mirrors": [self._row(model, mirror) for model, mirror in sorted(self._mirrors.items())]}

    def _ended(self, record: RequestRecord, requirements: Requirements, contents: RequestContents) -> None:
        """Send a copy of the request, if it is its turn."""
        model = record.model if record.model in self._mirrors else record.asked
        mirror = self._mirrors.get(model or "")
        answered = record.sent is not None and record.outcome in ("served", "engine_error")
        if not model or mirror is None or not answered or requirements.zones or not self._is_turn(model, mirror.share):
            return
        copied = contents._replace(headers=[each for each in contents.headers if each[0] in _HEADERS])
        if not self._aside(mirror.to, copied, f"{record.id}-mirror", partial(self._compare, model, mirror.to, record)):
            self._figures.count(MIRRORED, (model, mirror.to, "skipped"))

    def _is_turn(self, model: str, share: float) -> bool:
        """Whether a request has a copy; shares hold in every short while."""
        due = self._shares.get(model, 0.0) + share
        turn = due >= 1 - _ROUNDING
        self._shares[model] = due - 1 if turn else due
        return turn

    def _compare(self, model: str, to: str, real: RequestRecord, copy: RequestRecord) -> None:
        mirror, figures = self._mirrors.get(model), self._figures
        if mirror is None or mirror.to != to:  # a reload has removed the mirror
            return
        figures.count(MIRRORED, (model, to, "same" if copy.status == real.status else "differs"))
        figures.count(STATUSES, (model, to, str(real.status), str(copy.status)))
        if copy.status != real.status:
            _log.info("The copy of %s for '%s' was answered %d", real.id, to, copy.status)
        if real.status >= 400 or copy.status >= 400:  # an error takes less time than an answer
            return
        for side, record in zip(_SIDES, (real, copy), strict=True):
            if record.sent is not None and record.first_byte is not None:
                figures.observe(FIRST_BYTE, (model, to, side), record.first_byte - record.sent)
                figures.observe(DURATION, (model, to, side), record.ended - record.sent)

    def _row(self, model: str, mirror: MirrorSettings) -> Mapping[str, Any]:
        """What came of the copies so far; times are means in milliseconds, as far as known."""
        figures, to = self._figures, mirror.to
        outcomes = {labels: number for labels, number, _ in figures.measured(MIRRORED)}
        return {
            "model": model,
            "to": to,
            "share": mirror.share,
            **{outcome: outcomes.get((model, to, outcome), 0) for outcome in _OUTCOMES},
            "statuses": [
                {"real": int(real), "mirror": int(copy), "requests": number}
                for (*pair, real, copy), number, _ in sorted(figures.measured(STATUSES))
                if pair == [model, to]
            ],
            "first_byte_ms": self._means_ms(FIRST_BYTE, model, to),
            "duration_ms": self._means_ms(DURATION, model, to),
        }

    def _means_ms(self, metric: MetricInfo, model: str, to: str) -> Mapping[str, float | None]:
        means = {labels: round(1000 * total / number, 3) for labels, number, total in self._figures.measured(metric)}
        return {side: means.get((model, to, side)) for side in _SIDES}
