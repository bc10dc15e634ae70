"""Drivers and launchers whose answers the gateway need not check."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from inspect import isawaitable, iscoroutinefunction
from typing import Any, cast

import msgspec

from enginehouse.domain.cache_events import PromptTokens
from enginehouse.domain.continuation import Continuation, PartialAnswer
from enginehouse.domain.errors import EnginehouseError, LoadFailed, PluginFailed
from enginehouse.domain.gpu import Gpu
from enginehouse.domain.instance import InstanceMetadata, InstanceStatus
from enginehouse.domain.plugin_id import PluginId
from enginehouse.interfaces.driver_support import SUPPORTS, DriverSupport, support_of
from enginehouse.interfaces.drivers import Driver, LoadedModel, ServedModel, ThinkingFields
from enginehouse.interfaces.engine_caches import CacheFollower
from enginehouse.interfaces.launch_spec import FoundModel, ModelFacts
from enginehouse.interfaces.launchers import EngineProcess, Exit, Launcher
from enginehouse.interfaces.places import Place
from enginehouse.telemetry.plugin_failures import passes, plugin_failed, wrong_result

Fits = Callable[[Any], bool]
"""Whether a method may return this."""


_KILL_S = 5.0


def guarded_driver(plugin: PluginId, driver: Driver) -> DriverSupport:
    """What ``driver`` supports, with its answers checked.

    A wrong answer and any exception but an ``EnginehouseError`` become ``PluginFailed``, which names the driver's type
    and plugin, but nothing of the exception except its class.
    """
    guard: Any = _GuardedCall(plugin, driver, _ASYNCHRONOUS_OF_DRIVERS)
    return DriverSupport._make(guard if each is driver else each for each in support_of(driver))


def guarded_launcher(plugin: PluginId, launcher: Launcher) -> Launcher:
    """``launcher`` with its answers checked as those of a driver, and those of the processes that it starts."""
    return cast("Launcher", _GuardedCall(plugin, launcher, _ASYNCHRONOUS_OF_LAUNCHERS))


def unguarded_launcher(launcher: Launcher) -> Launcher:
    """The launcher behind a guard."""
    return cast("Launcher", launcher.unguarded) if isinstance(launcher, _GuardedCall) else launcher


def unguarded(driver: DriverSupport) -> DriverSupport:
    """The driver behind a guard, for callers who show its errors to the operator who starts the gateway."""
    inner = driver.driver
    return support_of(inner.unguarded) if isinstance(inner, _GuardedCall) else driver


class _GuardedCall:
    """Has every attribute of the object ``unguarded``; checks what its methods in ``ANSWERS`` return.

    Those in ``waiting`` are asynchronous.
    """

    def __init__(self, plugin: PluginId, unguarded: Any, waiting: Collection[str]) -> None:
        self._plugin = plugin
        self._waiting = waiting
        self.unguarded = unguarded

    def __getattr__(self, name: str) -> Any:
        """Called once for each name, because the attribute exists from then on."""
        value = getattr(self.unguarded, name)
        if name in ANSWERS:
            value = _checked(self._plugin, name, value, waits=name in self._waiting)
        setattr(self, name, value)
        return value


class _ProcessGuard(_GuardedCall):
    """A process whose exit cannot be awaited is stopped, and counts as exited."""

    def __init__(self, plugin: PluginId, process: EngineProcess) -> None:
        super().__init__(plugin, process, _ASYNCHRONOUS_OF_LAUNCHERS)
        try:
            self.address = str(process.address)
            self.handle = dict(process.handle)
            msgspec.json.encode(self.handle)  # raises now, not when it is recorded
        except BaseException as error:
            raise plugin_failed(plugin, error) from error
        self._exited = _checked(plugin, "exited", process.exited, waits=True)

    async def exited(self) -> Exit:
        try:
            how: Exit | int | None = await self._exited()
        except EnginehouseError:  # logged already
            with suppress(EnginehouseError):
                await self.stop(_KILL_S)
            return Exit()
        return how if isinstance(how, Exit) else Exit(status=how)  # launchers written for 0.1.0 return the status


def _checked(plugin: PluginId, name: str, method: Callable[..., Any], *, waits: bool) -> Callable[..., Any]:
    wanted, fits = ANSWERS[name]

    def wrong(answer: Any) -> PluginFailed:
        returned = f"an object of type {type(answer).__name__}"
        return wrong_result(plugin, f"returned {returned} from {name} instead of {wanted}")

    async def ask(*arguments: object) -> Any:
        try:
            answer = method(*arguments)
            if isawaitable(answer):
                answer = await answer
        except BaseException as error:
            if passes(error):
                raise
            raise plugin_failed(plugin, error) from error
        if not fits(answer):
            raise wrong(answer)
        return _ProcessGuard(plugin, answer) if isinstance(answer, EngineProcess) else answer

    def call(*arguments: object) -> Any:
        try:
            answer = method(*arguments)
        except EnginehouseError:
            raise
        except BaseException as error:
            raise plugin_failed(plugin, error) from error
        if not fits(answer):
            raise wrong(answer)
        return answer

    return ask if waits else call


def _exactly(*kinds: type) -> Fits:
    return lambda answer: type(answer) in kinds  # a bool is not a number


def _instance(*kinds: type) -> Fits:
    return lambda answer: isinstance(answer, kinds)


def _list_of(kind: type) -> Fits:
    return lambda answer: isinstance(answer, (list, tuple)) and all(isinstance(each, kind) for each in answer)


def _are_texts(answer: Any) -> bool:
    return isinstance(answer, dict) and _list_of(str)([*answer, *answer.values()])


def _are_counts(answer: Any) -> bool:
    return isinstance(answer, dict) and all(type(name) is str and type(count) is int for name, count in answer.items())


def _are_marks(answer: Any) -> bool:
    return isinstance(answer, dict) and all(type(pid) is int and type(text) is str for pid, text in answer.items())


def _are_process_ids(answer: Any) -> bool:
    return isinstance(answer, (list, tuple, set, frozenset)) and all(type(each) is int for each in answer)


_BOOL = ("a bool", _exactly(bool))
_MAYBE = ("a bool or None", _exactly(bool, type(None)))
_BYTES = ("bytes", _exactly(bytes))
_TEXT = ("a text", _instance(str))
_NUMBER = ("an int or None", _exactly(int, type(None)))
_SECONDS = ("a number or None", _exactly(int, float, type(None)))
_ANYTHING = ("anything", _instance(object))
_CONTINUATION = ("a Continuation", _instance(Continuation))

ANSWERS: Mapping[str, tuple[str, Fits]] = {
    "healthy": _BOOL,
    "models": ("a list of ServedModels", _list_of(ServedModel)),
    "serves": _MAYBE,
    "thinking": ("ThinkingFields", _instance(ThinkingFields)),
    "command": ("a list of texts or None", lambda answer: answer is None or _list_of(str)(answer)),
    "environment": ("a dict of texts", _are_texts),
    "why_not": _TEXT,
    "files": ("a list of texts", _list_of(str)),
    "find_models": ("a list of FoundModels", _list_of(FoundModel)),
    "inspect": ("ModelFacts", _instance(ModelFacts)),
    "load": _ANYTHING,
    "unload": _ANYTHING,
    "load_problem": ("a LoadFailed or None", _instance(LoadFailed, type(None))),
    "follow_loads": _ANYTHING,
    "is_not_loaded": _BOOL,
    "loaded": ("a list of LoadedModels", _list_of(LoadedModel)),
    "full_name": _TEXT,
    "sleep": _BOOL,
    "wake": _BOOL,
    "sleep_as_launched": _BOOL,
    "wake_as_launched": _BOOL,
    "save_cache": ("a dict of numbers by file", _are_counts),
    "restore_cache": ("an int", _exactly(int)),
    "aside": _BYTES,
    "concurrency": _NUMBER,
    "status": ("an InstanceStatus or None", _instance(InstanceStatus, type(None))),
    "metadata": ("an InstanceMetadata", _instance(InstanceMetadata)),
    "priority_order": ("-1, 0 or 1", lambda answer: type(answer) is int and answer in (-1, 0, 1)),
    "continuable": _BYTES,
    "fill_in": ("a PartialAnswer", _instance(PartialAnswer)),
    "continuation": _CONTINUATION,
    "following": _CONTINUATION,
    "check_cache_events": _ANYTHING,
    "follow_cache": ("a CacheFollower", _instance(CacheFollower)),
    "tokenize": ("PromptTokens or None", _instance(PromptTokens, type(None))),
    "bootstrap_port": _NUMBER,
    "bootstrap": _BYTES,
    # launchers
    "launch": ("an EngineProcess", _instance(EngineProcess)),
    "adopt": ("an EngineProcess or None", _instance(EngineProcess, type(None))),
    "prepare": _ANYTHING,
    "no_room": _TEXT,
    "place": ("a Place or None", _instance(Place, type(None))),
    "gpus": ("a list of Gpus", _list_of(Gpu)),
    "release": _ANYTHING,
    "marks": ("a dict of texts by process id", _are_marks),
    # processes
    "listening": _ANYTHING,
    "exited": ("an Exit", lambda answer: isinstance(answer, Exit) or _exactly(int, type(None))(answer)),
    "memory": _NUMBER,
    "bytes_moved": _NUMBER,
    "processor_seconds": _SECONDS,
    "processes": ("a list of process ids", _are_process_ids),
    "stop": _ANYTHING,
}
"""What each method of a driver, a launcher or a process must return, in words and as a check."""


def _asynchronous(*interfaces: type) -> frozenset[str]:
    methods = (method for interface in interfaces for method in vars(interface).items())
    return frozenset(name for name, method in methods if iscoroutinefunction(method))


_ASYNCHRONOUS_OF_DRIVERS = _asynchronous(Driver, *SUPPORTS)
_ASYNCHRONOUS_OF_LAUNCHERS = _asynchronous(Launcher, EngineProcess)
