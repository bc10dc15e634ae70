"""Replays a trace through the decisions of a gateway, over simulated engines."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from time import perf_counter
from typing import Any

import msgspec

from enginehouse import (
    Body,
    Candidate,
    Capabilities,
    InferenceRequest,
    InstanceMetadata,
    InstanceStatus,
    MigrationMeans,
    Migrator,
    RequestError,
    ServedModel,
    VirtualBackend,
    VirtualEngines,
    VirtualGateway,
    VirtualRequest,
    VirtualSettings,
)
from enginehouse_sim.options import engine_flags
from enginehouse_sim.simulator.core.build import build_core, kv_shape
from enginehouse_sim.simulator.core.options import with_flags
from enginehouse_sim.simulator.core.settings import CoreSettings
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.external_store import ExternalStore
from enginehouse_sim.simulator.llumlet.migrated_kv import MigratedKv
from enginehouse_sim.simulator.replay.engine_owner import EngineOwner, ReplayPlace
from enginehouse_sim.simulator.replay.figures.record import Record, RequestRecord
from enginehouse_sim.simulator.replay.figures.slo import Slo
from enginehouse_sim.simulator.replay.garbage import rare_collections
from enginehouse_sim.simulator.replay.moves import Moves, PlayedRequest
from enginehouse_sim.simulator.replay.played_engine import PlayedEngine, moment_of
from enginehouse_sim.simulator.replay.played_llumlet import PlayedLlumlet
from enginehouse_sim.simulator.replay.simulate import TOO_LONG
from enginehouse_sim.simulator.replay.traces.trace import TraceRequest, prompt_of
from enginehouse_sim.simulator.replay.virtual_loop import VirtualLoop
from enginehouse_sim.simulator.server.telemetry.instance_status import load_figures
from enginehouse_sim.simulator.steps.transfer import KvTransfer

PATH = "/v1/completions"


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The simulated system: a gateway, and engines with ``core``, which options of launched ``sim`` models override.

    ``load_time``: the seconds that an engine takes to load. ``model``: the model of requests whose trace names none.
    """

    gateway: VirtualSettings
    core: CoreSettings = CoreSettings()
    load_time: float = 5.0
    model: str = ""
    slo: Slo | None = None


class TracedRequest(InferenceRequest):
    """A request of a trace as a client would send it: a completion of token ids."""

    def __init__(self, trace: TraceRequest, number: int, model: str) -> None:
        self.path = PATH
        self.headers = []
        self.body = Body(model=model, prompt=list[Any](prompt_of(trace, number)), stream=True)
        self._max_tokens = max(1, trace.output_length)

    @cached_property
    def raw(self) -> bytes:  # type: ignore[override]
        """The body, written only for plugins that read it."""
        body = self.body
        return msgspec.json.encode(
            {"model": body.model, "prompt": body.prompt, "max_tokens": self._max_tokens, "stream": True}
        )


