"""Runs the lines of batches as ``plan`` decides, and keeps what becomes of them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from enginehouse import Candidate, RequestError
from enginehouse.errors import ShuttingDown
from enginehouse.services import ServiceGateway
from enginehouse.tickets import Phase
from enginehouse_batches.input_file import read_input
from enginehouse_batches.objects import Batch, BatchSettings, not_run
from enginehouse_batches.plan import HostUse, Person, RunningLine, plan
from enginehouse_batches.store import Storage

_log = logging.getLogger(__name__)

_LOWEST: Final = -1000
"""The priority of lines in queues."""
_PASSING: Final = frozenset({429, 502, 503, 504})
"""The statuses of answers after which a line is sent again."""
_MOST_TRIES: Final = 5
"""Of a line, without those that a limit refused."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 300.0
_FORGET_EVERY_S: Final = 600.0
_REST_S: Final = 0.02
"""Lines that end sooner after a decision wait for the next one, which looks at all live requests."""
_EXPIRED = not_run("batch_expired", "This request could not be executed before the completion window expired.")
_CANCELLED = not_run("batch_cancelled", "The batch was cancelled before this request was executed.")


class _Pause:
    """No lines of a model are sent ``until`` a time. ``length``: of the next pause, in seconds."""

    def __init__(self) -> None:
        self.until = 0.0
        self.length = _FIRST_PAUSE_S

    def begin(self, now: float) -> None:
        self.until = now + self.length
        self.length = min(2 * self.length, _LONGEST_PAUSE_S)


class _SentLine:
    """A line that a task runs. ``answered``: its answer has come, and is being kept. ``aside``: as in ``submit``."""

    def __init__(self, job: _Job, number: int, model: str, *, aside: bool) -> None:
        self.job = job
        self.number = number
        self.model = model
        self.aside = aside
        self.answered = False
        self.task: asyncio.Task[None]


