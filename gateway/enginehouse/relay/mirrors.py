"""Mirrors: a share of the requests for a model is also sent to another one, and the answers are compared."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from enginehouse.config.routing import MirrorSettings
from enginehouse.domain.replica import Candidate, Health, ReplicaState
from enginehouse.domain.request import Headers
from enginehouse.domain.request_record import RequestRecord
from enginehouse.relay.context import RelayContext
from enginehouse.relay.door import Door, OpenExchange
from enginehouse.relay.jobs.form_job import FormJob
from enginehouse.relay.jobs.inference_job import InferenceJob
from enginehouse.relay.jobs.job import Job
from enginehouse.relay.jobs.mirror_job import MirrorJob
from enginehouse.routing.body.replace_model import replace_model
from enginehouse.telemetry.counters import Histogram

_log = logging.getLogger("enginehouse.relay")
_MOST_AT_ONCE: Final = 16
_MOST_BYTES: Final = 64 << 20
"""Of the bodies of copies that are on their way."""
_HEADERS: Final = frozenset({b"content-type", b"accept"})
"""The client's headers that a copy has. Its key, its session and its deadline concern the client's request alone."""
_ROUNDING: Final = 1e-9  # ten times a share of 0.1 is a little less than 1

OpenMirror = Callable[[Door, str, Headers, bytes, RequestRecord], OpenExchange]


class Comparison:
    """What came of the copies for one model. Times are in seconds from sending a request to its engine.

    ``statuses``: of the client's answer and the copy's, with the number of requests. ``skipped``: copies that were not
    sent, because no engine had a free slot.
    """

    def __init__(self) -> None:
        self.statuses: Counter[tuple[int, int]] = Counter()
        self.skipped = 0
        self.first_byte = {"real": Histogram(), "mirror": Histogram()}
        self.duration = {"real": Histogram(), "mirror": Histogram()}

    def add(self, real: RequestRecord, copy: RequestRecord) -> None:
        """Count a copy whose answer has ended."""
        self.statuses[real.status, copy.status] += 1
        if real.status >= 400 or copy.status >= 400:  # an error takes less time than an answer
            return
        for side, record in (("real", real), ("mirror", copy)):
            if record.sent is not None and record.first_byte is not None:
                self.first_byte[side].observe(record.first_byte - record.sent)
                self.duration[side].observe(record.ended - record.sent)

    def outcomes(self) -> Mapping[str, int]:
        """The number of copies by what came of them."""
        same = sum(number for (real, copy), number in self.statuses.items() if real == copy)
        return {"same": same, "differs": self.statuses.total() - same, "skipped": self.skipped}


class Mirrors:
    """Sends copies of requests, when these have ended, and drops the answers.

    So a copy never makes its request wait. It goes to a replica that is loaded and has a free slot, or nowhere; at most
    16 copies are on their way. Requests that must not leave a zone, forms and requests that were not answered have no
    copy.

    ``comparisons``: by the model, and the one that the copies go to.
    """

    def __init__(self, context: RelayContext, open: OpenMirror) -> None:
        self.settings: Mapping[str, MirrorSettings] = {}
        self.comparisons: dict[tuple[str, str], Comparison] = {}
        self._context = context
        self._open = open
        self._shares: dict[str, float] = {}
        self._on_their_way = self._bytes = 0

    def configure(self, settings: Mapping[str, MirrorSettings]) -> None:
        """Use ``settings`` from now on, by model. Comparisons go on."""
        self.settings = settings
        kept = {(model, mirror.to) for model, mirror in settings.items()}
        self.comparisons = {pair: self.comparisons.get(pair) or Comparison() for pair in sorted(kept)}

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
        """What came of the copies so far, for ``/api/status``; times are means in milliseconds."""
        return [
            {
                "model": model,
                "to": to,
                "share": self.settings[model].share,
                **each.outcomes(),
                "statuses": [
                    {"real": real, "mirror": copy, "requests": number}
                    for (real, copy), number in sorted(each.statuses.items())
                ],
                "first_byte_ms": {side: _mean_ms(times) for side, times in each.first_byte.items()},
                "duration_ms": {side: _mean_ms(times) for side, times in each.duration.items()},
            }
            for (model, to), each in self.comparisons.items()
        ]

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
            self.comparisons[model, to].skipped += 1
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

    def _compare(self, job: MirrorJob, record: RequestRecord) -> None:
        for model in (job.real.model, job.real.asked):
            found = self.comparisons.get((model or "", record.asked or ""))
            if found is not None:
                found.add(job.real, record)
                if record.status != job.real.status:
                    _log.info("The copy of %s for '%s' was answered %d", job.real.id, record.asked, record.status)
                return


class _NobodyReads(Door):
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


def _mean_ms(times: Histogram) -> float | None:
    number = sum(times.counts)
    return round(1000 * times.total / number, 3) if number else None