class GatewayReplay(VirtualEngines, EngineOwner):
    """Plays the engines of a virtual gateway, and sends it the requests of a trace.

    ``on_routed`` gets the number and the backend of each routed request. ``record`` is complete after ``run``.
    """

    def __init__(
        self, trace: Iterable[TraceRequest], setting: Setting, on_routed: Callable[[int, str], None] | None = None
    ) -> None:
        self.record = Record(setting.slo)
        self._setting = setting
        self._trace = enumerate(trace)
        self._on_routed = on_routed
        self._next: tuple[int, TraceRequest] | None = None
        self._began = 0.0
        self._model = ""
        self._live = 0
        self._engines: dict[str, PlayedEngine] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stores: dict[tuple[frozenset[str], int], ExternalStore] = {}
        self._moves = Moves(lambda: self._loop.time(), self._begin_step, KvTransfer(kv_shape(setting.core)))
        self._steps: list[tuple[float, int, PlayedEngine]] = []
        self._loop: VirtualLoop
        self._gateway: VirtualGateway
        self._end: asyncio.Future[None]

    def run(self) -> Record:
        """Run the whole trace. Raises ``EnginehouseError``."""
        began = perf_counter()
        self._loop = loop = VirtualLoop()
        try:
            with rare_collections():
                loop.run_until_complete(self._run())
        finally:
            loop.close()
        self.record.real_seconds = perf_counter() - began
        return self.record

    async def _run(self) -> None:
        self._gateway = gateway = self._setting.gateway.gateway(self)
        try:
            for backend in gateway.backends:
                self._engines[backend.name] = self._engine(backend)
            await gateway.open()
            self._end = self._loop.create_future()
            self._began = self._loop.time()
            self._model = self._setting.model or next(iter(gateway.models), "")
            self._next = next(self._trace, None)
            self._loop.world = self
            await self._end
            self.record.ended = self._loop.time() - self._began
            self.record.swaps = gateway.swaps
            self.record.failed_migrations = gateway.failed_migrations
        finally:
            gateway.close()
            for engine in self._engines.values():
                engine.close()
            await asyncio.sleep(0)  # lets the cancelled tasks end

    # --- as the world of the loop

    def next_at(self) -> float:
        at = self._next_end()
        if self._next is not None:
            at = min(at, self._began + self._next[1].arrival)
        return at if at == math.inf else min(at, self._began + self.record.moments.due)

    def advance(self) -> None:
        now, arrival = self._loop.time(), self._next
        self.place = ReplayPlace(now, -1)
        if now >= self._began + self.record.moments.due:
            self.record.moments.add(moment_of(now - self._began, list(self._engines.values()), self._gateway.waiting))
        elif arrival is not None and self._began + arrival[1].arrival <= now:
            self._next = next(self._trace, None)
            self._submit(*arrival)
        else:
            engine = heapq.heappop(self._steps)[2]
            self.place = ReplayPlace(now, engine.index)
            engine.catch_up()
            engine.end_step()
            self._begin_step(engine)
        if not self._live and self._next is None and not self._end.done():
            self._end.set_result(None)

    def wait(self, until: float) -> None:
        self.place = ReplayPlace(until, math.inf)

    # --- as the owner of the engines

    def first_token(self, request: RequestRecord) -> None:
        request.subject.answered()

    def ended(self, request: RequestRecord) -> None:
        request.subject.ended()
        self._live -= 1

    def due_sooner(self, engine: PlayedEngine) -> None:
        heapq.heappush(self._steps, (engine.due, engine.index, engine))

    # --- as the engines of the gateway

    def probe(self, backend: VirtualBackend) -> tuple[Sequence[ServedModel], int | None]:
        constants = self._core(backend).constants
        models = backend.models or (self._setting.model or "sim",)
        limits = Capabilities(context_length=constants.max_model_len)
        return [ServedModel(model, limits) for model in models], constants.max_num_seqs

    def serve(self, request: VirtualRequest) -> None:
        assert request.route is not None
        asked: PlayedRequest = request.subject
        engine = self._engines[request.route.chosen.backend]
        asked.record = record = RequestRecord(asked.arrival, asked.trace.input_length, request)
        asked.engine, asked.engine_id = engine, str(asked.number)
        if self._on_routed is not None:
            self._on_routed(asked.number, engine.instance.name)
        prefill = request.route.prefill
        if prefill is not None and (wanted := engine.wanted(asked.trace, asked.number, self._loop.time())):
            task = self._loop.create_task(self._hand_over(prefill, wanted, record, engine))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif engine.add(asked.trace, asked.number, record, self._loop.time()):
            self._begin_step(engine)
        else:
            request.answered()
            request.ended(400)
            self._reject(TOO_LONG)

    async def _hand_over(
        self, prefill: Candidate, wanted: RequestState, record: RequestRecord, engine: PlayedEngine
    ) -> None:
        """Let the engine of ``prefill`` compute the prompt of ``wanted``, and ``engine`` decode the answer."""
        prefill.load.begin()
        await self._moves.read_prompt(wanted, record, self._engines[prefill.backend])
        prefill.load.end()
        engine.attach(wanted, record, self._loop.time(), copied=len(wanted.prompt_token_ids))
        self._begin_step(engine)

    def refuse(self, request: VirtualRequest, error: RequestError) -> None:
        self._reject(error.code)

    def report(self, backend: str) -> tuple[InstanceStatus, InstanceMetadata] | None:
        engine = self._engines[backend]
        constants = engine.state.constants
        metadata = InstanceMetadata(
            block_size=constants.block_size, max_num_batched_tokens=constants.max_num_batched_tokens
        )
        now_ms = int(self._loop.time() * 1000)
        figures = {**load_figures(engine.state), **engine.slots.figures(), "waiting_requests": ()}
        return InstanceStatus(instance_id=backend, timestamp_ms=now_ms, **figures), metadata

    def output_tokens(self, request: VirtualRequest) -> int:
        asked: PlayedRequest = request.subject
        if asked.record is None or asked.engine is None:
            return 0
        return asked.engine.output_tokens(asked.record)

    def max_tokens(self, request: VirtualRequest) -> int:
        most: int = max(1, request.subject.trace.output_length)
        return most

    async def move(self, request: VirtualRequest, destination: str) -> None:
        await self._moves.replay(request.subject, self._engines[destination])

    def migrators(self, means: MigrationMeans) -> Mapping[str, Migrator]:
        return {"llumlet": PlayedLlumlet(self._moves, self._engines, means)}

    async def load(self, backend: VirtualBackend) -> None:
        await asyncio.sleep(self._setting.load_time)
        self._engines[backend.name].restart()

    # --- inside

    def _engine(self, backend: VirtualBackend) -> PlayedEngine:
        settings, rescheduling = self._core(backend), self._gateway.config.rescheduling
        copies = (rescheduling.enabled and "llumlet" in rescheduling.migrators) or self._gateway.router.hands_over
        migrated_kv = MigratedKv() if copies else None
        sources = [migrated_kv] if migrated_kv is not None else []
        core = build_core(settings, sources=sources, store=self._store(backend, settings), makes_text=False)
        return PlayedEngine(backend.name, core, self.record, self, migrated_kv)

    def _store(self, backend: VirtualBackend, settings: CoreSettings) -> ExternalStore | None:
        """The store that all engines with the same models and blocks of the same size share."""
        if not settings.store_blocks:
            return None
        key = (frozenset(backend.models), settings.constants.block_size)
        return self._stores.setdefault(key, ExternalStore(settings.store_blocks))

    def _core(self, backend: VirtualBackend) -> CoreSettings:
        core, spec = self._setting.core, backend.spec
        return with_flags(core, [*engine_flags(spec), *spec.args]) if spec and backend.driver == "sim" else core

    def _begin_step(self, engine: PlayedEngine) -> None:
        if engine.busy and not engine.is_stepping:
            engine.begin_step()
            engine.look_ahead()
            heapq.heappush(self._steps, (engine.due, engine.index, engine))

    def _next_end(self) -> float:
        """The end of the next step that is not steady. Drops the ends of steps that now end at another time."""
        steps = self._steps
        while steps and not (steps[0][2].is_stepping and steps[0][2].due == steps[0][0]):
            heapq.heappop(steps)
        return steps[0][0] if steps else math.inf

    def _submit(self, number: int, trace: TraceRequest) -> None:
        self._live += 1
        asked = PlayedRequest(trace, number, self._loop.time())
        self._gateway.submit(TracedRequest(trace, number, trace.model or self._model), asked)

    def _reject(self, code: str) -> None:
        self.record.reject(code)
        self._live -= 1
