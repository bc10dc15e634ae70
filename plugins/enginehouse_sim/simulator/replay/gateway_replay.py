"""Replays a trace through a gateway in virtual time, over simulated engines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import count
from time import perf_counter
from typing import Any, ClassVar

import msgspec

from enginehouse import Body, ConfigError, Driver, EnginehouseError, InferenceRequest
from enginehouse.drivers import Continuation, EngineClient, PartialAnswer, SupportsBootstrap, add_field
from enginehouse.errors import CannotContinue
from enginehouse_kit.rescheduling import Migrator
from enginehouse_kit.virtual_loop import VirtualLoop
from enginehouse_sim.driver import SimDriver
from enginehouse_sim.options import CoreSettings, SchedulingPolicy, engine_flags
from enginehouse_sim.simulator.core.build import build_core, kv_shape, outside_costs
from enginehouse_sim.simulator.core.migration import MigratedKv
from enginehouse_sim.simulator.core.options import with_flags
from enginehouse_sim.simulator.replay.faults import FaultPlan, PlannedFault
from enginehouse_sim.simulator.replay.played_connection import PlayedModels
from enginehouse_sim.simulator.replay.played_engine import PlayedEngine, rare_collections
from enginehouse_sim.simulator.replay.played_llumlet import PlayedLlumlet
from enginehouse_sim.simulator.replay.played_server import PlayedServer
from enginehouse_sim.simulator.replay.replay_world import PlayedClient, ReplayWorld
from enginehouse_sim.simulator.replay.report import Record, Slo
from enginehouse_sim.simulator.replay.traces.prompts import prompt_of
from enginehouse_sim.simulator.replay.traces.reader import TraceRequest
from enginehouse_sim.simulator.steps.costs import KvTransfer
from enginehouse_sim.virtual import VirtualBackend, VirtualEngines, VirtualGateway, VirtualProcess, VirtualSettings

PATH = "/v1/completions"
_CATCH_UP_S = 10.0
"""How often streams get the tokens that nobody has looked at, if no time limit and no rescheduler needs them sooner."""
_RESCHEDULING_CATCH_UP_S = 0.5


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The simulated system: a gateway, and engines with ``core``, which options of launched ``sim`` models override.

    ``load_time``: the seconds that an engine takes to load. ``model``: the model of requests whose trace names none.
    """

    gateway: VirtualSettings
    core: CoreSettings = CoreSettings()
    load_time: float = 5.0
    model: str = ""
    slo: Slo | None = None
    faults: tuple[PlannedFault, ...] = ()


def _as_json(body: Body, prompt: Any, most: int) -> bytes:
    """``body`` with this prompt, for an answer of so many tokens at ``most``."""
    return msgspec.json.encode({"model": body.model, "prompt": prompt, "max_tokens": most, "stream": body.stream})


class _PlayedDriver(SimDriver):
    """Asks the engines of a replay, whatever kind they stand for. The number of a request stands for its prompt."""

    def continuation(self, answer: PartialAnswer) -> Continuation:
        if answer.ids is None:
            raise CannotContinue("Streams of a replay are continued by their tokens only")
        fields: dict[str, Any] = msgspec.json.decode(answer.body)
        prompt, most = [*fields["prompt"], *answer.ids], fields["max_tokens"] - len(answer.ids)
        body = msgspec.json.encode({**fields, "prompt": prompt, "max_tokens": most, "return_token_ids": True})
        return Continuation(path=answer.path, body=body, tokens=len(answer.ids), skip=answer.skip, exact=True)


class _PlayedBootstrapDriver(_PlayedDriver, SupportsBootstrap):
    """The same for engines of which two get a request at the same time."""

    def __init__(self) -> None:
        self._rooms = count()

    async def bootstrap_port(self, engine: EngineClient) -> int | None:
        return None

    def bootstrap(self, body: bytes, host: str, port: int | None) -> bytes:
        return add_field(body, "kv_transfer_params", b'{"room":"pair-%d"}' % next(self._rooms))


