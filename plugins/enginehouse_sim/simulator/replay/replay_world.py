"""The events of a replay behind a gateway, in their order."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterator

from enginehouse import EnginehouseError
from enginehouse_kit.virtual_loop import VirtualLoop
from enginehouse_sim.simulator.replay.answer import AnswerRecord
from enginehouse_sim.simulator.replay.faults import FaultPlan
from enginehouse_sim.simulator.replay.played_engine import EngineOwner, PlayedEngine, moment_of
from enginehouse_sim.simulator.replay.played_server import PlayedServer
from enginehouse_sim.simulator.replay.report import Moments
from enginehouse_sim.simulator.replay.traces.reader import TraceRequest


class ReplayWorld(EngineOwner):
    """The world of a replay's loop: requests arrive, engines make steps, faults begin and end.

    ``engines`` and ``servers``: in one order. ``clients``: those that wait for answers. ``submit`` gets each request at
    its arrival. ``fail`` gets an error that ends the replay. ``looks_ahead``: whether steady steps are foreseen.
    ``began``: the time of the first arrival. Nothing happens before ``begin``.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        trace: Iterator[tuple[int, TraceRequest]],
        clients: Collection[int],
        submit: Callable[[int, TraceRequest], None],
        fail: Callable[[EnginehouseError], None],
        *,
        looks_ahead: bool,
    ) -> None:
        super().__init__()
        self.engines: list[PlayedEngine] = []
        self.servers: list[PlayedServer] = []
        self.began = 0.0
        self._time = loop.virtual_time
        self._trace = trace
        self._clients = clients
        self._submit = submit
        self._fail = fail
        self._looks_ahead = looks_ahead
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

    @property
    def has_read_all(self) -> bool:
        return self._next is None

    # --- for the loop

    def next_at(self) -> float:
        at = min(self._next_end(), self._next_arrival)
        if at == math.inf and not self._clients:
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

    def first_token(self, answer: AnswerRecord) -> None:
        answer.owner.first_token()

    def ended(self, answer: AnswerRecord) -> None:
        answer.owner.ended()

    def due_sooner(self, index: int) -> None:
        engine = self.engines[index]
        heapq.heappush(self._steps, (engine.due, index, engine))

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
            self._faults.advance(now)
        elif now >= self._catch_up_at:
            self._catch_up_at = now + self._catch_up_every
            for server in self.servers:
                server.catch_up()
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