class _Job:
    """A batch in progress. ``waiting``: the numbers of lines, by model."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.waiting: dict[str, deque[int]] = {}
        self.pauses: dict[str, _Pause] = {}
        self.tries: Counter[int] = Counter()
        self.stops: Counter[int] = Counter()
        self.running: dict[int, _SentLine] = {}
        self.why: Mapping[str, str] = {}

    @property
    def is_done(self) -> bool:
        return not self.running and not any(self.waiting.values())

    def pause(self, model: str, now: float) -> None:
        """Send no lines of a model for a while, which is longer each time."""
        self.pauses.setdefault(model, _Pause()).begin(now)

    def sendable(self, now: float) -> Iterator[tuple[str, int]]:
        """The models whose lines may be sent, and how many there are."""
        for model, numbers in self.waiting.items():
            pause = self.pauses.get(model)
            if numbers and (pause is None or pause.until <= now):
                yield model, len(numbers)


class Runner:
    """Runs all batches of ``storage``. ``served``, ``failed``: lines since the start."""

    def __init__(self, gateway: ServiceGateway, storage: Storage, settings: BatchSettings) -> None:
        self._gateway = gateway
        self._storage = storage
        self._store = storage.store
        self._settings = settings
        self._use = HostUse(settings.quiet, settings.swaps_per_hour)
        self._jobs: dict[str, _Job] = {}
        self._troubled: dict[str, _Pause] = {}
        """Batches that could not go on, such as for a full disk."""
        self._sent: dict[str, _SentLine] = {}
        self._may_run = False
        self._forgot_at = -_FORGET_EVERY_S
        self._decided_at = -_REST_S
        self.served = self.failed = 0

    # --- what it does

    async def look(self) -> None:
        """Take new batches, and end those that are done, cancelled or expired."""
        call, store = self._storage.call, self._store
        self._may_run = self._may_run or await call(store.may_run)
        if not self._may_run:
            return
        now = self._gateway.clock.now()
        if now - self._forgot_at >= _FORGET_EVERY_S:
            self._forgot_at = now
            await call(store.forget, self._epoch())
        for found in await call(store.open_batches):
            pause = self._troubled.get(found.batch.id)
            if pause is not None and pause.until > now:
                continue
            try:
                await self._look_at(found.batch)
                self._troubled.pop(found.batch.id, None)
            except Exception:  # each batch alone
                self._troubled.setdefault(found.batch.id, _Pause()).begin(now)
                _log.exception("The batch '%s' cannot go on now", found.batch.id)

    def tick(self) -> None:
        """Send the lines that may run now, and end those that must make room."""
        if not self._jobs:
            return
        now = self._decided_at = self._gateway.clock.now()
        waiting: Counter[str] = Counter()
        for job in self._jobs.values():
            waiting.update(dict(job.sendable(now)))
        people, running = self._live()
        decided = plan(waiting, running, people, self._replicas, self._use, self._settings, now)
        for id in decided.stop:
            line = self._sent[id]
            line.job.stops[line.number] += 1
            line.task.cancel()
        for job in self._jobs.values():
            job.why = {model: why for model, why in decided.why.items() if job.waiting.get(model)}
        for model, most in decided.start.items():
            self._start(model, most, now, aside=model in decided.aside)

    async def stop(self) -> None:
        """End all lines, which run again after the next start."""
        jobs = [*self._jobs.values()]
        self._jobs.clear()  # first: a line that ends now sends no other ones
        for job in jobs:
            await self._end_lines(job)

    # --- what it shows

    def facts(self, batch: str) -> Mapping[str, Any]:
        """For operators: the running lines of a batch, and why no more of the others run."""
        job = self._jobs.get(batch)
        return {"running": len(job.running), "waits_for": job.why} if job else {"running": 0, "waits_for": {}}

    @property
    def counts(self) -> Mapping[str, int]:
        """The lines of all batches that wait, and that run."""
        waiting = sum(len(numbers) for job in self._jobs.values() for numbers in job.waiting.values())
        return {"waiting": waiting, "running": len(self._sent)}

    # --- batches

    async def _look_at(self, batch: Batch) -> None:
        job = self._jobs.get(batch.id)
        if batch.status == "cancelling":
            await self._end(batch, "cancelled", _CANCELLED)
        elif batch.status == "finalizing":
            await self._end(batch, "completed", None)
        elif self._epoch() >= batch.expires_at:
            await self._end(batch, "expired", _EXPIRED)
        elif batch.status == "validating":
            await self._validate(batch)
        elif job is None:
            await self._begin(batch)
        elif job.is_done:
            changed = msgspec.structs.replace(batch, status="finalizing", finalizing_at=self._epoch())
            moved = await self._storage.call(self._store.move, changed, batch.status)
            await self._look_at(moved)

    async def _validate(self, batch: Batch) -> None:
        path, most = self._store.content(batch.input_file_id), self._settings.max_lines
        lines, errors = await asyncio.to_thread(read_input, path, batch.endpoint, most)
        now = self._epoch()
        if errors:
            failed = msgspec.structs.replace(batch, status="failed", failed_at=now, errors=tuple(errors))
            await self._storage.call(self._store.move, failed, batch.status)
            return
        begun = msgspec.structs.replace(batch, status="in_progress", in_progress_at=now, total=len(lines))
        batch = await self._storage.call(self._store.begin, begun, lines)
        if batch.status == "in_progress":
            await self._begin(batch)

    async def _begin(self, batch: Batch) -> None:
        job = _Job(batch)
        for line in await self._storage.call(self._store.open_lines, batch.id):
            job.waiting.setdefault(line.model, deque()).append(line.number)
        self._jobs[batch.id] = job

    async def _end(self, batch: Batch, status: str, unfinished: bytes | None) -> None:
        job = self._jobs.pop(batch.id, None)
        if job is not None:
            await self._end_lines(job)
        now = self._epoch()
        ended = msgspec.structs.replace(batch, status=status, **{f"{status}_at": now})
        await self._storage.call(self._store.finish, ended, unfinished, now)
        _log.info("The batch '%s' is %s", batch.id, status)

    async def _end_lines(self, job: _Job) -> None:
        tasks = [line.task for line in job.running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- lines

    def _live(self) -> tuple[list[Person], list[RunningLine]]:
        """The live requests of people, and the lines that may be stopped."""
        people: list[Person] = []
        backends: dict[str, str | None] = {}
        for each in self._gateway.requests:
            if each.id in self._sent:
                backends[each.id] = each.backend
            elif each.model is not None:
                waits = each.waits
                people.append(Person(each.model, each.backend, waits, waits and each.phase is Phase.QUEUED))
        running = [
            RunningLine(id, line.model, backends.get(id), line.job.stops[line.number])
            for id, line in self._sent.items()
            if not line.answered
        ]
        return people, running

    def _replicas(self, model: str) -> Sequence[Candidate]:
        replicas = self._gateway.models.replicas
        found = replicas(model)
        if found:
            return found
        alias = self._gateway.table("routing").aliases.get(model)
        return [each for name in _targets(alias) for each in replicas(name)]

    def _start(self, model: str, most: int, now: float, *, aside: bool) -> None:
        for job in self._jobs.values():
            if model not in dict(job.sendable(now)):
                continue
            numbers = job.waiting[model]
            for _ in range(min(most, len(numbers))):
                most -= 1
                self._send(_SentLine(job, numbers.popleft(), model, aside=aside))

    def _send(self, line: _SentLine) -> None:
        id = f"{line.job.batch.id}-{line.number}"
        self._sent[id] = line.job.running[line.number] = line
        line.task = asyncio.ensure_future(self._run(id, line))
        line.task.add_done_callback(lambda _: self._ended(id, line))

    def _ended(self, id: str, line: _SentLine) -> None:
        del self._sent[id], line.job.running[line.number]
        error = None if line.task.cancelled() else line.task.exception()
        if error is not None:
            line.job.pause(line.model, self._gateway.clock.now())
            _log.error("A line of the batch '%s' cannot be read or kept", line.job.batch.id, exc_info=error)
        if line.task.cancelled() or error is not None or not line.answered:
            line.job.waiting.setdefault(line.model, deque()).appendleft(line.number)
        elif self._gateway.clock.now() - self._decided_at >= _REST_S:
            self.tick()

    async def _run(self, id: str, line: _SentLine) -> None:
        """Send a line and keep its answer. ``line.answered`` stays false if it is to be sent again."""
        batch, number = line.job.batch, line.number
        body = await self._storage.call(self._store.line, batch, number)
        headers = [(b"content-type", b"application/json"), (b"x-request-id", id.encode())]
        requests = self._gateway.requests
        try:
            answer = await requests.submit(
                batch.endpoint, body, headers, caller=batch.sender, priority=_LOWEST, aside=line.aside
            )
            status, said = answer.status, answer.body
        except ShuttingDown:
            line.job.pause(line.model, self._gateway.clock.now())
            return
        except RequestError as error:
            status, said = error.status, msgspec.json.encode(error.envelope())
        if self._is_sent_again(line, status):
            return
        line.answered = True
        await self._storage.call(self._store.finish_line, batch.id, number, id, status, said)
        if status < 300:
            self.served += 1
        else:
            self.failed += 1

    def _is_sent_again(self, line: _SentLine, status: int) -> bool:
        """Whether a line is sent again later, because a limit or a fault that may pass refused it."""
        if status not in _PASSING:
            line.job.pauses.pop(line.model, None)
            return False
        if status != 429:
            line.job.tries[line.number] += 1
        line.job.pause(line.model, self._gateway.clock.now())
        return line.job.tries[line.number] < _MOST_TRIES

    def _epoch(self) -> int:
        return int(self._gateway.clock.epoch())


def _targets(alias: Any) -> Iterator[str]:
    """The models that an alias of the configuration stands for."""
    if isinstance(alias, str):
        yield alias
    elif isinstance(alias, list):
        for each in alias:
            yield from _targets(each)
    elif alias is not None:
        yield from _targets(alias.to)