class GatewayReplay(VirtualEngines):
    """Plays the engines of a virtual gateway, and sends it the requests of a trace.

    ``gateway`` and ``world``: set by ``run``, after which ``record`` is complete. ``engines``: by backend.
    """

    looks_ahead: ClassVar = True

    def __init__(self, trace: Iterable[TraceRequest], setting: Setting) -> None:
        self.record = Record(slo=setting.slo)
        self._setting = setting
        self._trace = enumerate(trace)
        self._model = ""
        self.engines: dict[str, PlayedEngine] = {}
        self._servers: dict[str, PlayedServer] = {}
        self._transfer = KvTransfer(kv_shape(setting.core))
        self._loop: VirtualLoop
        self.gateway: VirtualGateway
        self.world: ReplayWorld
        self._end: asyncio.Future[None]

    def run(self) -> Record:
        """Run the whole trace. Raises ``EnginehouseError``."""
        began = perf_counter()
        self._loop = loop = VirtualLoop()
        self.world = ReplayWorld(
            loop,
            self._trace,
            self._submit,
            self.routed,
            self._fail,
            self._transfer,
            looks_ahead=self.looks_ahead,
        )
        try:
            with rare_collections():
                loop.run_until_complete(self._run())
        finally:
            loop.close()
        self.record.real_seconds = perf_counter() - began
        return self.record

    async def _run(self) -> None:
        self.gateway = gateway = self._setting.gateway.gateway(self)
        world = self.world
        try:
            self._require_strategy()
            for backend in gateway.backends:
                self.engines[backend.name] = engine = self._engine(backend)
                core = self._core(backend)
                models = backend.models or (self._setting.model or "sim",)
                facts = PlayedModels(models, core.constants.max_model_len, core.constants.max_num_seqs)
                server = PlayedServer(backend, facts, engine, world, outside_costs(core))
                self._servers[backend.name] = server
                world.catch_ups.append(server.catch_up)
            world.engines.extend(self.engines.values())
            faults = FaultPlan(self._setting.faults, self._servers, self._suffer)
            await gateway.open()
            self._end = self._loop.create_future()
            self._model = self._setting.model or next(iter(gateway.models), "")
            world.begin(self.record.moments, faults, _catch_up_every(gateway))
            self._loop.world = world
            await self._end
            self.record.ended = self._loop.time() - world.began
            for name, count in gateway.counts.items():
                setattr(self.record, name, count)
        finally:
            self._loop.world = None
            await gateway.close()
            for engine in self.engines.values():
                engine.close()

    def _require_strategy(self) -> None:
        """Raise ``ConfigError`` if a strategy to try does not exist: like ``serve``, the gateway uses another one."""
        wanted = dict(self._setting.gateway.values).get("routing.strategy")
        if wanted is not None and wanted.strip("\"'") != self.gateway.config.routing.strategy:
            remedy = "enginehouse plugins lists the strategies"
            raise ConfigError(f"there is no strategy {wanted!r} that can be used", key="--set", remedy=remedy)

    def routed(self, number: int, backend: str) -> None:
        """Do nothing: for subclasses that follow where requests go."""

    def ended(self, number: int, code: str) -> None:
        """Request ``number`` has ended; ``code``: that of its error, empty for a whole answer. For subclasses."""

    # --- as the engines of the gateway

    def connect(self, backend: str, connection: asyncio.Protocol) -> None:
        self._servers[backend].connect(connection)

    def driver(self, *, bootstraps: bool) -> Driver:
        return _PlayedBootstrapDriver() if bootstraps else _PlayedDriver()

    def migrator(self, type: str, configured: Migrator) -> Migrator:
        if type != "llumlet":
            return configured
        return PlayedLlumlet(self.engines, self._loop.time, self.world.begin_step, self._transfer)

    async def launch(self, process: VirtualProcess) -> None:
        await asyncio.sleep(self._setting.load_time)
        self._servers[process.backend].start(process)

    async def stop(self, process: VirtualProcess) -> None:
        self._servers[process.backend].kill()

    # --- inside

    def _engine(self, backend: VirtualBackend) -> PlayedEngine:
        settings, rescheduling = self._core(backend), self.gateway.config.rescheduling
        copies = (rescheduling.enabled and "llumlet" in rescheduling.migrators) or self.gateway.hands_over
        migrated_kv = MigratedKv() if copies else None
        sources = [migrated_kv] if migrated_kv is not None else []
        core = build_core(settings, sources=sources, makes_text=False)
        return PlayedEngine(backend.name, core, self.record, self.world, migrated_kv)

    def _core(self, backend: VirtualBackend) -> CoreSettings:
        core, spec, policy = self._setting.core, backend.spec, self.gateway.config.simulator.policy
        if spec and backend.driver == "sim":
            core = with_flags(core, [*engine_flags(spec), *spec.args])
        if policy is None:
            return core
        constants = msgspec.structs.replace(core.constants, policy=SchedulingPolicy(policy))
        return msgspec.structs.replace(core, constants=constants)

    def _submit(self, number: int, trace: TraceRequest) -> None:
        prompt: Any = prompt_of(trace, number)  # mypy takes a list of numbers for no list of numbers or texts
        body = Body(model=trace.model or self._model, prompt=prompt, stream=trace.stream)
        most = max(1, trace.output_length)
        request = InferenceRequest(PATH, [(b"x-request-id", b"%d" % number)], _as_json(body, prompt, most), body)
        self.world.clients[number] = client = PlayedClient(
            trace, number, self.record, self._loop.time, self._client_ended
        )
        for_engine = _as_json(body, [number], most)  # the number stands for the prompt
        self.gateway.submit(request, for_engine, client, trace.key)

    def _client_ended(self, client: PlayedClient, code: str) -> None:
        is_last = self.world.client_ended(client.number)
        self.ended(client.number, code)
        if is_last and not self._end.done():
            self._end.set_result(None)

    def _suffer(self, fault: PlannedFault, begins: bool) -> None:
        self._servers[fault.engine].suffer(fault, begins)

    def _fail(self, error: EnginehouseError) -> None:
        self._end.set_exception(error)


def _catch_up_every(gateway: VirtualGateway) -> float:
    """How often streams get tokens, in seconds: often enough that no limit for the next piece of an answer passes."""
    config = gateway.config
    if config.rescheduling.enabled:
        return _RESCHEDULING_CATCH_UP_S
    own = [*(each.timeouts for each in config.backends.values()), *(each.timeouts for each in config.models.values())]
    stalls = [each.stall for each in (config.timeouts, *own) if each is not None and each.stall]
    return min([_CATCH_UP_S, *(stall / 4 for stall in stalls)])
