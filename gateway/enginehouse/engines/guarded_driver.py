"""A driver whose answers the gateway need not check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

from enginehouse.domain.continuation import Continuation, PartialAnswer
from enginehouse.domain.errors import EnginehouseError
from enginehouse.domain.instance import InstanceMetadata, InstanceStatus
from enginehouse.domain.plugin_id import PluginId
from enginehouse.interfaces.drivers import (
    Driver,
    EngineClient,
    FoundModel,
    LaunchSpec,
    LoadedModel,
    ModelFacts,
    ServedModel,
)
from enginehouse.telemetry.plugin_failures import await_plugin, plugin_failed, wrong_result

P = ParamSpec("P")
T = TypeVar("T")


class GuardedDriver(Driver):
    """Runs ``driver`` and checks its answers.

    A wrong answer and any exception but an ``EnginehouseError`` become ``PluginFailed``, which names the driver's type
    and plugin, but nothing of the exception except its class.
    """

    def __init__(self, plugin: PluginId, driver: Driver) -> None:
        self.driver = driver
        self.streams = driver.streams
        self.metrics_path = driver.metrics_path
        self.hands_over = driver.hands_over
        self.bootstraps = driver.bootstraps
        self.Options = driver.Options
        self.loads_models = driver.loads_models
        self.how_to_install = driver.how_to_install
        self._plugin = plugin

    def command(self, spec: LaunchSpec) -> Sequence[str] | None:
        words = self._call(self.driver.command, spec)
        if words is not None and not (isinstance(words, (list, tuple)) and _are_texts(words)):
            raise self._wrong("command", words, "a list of texts or None")
        return words

    def environment(self, spec: LaunchSpec) -> Mapping[str, str]:
        variables = self._call(self.driver.environment, spec)
        if not isinstance(variables, dict) or not _are_texts([*variables, *variables.values()]):
            raise self._wrong("environment", variables, "a dict of texts")
        return variables

    def why_not(self, spec: LaunchSpec) -> str:
        problem = self._call(self.driver.why_not, spec)
        if not isinstance(problem, str):
            raise self._wrong("why_not", problem, "a text")
        return problem

    def find_models(self, path: Path) -> Sequence[FoundModel]:
        found = self._call(self.driver.find_models, path)
        if not isinstance(found, (list, tuple)) or not all(isinstance(each, FoundModel) for each in found):
            raise self._wrong("find_models", found, "a list of FoundModels")
        return found

    def inspect(self, spec: LaunchSpec) -> ModelFacts:
        facts = self._call(self.driver.inspect, spec)
        if not isinstance(facts, ModelFacts):
            raise self._wrong("inspect", facts, "ModelFacts")
        return facts

    async def healthy(self, engine: EngineClient) -> bool:
        return self._yes_or_no("healthy", await await_plugin(self._plugin, self.driver.healthy, engine))

    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        served = await await_plugin(self._plugin, self.driver.models, engine)
        if not isinstance(served, (list, tuple)) or not all(isinstance(each, ServedModel) for each in served):
            raise self._wrong("models", served, "a list of ServedModels")
        return served

    async def concurrency(self, engine: EngineClient) -> int | None:
        limit = await await_plugin(self._plugin, self.driver.concurrency, engine)
        if limit is not None and type(limit) is not int:
            raise self._wrong("concurrency", limit, "an int or None")
        return limit

    async def status(self, engine: EngineClient) -> InstanceStatus | None:
        status = await await_plugin(self._plugin, self.driver.status, engine)
        if status is not None and not isinstance(status, InstanceStatus):
            raise self._wrong("status", status, "an InstanceStatus or None")
        return status

    async def priority_order(self, engine: EngineClient, spec: LaunchSpec | None = None) -> int:
        order = await await_plugin(self._plugin, self.driver.priority_order, engine, spec)
        if type(order) is not int or order not in (-1, 0, 1):
            raise self._wrong("priority_order", order, "-1, 0 or 1")
        return order

    async def bootstrap_port(self, engine: EngineClient) -> int | None:
        port = await await_plugin(self._plugin, self.driver.bootstrap_port, engine)
        if port is not None and type(port) is not int:
            raise self._wrong("bootstrap_port", port, "an int or None")
        return port

    def bootstrap(self, body: bytes, host: str, port: int | None) -> bytes:
        made = self._call(self.driver.bootstrap, body, host, port)
        if type(made) is not bytes:
            raise self._wrong("bootstrap", made, "bytes")
        return made

    async def load(self, engine: EngineClient, model: str) -> None:
        await await_plugin(self._plugin, self.driver.load, engine, model)

    async def unload(self, engine: EngineClient, model: str) -> None:
        await await_plugin(self._plugin, self.driver.unload, engine, model)

    def full_name(self, model: str) -> str:
        name = self._call(self.driver.full_name, model)
        if not isinstance(name, str):
            raise self._wrong("full_name", name, "a text")
        return name

    async def loaded(self, engine: EngineClient) -> Sequence[LoadedModel]:
        loaded = await await_plugin(self._plugin, self.driver.loaded, engine)
        if not isinstance(loaded, (list, tuple)) or not all(isinstance(each, LoadedModel) for each in loaded):
            raise self._wrong("loaded", loaded, "a list of LoadedModels")
        return loaded

    async def metadata(self, engine: EngineClient) -> InstanceMetadata:
        metadata = await await_plugin(self._plugin, self.driver.metadata, engine)
        if not isinstance(metadata, InstanceMetadata):
            raise self._wrong("metadata", metadata, "an InstanceMetadata")
        return metadata

    async def sleep(self, engine: EngineClient) -> bool:
        return self._yes_or_no("sleep", await await_plugin(self._plugin, self.driver.sleep, engine))

    async def wake(self, engine: EngineClient) -> bool:
        return self._yes_or_no("wake", await await_plugin(self._plugin, self.driver.wake, engine))

    async def sleep_as_launched(self, engine: EngineClient, spec: LaunchSpec) -> bool:
        sleeps = await await_plugin(self._plugin, self.driver.sleep_as_launched, engine, spec)
        return self._yes_or_no("sleep_as_launched", sleeps)

    async def wake_as_launched(self, engine: EngineClient, spec: LaunchSpec) -> bool:
        wakes = await await_plugin(self._plugin, self.driver.wake_as_launched, engine, spec)
        return self._yes_or_no("wake_as_launched", wakes)

    def continuable(self, path: str, body: bytes) -> bytes:
        added = self._call(self.driver.continuable, path, body)
        if type(added) is not bytes:
            raise self._wrong("continuable", added, "bytes")
        return added

    async def fill_in(self, engine: EngineClient, answer: PartialAnswer) -> PartialAnswer:
        filled = await await_plugin(self._plugin, self.driver.fill_in, engine, answer)
        if not isinstance(filled, PartialAnswer):
            raise self._wrong("fill_in", filled, "a PartialAnswer")
        return filled

    def continuation(self, answer: PartialAnswer) -> Continuation:
        made = self._call(self.driver.continuation, answer)
        if not isinstance(made, Continuation):
            raise self._wrong("continuation", made, "a Continuation")
        return made

    def following(self, continuation: Continuation, request: str) -> Continuation:
        made = self._call(self.driver.following, continuation, request)
        if not isinstance(made, Continuation):
            raise self._wrong("following", made, "a Continuation")
        return made

    def _call(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except EnginehouseError:
            raise
        except BaseException as error:
            raise plugin_failed(self._plugin, error) from error

    def _yes_or_no(self, method: str, answer: bool) -> bool:
        if type(answer) is not bool:
            raise self._wrong(method, answer, "a bool")
        return answer

    def _wrong(self, method: str, answer: object, wanted: str) -> Exception:
        returned = f"an object of type {type(answer).__name__}"
        return wrong_result(self._plugin, f"returned {returned} from {method} instead of {wanted}")


def unguarded(driver: Driver) -> Driver:
    """The driver behind a guard, for callers who show its errors to the operator who starts the gateway."""
    return driver.driver if isinstance(driver, GuardedDriver) else driver


def _are_texts(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)
