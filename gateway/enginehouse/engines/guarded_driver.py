"""A driver whose answers the gateway need not check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import iscoroutinefunction
from typing import Any

from enginehouse.domain.continuation import Continuation, PartialAnswer
from enginehouse.domain.errors import EnginehouseError
from enginehouse.domain.instance import InstanceMetadata, InstanceStatus
from enginehouse.domain.plugin_id import PluginId
from enginehouse.interfaces.driver_support import SUPPORTS, DriverSupport, support_of
from enginehouse.interfaces.drivers import Driver, LoadedModel, ServedModel
from enginehouse.interfaces.launch_spec import FoundModel, ModelFacts
from enginehouse.telemetry.plugin_failures import await_plugin, plugin_failed, wrong_result

Fits = Callable[[Any], bool]
"""Whether a method may return this."""


def guarded_driver(plugin: PluginId, driver: Driver) -> DriverSupport:
    """What ``driver`` supports, with its answers checked.

    A wrong answer and any exception but an ``EnginehouseError`` become ``PluginFailed``, which names the driver's type
    and plugin, but nothing of the exception except its class.
    """
    guard: Any = _GuardedDriver(plugin, driver)
    return DriverSupport._make(guard if each is driver else each for each in support_of(driver))


def unguarded(driver: DriverSupport) -> DriverSupport:
    """The driver behind a guard, for callers who show its errors to the operator who starts the gateway."""
    inner = driver.driver
    return support_of(inner.unguarded) if isinstance(inner, _GuardedDriver) else driver


class _GuardedDriver:
    """Has every attribute of ``driver``; checks what the methods in ``ANSWERS`` return."""

    def __init__(self, plugin: PluginId, driver: Driver) -> None:
        self._plugin = plugin
        self.unguarded = driver

    def __getattr__(self, name: str) -> Any:
        """Called once for each name, because the attribute exists from then on."""
        value = getattr(self.unguarded, name)
        if name in ANSWERS:
            value = _checked(self._plugin, name, value)
        setattr(self, name, value)
        return value


def _checked(plugin: PluginId, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    wanted, fits = ANSWERS[name]

    def check(answer: Any) -> Any:
        if not fits(answer):
            returned = f"an object of type {type(answer).__name__}"
            raise wrong_result(plugin, f"returned {returned} from {name} instead of {wanted}")
        return answer

    async def ask(*arguments: object) -> Any:
        return check(await await_plugin(plugin, method, *arguments))

    def call(*arguments: object) -> Any:
        try:
            answer = method(*arguments)
        except EnginehouseError:
            raise
        except BaseException as error:
            raise plugin_failed(plugin, error) from error
        return check(answer)

    return ask if name in _ASYNCHRONOUS else call


def _exactly(*kinds: type) -> Fits:
    return lambda answer: type(answer) in kinds  # a bool is no number


def _instance(*kinds: type) -> Fits:
    return lambda answer: isinstance(answer, kinds)


def _list_of(kind: type) -> Fits:
    return lambda answer: isinstance(answer, (list, tuple)) and all(isinstance(each, kind) for each in answer)


def _are_texts(answer: Any) -> bool:
    return isinstance(answer, dict) and _list_of(str)([*answer, *answer.values()])


_BOOL = ("a bool", _exactly(bool))
_BYTES = ("bytes", _exactly(bytes))
_TEXT = ("a text", _instance(str))
_NUMBER = ("an int or None", _exactly(int, type(None)))
_ANYTHING = ("anything", _instance(object))
_CONTINUATION = ("a Continuation", _instance(Continuation))

ANSWERS: Mapping[str, tuple[str, Fits]] = {
    "healthy": _BOOL,
    "models": ("a list of ServedModels", _list_of(ServedModel)),
    "command": ("a list of texts or None", lambda answer: answer is None or _list_of(str)(answer)),
    "environment": ("a dict of texts", _are_texts),
    "why_not": _TEXT,
    "find_models": ("a list of FoundModels", _list_of(FoundModel)),
    "inspect": ("ModelFacts", _instance(ModelFacts)),
    "load": _ANYTHING,
    "unload": _ANYTHING,
    "loaded": ("a list of LoadedModels", _list_of(LoadedModel)),
    "full_name": _TEXT,
    "sleep": _BOOL,
    "wake": _BOOL,
    "sleep_as_launched": _BOOL,
    "wake_as_launched": _BOOL,
    "concurrency": _NUMBER,
    "status": ("an InstanceStatus or None", _instance(InstanceStatus, type(None))),
    "metadata": ("an InstanceMetadata", _instance(InstanceMetadata)),
    "priority_order": ("-1, 0 or 1", lambda answer: type(answer) is int and answer in (-1, 0, 1)),
    "continuable": _BYTES,
    "fill_in": ("a PartialAnswer", _instance(PartialAnswer)),
    "continuation": _CONTINUATION,
    "following": _CONTINUATION,
    "bootstrap_port": _NUMBER,
    "bootstrap": _BYTES,
}
"""What each method of a driver must return, in words and as a check."""

_ASYNCHRONOUS = frozenset(
    name for interface in (Driver, *SUPPORTS) for name, method in vars(interface).items() if iscoroutinefunction(method)
)
