"""Objects of plugins whose answers are checked, by what their interfaces declare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from inspect import isawaitable, iscoroutinefunction, isfunction
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from enginehouse.domain.errors import EnginehouseError, PluginFailed
from enginehouse.domain.plugin_id import PluginId
from enginehouse.telemetry.plugin_failures import passes, plugin_failed, wrong_result

Methods = Mapping[str, Callable[..., Any]]


def methods_of(*interfaces: type, but: tuple[str, ...] = ()) -> Methods:
    """The public methods that these interfaces declare, by name, ``but`` for some."""
    found = (each for interface in interfaces for each in vars(interface).items())
    return {name: each for name, each in found if isfunction(each) and not name.startswith("_") and name not in but}


class _Returned(NamedTuple):
    """What a method of an interface returns: the ``type``, whose ``kinds`` fit, and whether another answer ``fits``."""

    method: str
    type: Any
    kinds: tuple[Any, ...]
    fits: Callable[[Any], bool]


@cache
def _returned_by(method: Callable[..., Any]) -> _Returned:
    """What ``method`` is declared to return."""
    type = get_type_hints(method)["return"]
    kinds = get_args(type) if get_origin(type) is UnionType else (type,)
    return _Returned(method.__name__.strip("_"), type, kinds, _fits(type))


async def ask(plugin: PluginId, declared: Callable[..., Any], method: Callable[..., Any], *arguments: object) -> Any:
    """Call an asynchronous method and check its answer, as ``CheckedPlugin``, by what ``declared`` returns."""
    returned = _returned_by(declared)
    try:
        answer = method(*arguments)
        if isawaitable(answer):
            answer = await answer
        fits = type(answer) in returned.kinds or returned.fits(answer)
    except BaseException as error:
        if passes(error):
            raise
        raise plugin_failed(plugin, error) from error
    if not fits:
        raise _wrong(plugin, returned, answer)
    return answer


def _call(plugin: PluginId, returned: _Returned, method: Callable[..., Any], *arguments: object) -> Any:
    """Call a synchronous method and check its answer."""
    try:
        answer = method(*arguments)
        fits = type(answer) in returned.kinds or returned.fits(answer)
    except EnginehouseError:
        raise
    except BaseException as error:
        raise plugin_failed(plugin, error) from error
    if not fits:
        raise _wrong(plugin, returned, answer)
    return answer


def _wrong(plugin: PluginId, returned: _Returned, answer: object) -> PluginFailed:
    kind = returned.type
    wanted = kind.__name__ if get_origin(kind) is None else str(kind).replace("collections.abc.", "")
    given = f"an object of type {type(answer).__name__}"
    return wrong_result(plugin, f"returned {given} from {returned.method} instead of {wanted}")


def _fits(wanted: Any) -> Callable[[Any], bool]:
    """Checks that an answer has the type ``wanted``; ``None`` alone allows everything.

    A bool is not a number, and a text is not a sequence of texts. What an object names itself, such as its model, is
    a text.
    """
    kind, parts = get_origin(wanted), get_args(wanted)
    if kind is UnionType:
        others = [_fits(each) for each in parts if each is not NoneType]
        return lambda answer: answer is None or any(fits(answer) for fits in others)
    if kind is None:
        if wanted is NoneType:
            return lambda answer: True
        if wanted in (int, float):
            return lambda answer: isinstance(answer, (int, wanted)) and not isinstance(answer, bool)
        names = [name for name, type in getattr(wanted, "__annotations__", {}).items() if type in ("str", str)]
        return lambda answer: (
            isinstance(answer, wanted) and not [name for name in names if not isinstance(getattr(answer, name), str)]
        )
    inner = [_fits(each) for each in parts]

    def fits(answer: Any) -> bool:
        if not isinstance(answer, kind) or isinstance(answer, (str, bytes)):
            return False
        columns = (answer.keys(), answer.values()) if len(inner) > 1 else (answer,)
        return all(all(map(check, column)) for check, column in zip(inner, columns, strict=True))

    return fits


class CheckedPlugin:
    """Has every attribute of the object ``unguarded``; checks what its ``methods`` return.

    A wrong answer and any exception but an ``EnginehouseError`` become ``PluginFailed``, which names the object's type
    and plugin, but nothing of the exception except its class.
    """

    def __init__(self, plugin: PluginId, unguarded: Any, methods: Methods) -> None:
        self._plugin = plugin
        self._methods = methods
        self.unguarded = unguarded

    def __getattr__(self, name: str) -> Any:
        """Called once for each name, because the attribute exists from then on."""
        value = getattr(self.unguarded, name)
        if (declared := self._methods.get(name)) is not None:
            if iscoroutinefunction(declared):
                value = partial(ask, self._plugin, declared, value)
            else:
                value = partial(_call, self._plugin, _returned_by(declared), value)
        setattr(self, name, value)
        return value
