"""One run: a gateway with its clients and engines, from its start to its end."""

from __future__ import annotations

import asyncio
import importlib
import io
import logging
import random
import signal
from collections.abc import Coroutine
from typing import Any, NamedTuple, cast

import msgspec

from enginehouse.app.gateway import Gateway
from enginehouse.app.reload import ConfigSource
from enginehouse.config.load_config import LoadedConfig, read_document
from enginehouse.plugin_manager.registry import Registry
from enginehouse.processes.listen import Listeners
from enginehouse.relay.upstream.outside import Outside
from enginehouse.telemetry.log_ring import LogRing
from enginehouse.telemetry.logs import GatewayLog
from enginehouse_kit.virtual_loop import Timer
from tests.chaos import configs
from tests.chaos.asks import plain_ask
from tests.chaos.chaos_loop import ChaosLoop
from tests.chaos.clients import Client, Manner, Plan
from tests.chaos.engines import Engine, Serving
from tests.chaos.gauges import held_of_answers, leftovers
from tests.chaos.invariants import check_answers
from tests.chaos.launcher import VirtualProcess
from tests.chaos.network import Factory, ListeningAddress, Network
from tests.chaos.operators import Operators
from tests.chaos.outages import Outages
from tests.chaos.router import Router
from tests.chaos.schedule import Action, Schedule
from tests.chaos.sockets import SocketClient, SocketServing
from tests.chaos.taps import Story, Taps
from tests.chaos.virtual_time import GATEWAY_CLOCK, OrderedSet, clock
from tests.chaos.worker_processes import VirtualForks

_serving = cast(Any, importlib.import_module("enginehouse.processes.gateway_server"))
GATEWAY = ("127.0.0.1", 8080)
_SETTLE_S = 3.0
"""Longer than the gateway keeps the place of a request that an engine broke off, until it knows whether that exited."""
_QUESTION_S = 60.0
"""The longest time that the gateway gives the answer to a question."""
_RECOVERY_S = 200.0
_STOP_S = 40.0


class Outcome(NamedTuple):
    """What came of a run."""

    seed: int | str
    violations: list[str]
    story: Story
    requests: int
    seconds: float


