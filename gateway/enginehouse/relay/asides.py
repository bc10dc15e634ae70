"""Requests aside: observers send them where an engine has room, and nobody reads the answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.replica import Candidate, Health, ReplicaState, Snapshot
from enginehouse.domain.request_facts import RequestFacts
from enginehouse.domain.request_record import RequestRecord
from enginehouse.interfaces.observers import RequestContents
from enginehouse.relay.context import RelayContext
from enginehouse.relay.jobs.form_job import FormJob
from enginehouse.relay.jobs.job import InferenceJob, Job
from enginehouse.relay.relayed_request import RelayedRequest
from enginehouse.relay.request import LiveRequests
from enginehouse.relay.response_writer import ResponseWriter
from enginehouse.routing.body.rewrite import replace_model
from enginehouse.telemetry.observers import Callbacks, notify
from enginehouse.telemetry.plugin_times import SampledCall

_MOST_AT_ONCE: Final = 16
_MOST_BYTES: Final = 64 << 20


class Asides:
    """Shows observers what requests that have ended asked for, and sends others as they want: ``SendAside``."""

    def __init__(self, context: RelayContext, live_requests: LiveRequests) -> None:
        self._context = context
        self._live_requests = live_requests
        self._readers: Callbacks = ()
        self._on_their_way = self._bytes = 0

    def show(self, readers: Callbacks) -> None:
        """Call ``readers``, which are ``ReadContents``, with each request that ends."""
        self._readers = readers
        self._live_requests.on_ended = self._ended if readers or self._on_their_way else None

    def send(
        self,
        plugin: PluginId,
        model: str,
        contents: RequestContents,
        request_id: str,
        on_end: Callable[[RequestRecord], None],
    ) -> bool:
        """Send a request for ``plugin``, if there is room for it."""
        path, headers, body = contents
        if not self._has_room(model, len(body)):
            return False
        body = replace_model(body, model)
        job = AsideJob(self._context, path, headers, request_id.encode())
        job.size, job.on_end = len(body), SampledCall(plugin, on_end)
        request = RelayedRequest(job, _NobodyReads(), self._live_requests)
        self._on_their_way += 1
        self._bytes += job.size
        self._live_requests.on_ended = self._ended
        request.begin(body)
        return True

    def _ended(self, job: Job, facts: RequestFacts) -> None:
        if isinstance(job, AsideJob):
            self._on_their_way -= 1
            self._bytes -= job.size
            notify((job.on_end,), facts.record())
        elif isinstance(job, InferenceJob) and not isinstance(job, FormJob) and job.requirements is not None:
            contents = RequestContents(job.path, job.headers, job.body)
            notify(self._readers, facts.record(), job.requirements, contents)

    def _has_room(self, model: str, size: int) -> bool:
        if self._on_their_way >= _MOST_AT_ONCE or self._bytes + size > _MOST_BYTES:
            return False
        context = self._context
        models = (model, *context.filters.aliases.targets(model))
        if any(each in context.waiting_room.models for each in models):
            return False
        return any(_has_free_slot(each) for name in models for each in context.fleet.snapshot.candidates(name))


class AsideJob(InferenceJob):
    """Has one try, after every request of a client. ``size``: of its body. ``on_end`` is called with its record."""

    hedges = False
    keeps = False
    size: int
    on_end: SampledCall

    @property
    def max_retries(self) -> int:
        return 0

    @property
    def priority(self) -> int:
        return -1_000_000

    def _snapshot(self) -> Snapshot:
        found = super()._snapshot().models.items()  # it loads no model, also if it asks for one of several
        rows = {model: tuple([each for each in row if _has_free_slot(each)]) for model, row in found}
        return Snapshot({model: row for model, row in rows.items() if row})


class _NobodyReads(ResponseWriter):
    """Drops the answer."""

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
