"""Mirrors: a share of the requests for a model is also sent to another one, and the answers are compared."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from enginehouse.config.routing import MirrorSettings
from enginehouse.domain.replica import Candidate, Health, ReplicaState
from enginehouse.domain.request import Headers
from enginehouse.domain.request_record import RequestRecord
from enginehouse.relay.context import RelayContext
from enginehouse.relay.jobs.form_job import FormJob
from enginehouse.relay.jobs.job import InferenceJob, Job
from enginehouse.relay.jobs.mirror_job import MirrorJob
from enginehouse.relay.response_writer import OpenExchange, ResponseWriter
from enginehouse.routing.body.rewrite import replace_model
from enginehouse.telemetry.counters import Histogram

_log = logging.getLogger("enginehouse.relay")
_MOST_AT_ONCE: Final = 16
_MOST_BYTES: Final = 64 << 20
"""Of the bodies of copies that are on their way."""
_HEADERS: Final = frozenset({b"content-type", b"accept"})
"""The client's headers that a copy has. Its key, its session and its deadline concern the client's request alone."""
_OUTCOMES: Final = ("same", "differs", "skipped")
_ROUNDING: Final = 1e-9  # ten times a share of 0.1 is a little less than 1

OpenMirror = Callable[[ResponseWriter, str, Headers, bytes, RequestRecord], OpenExchange]


class Mirrors:
    """Sends copies of requests, when these have ended, and drops the answers.

    So a copy never makes its request wait. It goes to a replica that is loaded and has a free slot, or nowhere; at most
    16 copies are on their way. Requests that must not leave a zone, forms and requests that were not answered have no
    copy. What came of them is in the context's counters. ``settings``: by model.
    """

    def __init__(self, context: RelayContext, open: OpenMirror) -> None:
        self.settings: Mapping[str, MirrorSettings] = {}
        self._context = context
        self._open = open
        self._shares: dict[str, float] = {}
        self._on_their_way = self._bytes = 0

    def ended(self, job: Job, record: RequestRecord) -> None:
        """Send a copy of the request that has ended, if it is its turn; or compare the copy that has."""
        if isinstance(job, MirrorJob):
            self._on_their_way -= 1
            self._bytes -= len(job.body)
            self._compare(job, record)
        elif self.settings and isinstance(job, InferenceJob) and not isinstance(job, FormJob):
            model = record.model if record.model in self.settings else record.asked
            mirror = self.settings.get(model or "")
            if model and mirror is not None and self._is_turn(model, mirror.share, job, record):
                self._copy(model, mirror.to, job, record)

    def figures(self) -> list[dict[str, Any]]:
        """What came of the copies so far, for ``/api/status``; times are means in milliseconds, as far as known."""
        counters = self._context.counters
        return [
            {
                "model": model,
                "to": mirror.to,
                "share": mirror.share,
                **{outcome: counters.mirrored.get((model, mirror.to, outcome), 0) for outcome in _OUTCOMES},
                "statuses": [
                    {"real": int(real), "mirror": int(copy), "requests": number}
                    for (*pair, real, copy), number in sorted(counters.mirror_statuses.items())
                    if pair == [model, mirror.to]
                ],
                "first_byte_ms": _means_ms(counters.mirror_first_byte, model, mirror.to),
                "duration_ms": _means_ms(counters.mirror_duration, model, mirror.to),
            }
            for model, mirror in sorted(self.settings.items())
        ]

    def labels(self) -> Iterator[tuple[str, ...]]:
        """The labels that the counter of copies has from the start."""
        return ((model, mirror.to, outcome) for model, mirror in self.settings.items() for outcome in _OUTCOMES)

    def _is_turn(self, model: str, share: float, job: Job, record: RequestRecord) -> bool:
        """Whether the request has a copy; shares hold in every short while."""
        answered = record.sent is not None and (record.outcome in ("served", "engine_error"))
        if not answered or job.requirements is None or job.requirements.zones:
            return False
        due = self._shares.get(model, 0.0) + share
        turn = due >= 1 - _ROUNDING
        self._shares[model] = due - 1 if turn else due
        return turn

    def _copy(self, model: str, to: str, job: Job, record: RequestRecord) -> None:
        if not self._has_room(to, len(job.body)):
            self._context.counters.mirrored[model, to, "skipped"] += 1
            return
        body = replace_model(job.body, to)
        headers = [each for each in job.headers if each[0] in _HEADERS]
        self._on_their_way += 1
        self._bytes += len(body)
        self._open(_NobodyReads(), job.path, headers, job.request_id + b"-mirror", record).begin(body)

    def _has_room(self, to: str, size: int) -> bool:
        if self._on_their_way >= _MOST_AT_ONCE or self._bytes + size > _MOST_BYTES:
            return False
        context = self._context
        models = (to, *context.filters.aliases.targets(to))
        if any(model in context.waiting_room.models for model in models):
            return False
        return any(_has_free_slot(each) for model in models for each in context.fleet.snapshot.candidates(model))

    def _compare(self, job: MirrorJob, copy: RequestRecord) -> None:
        real, to = job.real, copy.asked or ""
        model = next((each for each in (real.model, real.asked) if self._goes_to(each) == to), None)
        if model is None:  # a reload has removed the mirror
            return
        counters = self._context.counters
        counters.mirrored[model, to, "same" if copy.status == real.status else "differs"] += 1
        counters.mirror_statuses[model, to, str(real.status), str(copy.status)] += 1
        if copy.status != real.status:
            _log.info("The copy of %s for '%s' was answered %d", real.id, to, copy.status)
        if real.status >= 400 or copy.status >= 400:  # an error takes less time than an answer
            return
        for side, record in (("real", real), ("mirror", copy)):
            if record.sent is not None and record.first_byte is not None:
                counters.mirror_first_byte[model, to, side].observe(record.first_byte - record.sent)
                counters.mirror_duration[model, to, side].observe(record.ended - record.sent)

    def _goes_to(self, model: str | None) -> str | None:
        mirror = self.settings.get(model or "")
        return mirror.to if mirror is not None else None


class _NobodyReads(ResponseWriter):
    """Drops the answer."""

    __slots__ = ()

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        pass

    def write(self, chunk: bytes) -> None:
        pass

    def finish(self, chunk: bytes) -> None:
        pass

    def unread(self) -> int:
        return 0

    def abort(self) -> None:
        pass


def _has_free_slot(candidate: Candidate) -> bool:
    ready = candidate.state is ReplicaState.READY and candidate.health is Health.HEALTHY and not candidate.draining
    return ready and candidate.load.free != 0


def _means_ms(times: Mapping[tuple[str, str, str], Histogram], model: str, to: str) -> dict[str, float | None]:
    return {side: _mean_ms(times.get((model, to, side))) for side in ("real", "mirror")}


def _mean_ms(times: Histogram | None) -> float | None:
    return round(1000 * times.total / sum(times.counts), 3) if times is not None else None
