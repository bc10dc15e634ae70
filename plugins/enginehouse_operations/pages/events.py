"""``GET /api/events``: the event stream. ``GET /api/events/past``: the last events."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from enginehouse import RequestRecord
from enginehouse.pages import PageFacts, json_response
from enginehouse_operations.pages.endless import endless
from enginehouse_operations.pages.event_stream import EventStream, LiveStates, NamedEvents
from enginehouse_operations.pages.live_view import LiveView
from enginehouse_operations.pages.reading import facts_of, read_query, read_time

_MOST: Final = 2000


_FILE: Final = "events.jsonl"
_LONGEST_TEXT: Final = 500
_LONGEST_LIST: Final = 20
"""Of an event that is kept, whoever chose its texts."""
_LINES_IN_FILE: Final = 2 * _MOST
"""With more, the file is written anew with those that are kept."""
_log = logging.getLogger(__name__)

KeptEvent = Mapping[str, Any]
"""``event``, its name, ``time``, in seconds since the Unix epoch, and its fields."""
_Kept = tuple[list[KeptEvent], int]
"""Events of a file, and the number of its lines."""


class KeptEvents(NamedEvents):
    """Keeps the last 2000 events. ``tick`` is called once a second, and has new ones written by another thread.

    Moves of streams are read from the records of ended requests: workers need not report all requests for them.
    """

    def __init__(self, facts: PageFacts, live: LiveStates) -> None:
        super().__init__(facts, live)
        self._new: deque[tuple[float, str, Mapping[str, object]]] = deque(maxlen=_MOST)
        """When each event happened that is not shortened yet, its name and its fields."""
        self._events: deque[KeptEvent] = deque(maxlen=_MOST)
        self._unwritten: list[KeptEvent] = []
        self._lines: int | None = None
        """Those of the file; ``None`` until it is read."""
        self._working: asyncio.Future[_Kept] | None = None
        self._warned = False
        self._ended = facts.ended_count()
        facts.observe(self)
        self.send("gateway_started")
        for each in live.snapshot()["backends"]:
            if each["error"] is not None:  # found before anything was kept
                self.send("backend_health", backend=each["backend"], health=each["health"], error=each["error"])

    def send(self, event: str, **facts: object) -> None:
        self._new.append((self._facts.epoch(), event, facts))

    def swap_started(self, target: str, evict: tuple[str, ...]) -> None:
        self.send("swap_started", target=target, evict=evict, waiting=self._live.waiting_for(target))

    def newest_first(self, since: float, most: int) -> list[KeptEvent]:
        """At most so many events since that time."""
        self._keep_new()
        return list(islice((each for each in reversed(self._events) if each["time"] >= since), most))

    def tick(self) -> None:
        """Note the moves of requests that have ended, and begin to write what is new."""
        self._new.extend((time, "request_moved", facts) for time, facts in self._new_moves())
        self._keep_new()
        if self._working is None and (self._unwritten or self._lines is None):
            self._work(self._facts.folder() / _FILE)

    def _keep_new(self) -> None:
        """Keep the new events, with their texts and lists shortened."""
        for time, event, facts in self._new:
            short = {name: _short(value) for name, value in facts.items()}
            kept = {"event": event, "time": round(time, 3), **short}
            self._events.append(kept)
            self._unwritten.append(kept)
        self._new.clear()

    def _new_moves(self) -> Iterator[tuple[float, Mapping[str, object]]]:
        count, before = self._facts.ended_count(), self._ended
        self._ended = count
        if count > before:
            for each in islice(self._facts.ended(), count - before):
                if each.record.moves:
                    offset = each.time - each.record.ended
                    yield from ((began + offset, facts) for began, facts in _moves(each.record))

    def _work(self, path: Path) -> None:
        """Read the file, or write to it, in another thread."""
        run = asyncio.get_running_loop().run_in_executor
        if self._lines is None:
            self._working = run(None, _read, path)
            self._lines = 0
        else:
            new, self._unwritten = self._unwritten, []
            self._lines += len(new)
            anew = self._lines > _LINES_IN_FILE
            if anew:
                new = [*self._events]
                self._lines = len(new)
            self._working = run(None, _write, path, new, anew)
        self._working.add_done_callback(self._worked)

    def _worked(self, working: asyncio.Future[_Kept]) -> None:
        self._working = None
        if working.cancelled():
            return
        if (error := working.exception()) is None:
            events, lines = working.result()
            self._lines = (self._lines or 0) + lines
            self._events = deque([*events, *self._events], maxlen=_MOST)
        elif not self._warned:
            self._warned = True
            _log.warning("events are not kept in the state folder: %s", error)


def _read(path: Path) -> _Kept:
    """The last events of the file, and how many lines it has."""
    last: deque[bytes] = deque(maxlen=_MOST)
    lines = 0
    with suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            last.append(line)
            lines += 1
    return [event for line in last if (event := _event_of(line)) is not None], lines


def _write(path: Path, events: Sequence[KeptEvent], anew: bool) -> _Kept:
    """Append ``events``, or write the file ``anew`` with them. There are no further events then."""
    content = b"".join(msgspec.json.encode(event) + b"\n" for event in events)
    if not anew:
        with path.open("ab") as file:
            file.write(content)
        return [], 0
    draft = path.with_suffix(".new")
    draft.write_bytes(content)
    draft.replace(path)
    return [], 0


def _event_of(line: bytes) -> KeptEvent | None:
    """The event of a line; ``None`` if the line is not whole, because the machine had stopped."""
    try:
        event = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError:
        return None
    return event if isinstance(event.get("event"), str) and isinstance(event.get("time"), (int, float)) else None


def _moves(record: RequestRecord) -> Iterator[tuple[float, Mapping[str, object]]]:
    """When each move of a stream began, on the clock of the record, and its facts."""
    for before, attempt in zip(record.attempts, record.attempts[1:], strict=False):
        if attempt.gap is not None:
            facts = {
                "id": record.id,
                "source": before.backend,
                "destination": attempt.backend,
                "gap_ms": round(attempt.gap.seconds * 1000, 1),
                "cause": attempt.gap.cause,
            }
            yield attempt.gap.began, facts


def _short(value: object) -> object:
    if isinstance(value, str):
        return value[:_LONGEST_TEXT]
    if isinstance(value, Mapping):
        return {name: _short(each) for name, each in islice(value.items(), _LONGEST_LIST)}
    return [_short(each) for each in value[:_LONGEST_LIST]] if isinstance(value, Sequence) else value


class PastQuery(msgspec.Struct, forbid_unknown_fields=True):
    """``since``: as in ``/api/usage``."""

    since: str = "0"
    limit: Annotated[int, Meta(ge=1, le=_MOST)] = 200


class EventPages:
    """The pages of one gateway, all of whose watchers share one stream. ``tick`` is called once a second."""

    def __init__(self) -> None:
        self._stream: EventStream | None = None
        self._kept: KeptEvents | None = None

    @property
    def routes(self) -> Sequence[Route]:
        return [Route("/api/events", self.watch), Route("/api/events/past", self.past)]

    def tick(self, facts: PageFacts) -> None:
        """Keep events from now on."""
        if self._kept is None:
            self._kept = KeptEvents(facts, LiveView(facts.gateway))
        self._kept.tick()

    async def watch(self, request: Request) -> Response:
        """Server-sent events until the client disconnects."""
        if self._stream is None:
            facts = facts_of(request)
            self._stream = EventStream(facts, LiveView(facts.gateway))
        return endless(request, self._stream.watch(), "text/event-stream")

    async def past(self, request: Request) -> Response:
        """The last events, the newest first, also those of earlier runs: ``?since=&limit=``."""
        query = read_query(request.query_params, PastQuery, f"limit is a number up to {_MOST}, since a time")
        since = read_time(query.since, facts_of(request).epoch())
        events = [] if self._kept is None else self._kept.newest_first(since, query.limit)
        return json_response({"events": events})
