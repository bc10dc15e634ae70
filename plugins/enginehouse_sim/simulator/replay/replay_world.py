"""The events of a replay behind a gateway, in their order, and its clients."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable, Iterator

from enginehouse import EnginehouseError
from enginehouse_kit.virtual_loop import VirtualLoop
from enginehouse_sim.simulator.replay.answer import AnswerRecord, count_gap
from enginehouse_sim.simulator.replay.faults import FaultPlan
from enginehouse_sim.simulator.replay.played_engine import EngineOwner, PlayedEngine, moment_of
from enginehouse_sim.simulator.replay.report import Moments, Record
from enginehouse_sim.simulator.replay.traces.reader import TraceRequest
from enginehouse_sim.simulator.steps.costs import KvTransfer
from enginehouse_sim.virtual import VirtualClient


class PlayedClient(VirtualClient):
    """Sends one request of a trace, and records the answer that it gets.

    ``seen``: the whole answer, whichever engines made its parts. ``is_broken``: its engine has just broken it off.
    ``on_end`` is called once, when nothing more will come, with the code of the error that ends the answer, if any.
    """

    def __init__(
        self,
        trace: TraceRequest,
        number: int,
        record: Record,
        now: Callable[[], float],
        on_end: Callable[[PlayedClient, str], None],
    ) -> None:
        self.trace = trace
        self.number = number
        self.seen = AnswerRecord(now(), trace.input_length)
        self.is_broken = False
        self._record = record
        self._now = now
        self._on_end = on_end

    def answered(self) -> None:
        self.seen.first_token = self._now()

    def ended(self, status: int, code: str) -> None:
        if code:
            self._record.reject(code)
            self._record.broken += status == 200
        else:
            self._record.finish(self.seen)
        self._on_end(self, code)

    def begins_part(self, at: float, cached_tokens: int) -> None:
        """Note that an engine has made its first token of the answer ``at`` a time."""
        answer = self.seen
        if not answer.output_tokens:
            answer.cached_tokens = cached_tokens
            return
        gap = at - answer.last_token
        count_gap(self._record.gaps, gap, 1)
        if not self.is_broken:
            self._record.move_gaps.append(gap)
        self.is_broken = False

    def received(self, tokens: int, last_token: float) -> None:
        """Count tokens that the gateway has got, the last one at that time."""
        self.seen.output_tokens += tokens
        self.seen.last_token = last_token


class ReplayWorld(EngineOwner):
    """The world of a replay's loop: requests arrive, engines make steps, faults begin and end.

    ``clients``: those that wait for answers, by the number of their request. ``submit`` gets each request at its
    arrival. ``routed`` gets the number of a request that reaches an engine, and that engine's backend. ``fail`` gets an
    error that ends the replay. ``transfer``: the link between engines. ``looks_ahead``: whether steady steps are
    foreseen. ``catch_ups``: each makes one engine send the tokens of foreseen steps. ``began``: the time
    of the first arrival. Nothing happens before ``begin``.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        trace: Iterator[tuple[int, TraceRequest]],
        submit: Callable[[int, TraceRequest], None],
        routed: Callable[[int, str], None],
        fail: Callable[[EnginehouseError], None],
        transfer: KvTransfer,
        *,
        looks_ahead: bool,
    ) -> None:
        super().__init__()
        self.engines: list[PlayedEngine] = []
        self.catch_ups: list[Callable[[], None]] = []
        self.clients: dict[int, PlayedClient] = {}
        self.routed = routed
        self.transfer = transfer
        self.began = 0.0
        self._time = loop.virtual_time
        self._trace = trace
        self._submit = submit
        self._fail = fail
        self._looks_ahead = looks_ahead
        self._read: dict[str, asyncio.Event] = {}
        self._next: tuple[int, TraceRequest] | None = None
        self._next_arrival = math.inf
        self._steps: list[tuple[float, int, PlayedEngine]] = []
        self._faults: FaultPlan
        self._moments: Moments
        self._catch_up_every = self._catch_up_at = math.inf

    def begin(self, moments: Moments, faults: FaultPlan, catch_up_every: float) -> None:
        """Let events happen from now on.

        Every ``catch_up_every`` seconds, streams get the tokens that nobody has looked at.
        """
        self._moments, self._faults = moments, faults
        self.began = now = self._time.now
        self._catch_up_every = catch_up_every
        self._catch_up_at = now + catch_up_every
        self.read_on()

    def read_on(self) -> None:
        """Read the next request of the trace, which may have more after its end."""
        self._next = found = next(self._trace, None)
        self._next_arrival = math.inf if found is None else self.began + found[1].arrival

    # --- for the loop

    def next_at(self) -> float:
        at = min(self._next_end(), self._next_arrival)
        if at == math.inf and not self.clients:
            return at
        began = self.began
        return min(at, began + self._faults.next_at, began + self._moments.due, self._catch_up_at)

    def advance(self) -> None:
        try:
            self._advance()
        except EnginehouseError as error:
            self._fail(error)

    def wait(self, until: float) -> None:
        self.place = (until, math.inf)

    # --- for the engines and their servers

    def due_sooner(self, index: int) -> None:
        engine = self.engines[index]
        heapq.heappush(self._steps, (engine.due, index, engine))

    def prompt_is_read(self, room: str) -> asyncio.Event:
        """Set when the prompt of a hand-over has been read."""
        return self._read.setdefault(room, asyncio.Event())

    def client_ended(self, number: int) -> bool:
        """Forget the client of a request whose answer has ended. Return whether no other will come."""
        del self.clients[number]
        self._read.pop(str(number), None)
        return not self.clients and self._next is None

    def begin_step(self, engine: PlayedEngine) -> None:
        """Begin a step of an engine that may be idle."""
        if engine.busy and not engine.is_stepping and not engine.is_stalled:
            engine.begin_step()
            if self._looks_ahead:
                engine.look_ahead()
            heapq.heappush(self._steps, (engine.due, engine.index, engine))

    # --- inside

    def _advance(self) -> None:
        now, began = self._time.now, self.began
        self.place = (now, -1.0)
        if now >= began + self._moments.due:
            self._moments.add(now - began, moment_of(self.engines))
        elif now >= began + self._faults.next_at:
            self._faults.advance()
        elif now >= self._catch_up_at:
            self._catch_up_at = now + self._catch_up_every
            for catch_up in self.catch_ups:
                catch_up()
        elif now >= self._next_arrival:
            arrived = self._next
            assert arrived is not None
            self.read_on()
            self._submit(*arrived)
        else:
            engine = heapq.heappop(self._steps)[2]
            self.place = (now, float(engine.index))
            engine.catch_up()
            engine.end_step()
            self.begin_step(engine)

    def _next_end(self) -> float:
        """The end of the next step that is not steady. Drops the ends of steps that now end at another time."""
        steps = self._steps
        while steps:
            due, _, engine = steps[0]
            if engine.is_stepping and engine.due == due:
                return due
            heapq.heappop(steps)
        return math.inf