class World:
    """Everything of one run."""

    current: World

    def __init__(
        self, schedule: Schedule, loop: ChaosLoop, registry: Registry, workers: int = 1, killed: World | None = None
    ) -> None:
        World.current = self
        self.schedule = schedule
        self.calm = schedule.calm
        self.config = schedule.config
        self._configs = [self.config]
        self.violations: list[str] = []
        self.servings: list[Serving] = []
        self.socket_servings: list[SocketServing] = []
        self.processes: dict[str, VirtualProcess] = {}
        self.tasks = OrderedSet()
        self.taps: Taps = Taps(self, killed.taps if killed is not None else None)
        self._killed = killed
        self._outages = Outages(self)
        self._born = clock.now
        self.loop = loop
        self.rng = random.Random(f"{schedule.seed}/world")
        self.plugin_faults = schedule.plugin_faults
        self.plugin_rng = random.Random(f"{schedule.seed}/plugins")
        self.network = Network(
            loop, random.Random(f"{schedule.seed}/network"), self.taps.tap, self._outages.connect_fault
        )
        self.network.accepts_at = self._outages.accepts_at
        self.engines: dict[str, Engine] = {}
        self.router: Router
        self.clients: list[Client] = []
        self.sockets: list[SocketClient] = []
        self._actions: list[Timer] = []
        self._count = 100
        loop.network = _GatewayNetwork(self.network)
        loop.set_exception_handler(self._defect)
        config = self.read().config
        self.log = GatewayLog()
        self.log.setStream(io.StringIO())
        self.log.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        logging.getLogger().handlers[:] = [self.taps, self.log]
        self.forks = VirtualForks(self, registry, workers) if workers > 1 else None
        shared = self.forks.accounts if self.forks is not None else None
        self.gateway = Gateway(
            config, registry, self.log, ConfigSource(self.read, None), Outside(GATEWAY_CLOCK), shared
        )
        listeners = _VirtualListeners([cast(Any, ListeningAddress(self.network, GATEWAY))])
        self.server = _ChaosServer(self.gateway, listeners, predecessor=None, forks=self.forks, greeting=str)
        self.network.keeps_waiting = lambda address: address == GATEWAY and self._serves_by_workers
        state, http = self.server.server_state, self.server._http
        state.connections = http.connections = OrderedSet()  # one for both: the server waits until they are closed
        state.tasks = http.tasks = OrderedSet()
        self.operators = Operators(self)

    def read(self) -> LoadedConfig:
        return read_document(msgspec.json.decode(msgspec.json.encode(self.config)), None, {})

    # --- for engines, launchers and clients

    def spawn(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            raise error

    def note(self, who: str, what: str) -> None:
        self.taps.note(who, what)

    def violated(self, what: str) -> None:
        self.taps.note("VIOLATED", what)
        self.violations.append(what)

    def served(self, serving: Serving) -> None:
        self.servings.append(serving)

    def shaken(self, serving: SocketServing) -> None:
        self.socket_servings.append(serving)

    def engine(self, name: str) -> Engine:
        """A server of that name; a managed one serves only its model."""
        rng = random.Random(f"{self.schedule.seed}/engine/{name}/{self.rng.random()}")
        fault_rate = self.schedule.fault_rate
        if name == configs.ROUTER:
            self.router = Router(self, name, configs.ROUTER_MODELS, rng, fault_rate)
            engine: Engine = self.router
        else:
            model = name.partition("#")[0]
            models = configs.REMOTE_MODELS if name.startswith("e") and name[1:].isdigit() else [model]
            engine = Engine(self, name, models, rng, fault_rate)
        self.engines[name] = engine
        return engine

    def _defect(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.violated(f"the event loop reports: {context['message']}: {error!r}")
        if error is not None:
            self.taps.traceback(error)

    # --- the run

    async def run(self) -> None:
        """Run to the end, or until the gateway is killed."""
        if self._killed is not None:
            self.note("bench", "starts another gateway")
            for name, process in self._killed.processes.items():
                self.processes[name] = process
                process.outlive(self, LogRing())
        serving = self._begin()
        everyone: list[Client | SocketClient] = [*self.clients, *self.sockets]
        talking = [self.spawn(client.run()) for client in everyone]
        for action in self.schedule.actions:
            self._actions.append(self.loop.call_later(action.at + 0.2, self._act, action))
        self._kill_workers()
        if self.schedule.killed is not None:
            await asyncio.sleep(self.schedule.killed)
            self.note("bench", "kills the gateway")
            self.taps.stopped_at = clock.now
            check_answers(self)
            return
        if self.schedule.shutdown is not None:
            await asyncio.sleep(self.schedule.shutdown)
            self._stop()
        elif talking:
            await asyncio.wait(talking)
            await self._recover()
            self._stop()
        await self._until_stopped(serving)
        self.calm = True
        self.network.exit("gateway<")
        await asyncio.wait({*talking, self.loop.create_task(asyncio.sleep(0))})
        await self._end()

    @property
    def _serves_by_workers(self) -> bool:
        return self.forks is not None and self.taps.stopped_at is None

    def _kill_workers(self) -> None:
        """Kill some of the workers, at times that the seed decides."""
        if self.forks is None or self.calm:
            return
        rng, forks = (random.Random(f"{self.schedule.seed}/{what}") for what in ("workers", "forks"))
        last = max((action.at for action in self.schedule.actions), default=5.0)
        for _ in range(rng.choice((0, 1, 1, 2, 4))):
            self._actions.append(self.loop.call_later(rng.uniform(0.2, last), self._kill_worker, rng, forks))

    def _kill_worker(self, rng: random.Random, forks: random.Random) -> None:
        assert self.forks is not None
        self.forks.full += forks.choice((0, 0, 0, 1, 4))
        running = self.forks.running()
        if running and not self.calm:
            self.forks.kill(rng.choice(running))

    def _begin(self) -> asyncio.Task[Any]:
        """Start the engines and the gateway, and make the clients. Returns the gateway's task."""
        for number in range(4):
            name = f"e{number}"
            self.network.listen(name, (name, 8000), self.engine(name).accept)
        serving = self.loop.create_task(self.server._serve([]))
        for plan in self.schedule.plans:
            plan = plan._replace(at=plan.at + self._born)
            self.clients.append(Client(plan, self.network, GATEWAY, random.Random(f"{self.schedule.seed}/{plan.at}")))
        for socket in self.schedule.sockets:
            socket = socket._replace(at=socket.at + self._born)
            rng = random.Random(f"{self.schedule.seed}/{socket.at}")
            self.sockets.append(SocketClient(socket, self.network, GATEWAY, rng))
        return serving

    async def _until_stopped(self, serving: asyncio.Task[Any]) -> None:
        _, late = await asyncio.wait({serving}, timeout=_STOP_S)
        if late:
            self.violated(f"the gateway did not stop within {_STOP_S} s")
            serving.cancel()
        elif not serving.cancelled() and (error := serving.exception()) is not None:
            self.violated(f"the gateway stopped with {error!r}")
            self.taps.traceback(error)

    def _stop(self) -> None:
        self.note("operator", "stops the gateway")
        for action in self._actions:
            action.cancel()
        self.taps.stopped_at = clock.now
        self.server.should_exit = True

    async def _recover(self) -> None:
        """Let every fault end. Then nothing may be left over, and every model must be served again."""
        self.note("bench", "lets every fault end")
        no_descriptors_s = max(0.0, self._outages.accepts_at() - clock.now)  # operators wait for them too
        self.calm = True
        self._outages.end()
        await asyncio.sleep(no_descriptors_s + _SETTLE_S)
        if not self.schedule.calm:
            await self.operators.undrain_all()
        workers = [] if self.forks is None else [*self.forks.workers.values()]
        until = clock.now + _QUESTION_S
        while held_of_answers(self.gateway, workers) and clock.now < until:  # noqa: ASYNC110 - a flood may still arrive
            await asyncio.sleep(1)
        for left in leftovers(self.gateway, workers):
            self.violated(f"left over: {left}")
        self.config = self.config_in_force()
        for model in configs.models_of(self.config):
            await self._expect_served(model)

    def config_in_force(self) -> configs.Table:
        """The last configuration that was not refused."""
        return next(each for each in reversed(self._configs) if self._is_in_force(each))

    def _is_in_force(self, config: configs.Table) -> bool:
        in_force = self.gateway.config
        return list(config["backends"]) == list(in_force.backends) and list(config["models"]) == list(in_force.models)

    async def _expect_served(self, model: str) -> None:
        until = clock.now + _RECOVERY_S
        keys = configs.client_keys(self.config)
        while True:
            self._count += 1
            ask = plain_ask(self._count, model, keys, stream=self._count % 2 == 0)
            client = Client(Plan(clock.now, (ask,), Manner()), self.network, GATEWAY, self.rng)
            self.clients.append(client)
            await self.spawn(client.run())
            if ask.complete and ask.status == 200:
                return
            if clock.now > until or self.schedule.calm:
                self.violated(f"model {model} is not served again: {ask.status} {ask.answer[:300]!r} {ask.broken}")
                return
            await asyncio.sleep(2.0)

    async def _end(self) -> None:
        """Nothing of the gateway may be left."""
        await asyncio.sleep(1.0)
        for name in self.network.open():
            self.violated(f"left open: {name}")
        for name in self.processes:
            self.violated(f"left running: {name}")
        for pid in self.forks.running() if self.forks is not None else ():
            self.violated(f"left running: worker {pid}")
        for task in list(self.tasks):
            task.cancel()
        await asyncio.sleep(0.5)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            self.violated(f"left running: {task.get_coro()}")
        for timer in self.loop.pending():
            self.violated(f"left set: {timer}")
        for request in self.gateway.relay.live:
            self.violated(f"left live: {request.request_id!r}")
        check_answers(self)

    def outcome(self) -> Outcome:
        requests = sum(len(plan.asks) for plan in self.schedule.plans)
        return Outcome(self.schedule.seed, self.violations, self.taps.story, requests, clock.now)

    def _act(self, action: Action) -> None:
        if self.calm and action.how != "up":
            return
        self.note("schedule", " ".join(action[1:]))
        if self._outages.act(action):
            return
        if action.what != "reload":
            self.operators.act(action)
            return
        if action.how != "dry":
            self.config = configs.change(self.rng, self.config)
            self._configs.append(self.config)
        if action.how == "signal" and signal.SIGHUP in self.loop.signals:
            self.loop.signals[signal.SIGHUP]()
        else:
            self.operators.do("POST", "/api/reload" + "?dry_run=true" * (action.how == "dry"))


class _GatewayNetwork:
    """The virtual network as the gateway's event loop sees it."""

    def __init__(self, network: Network) -> None:
        self.connect = network.from_gateway
        self._network = network

    def listen(self, factory: Factory, sock: Any) -> ListeningAddress:
        return self._network.listen("gateway", GATEWAY, factory)


class _VirtualListeners(Listeners):
    """The gateway's address in the network of the current run."""

    def copies(self) -> list[Any]:
        return [*self.sockets]


class _ChaosServer(_serving.GatewayServer):  # type: ignore[misc,name-defined]
    async def close_listeners(self) -> None:
        """The virtual network has no queue of connections that nobody has accepted."""
        self.stop_accepting()
        self.listeners.close()

    async def main_loop(self) -> None:
        """As uvicorn's, but with fewer ticks."""
        counter = 0
        while not await self.on_tick(counter):
            counter += 2
            await asyncio.sleep(0.5)
