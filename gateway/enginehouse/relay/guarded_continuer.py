"""A continuer of another plugin, and what it keeps and gathers of streams: their failures stay those of one stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, cast, get_args

from enginehouse.domain.errors import RequestError
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.replica import Candidate
from enginehouse.domain.request_record import StreamTokens
from enginehouse.interfaces.continuers import (
    AnswerDiffers,
    ContinuationWay,
    Continuer,
    Gathering,
    KeptStream,
    NewShare,
    Question,
    Rest,
    StreamMove,
    Translator,
)
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.drivers import EngineClient, SupportsContinuation
from enginehouse.telemetry.plugin_failures import (
    GuardedObject,
    await_plugin,
    log_plugin_failure,
    plugin_errors,
    plugin_failed,
    wrong_result,
)

_OF_STREAM: Final[Mapping[str, object]] = {"tokens": StreamTokens(), "count": None, "saved": None, "release": None}
_OF_GATHERING: Final[Mapping[str, object]] = {"release": None}
_WAYS: Final = get_args(ContinuationWay)


class GuardedContinuer(Continuer):
    """Does as ``inner``. If that fails before a stream begins, the stream passes as if nobody kept it.

    Later failures raise ``PluginFailed``.
    """

    def __init__(self, plugin: PluginId, inner: Continuer) -> None:
        self._plugin = plugin
        self._inner = inner

    def keep(
        self,
        path: str,
        body: bytes,
        driver: SupportsContinuation,
        share: NewShare,
        protocol: Any = None,
        knows: Callable[[str], bool] | None = None,
    ) -> tuple[KeptStream | None, bytes]:
        try:
            kept, asked = self._inner.keep(path, body, driver, share, protocol, knows)
        except BaseException as error:
            log_plugin_failure(self._plugin, "failed in keep", error)
            return None, body
        if isinstance(asked, bytes) and (kept is None or isinstance(kept, KeptStream)):
            return self._guarded(kept) if kept is not None else None, asked
        log_plugin_failure(self._plugin, "returned neither a KeptStream nor None, and bytes, from keep")
        return None, body

    def rest(self, kept: KeptStream, rule: str) -> Rest:
        with plugin_errors(self._plugin):
            found = self._inner.rest(_own(kept), rule)
        if not isinstance(found, Rest):
            raise wrong_result(self._plugin, "returned no Rest from rest")
        return _GuardedRest(self._plugin, found)

    async def move(self, kept: KeptStream, move: StreamMove) -> None:
        guarded = cast("StreamMove", _GuardedMove(self._plugin, move))
        await await_plugin(self._plugin, self._inner.move, _own(kept), guarded)

    def restore(
        self, path: str, saved: bytes, drivers: Mapping[str, DriverSupport], share: NewShare
    ) -> tuple[KeptStream, str]:
        with plugin_errors(self._plugin):
            kept, model = self._inner.restore(path, saved, drivers, share)
        if not (isinstance(kept, KeptStream) and isinstance(model, str)):
            raise wrong_result(self._plugin, "returned no KeptStream and model from restore")
        return self._guarded(kept), model

    def gathered(self, path: str, body: bytes, share: NewShare) -> Gathering | None:
        try:
            found = self._inner.gathered(path, body, share)
        except BaseException as error:
            log_plugin_failure(self._plugin, "failed in gathered", error)
            return None
        if not isinstance(found, Gathering):
            return None
        return cast("Gathering", GuardedObject(self._plugin, found, _OF_GATHERING))

    def _guarded(self, kept: KeptStream) -> KeptStream:
        otherwise = {**_OF_STREAM, "why_not_movable": f"the {self._plugin} failed"}
        return cast("KeptStream", GuardedObject(self._plugin, kept, otherwise))


def _own(kept: KeptStream) -> KeptStream:
    """The plugin's object of a stream, which it has kept itself."""
    own: KeptStream = vars(kept)["own"]
    return own


class _GuardedRest(Rest):
    """Does as ``own``, which is a plugin's."""

    def __init__(self, plugin: PluginId, own: Rest) -> None:
        self._plugin = plugin
        self._own = own

    async def ask(self, candidate: Candidate, driver: SupportsContinuation, engine: EngineClient) -> Question:
        return await _asked(self._plugin, partial(self._own.ask, candidate, driver, engine))


class _GuardedMove:
    """The ``move`` that a plugin carries out, whose question for the rest is its own."""

    def __init__(self, plugin: PluginId, move: StreamMove) -> None:
        self._plugin = plugin
        self._move = move

    def __getattr__(self, name: str) -> Any:
        return getattr(self._move, name)

    async def cut(self, ask: Callable[[], Awaitable[Question]]) -> float:
        return await self._move.cut(partial(_asked, self._plugin, ask))


async def _asked(plugin: PluginId, ask: Callable[[], Awaitable[Question]]) -> Question:
    """The question that the plugin asks, whose translator is guarded."""
    found: Any = await await_plugin(plugin, ask)
    match found:
        case Question(str(), bytes(), way, None) if way in _WAYS:
            return found
        case Question(str(), bytes(), way, Translator(path=str(), tokens=int()) as own) if way in _WAYS:
            return found._replace(translator=_GuardedTranslator(plugin, own))
    raise wrong_result(plugin, "returned no Question from ask")


class _GuardedTranslator(Translator):
    """Does as ``own``, which is a plugin's."""

    def __init__(self, plugin: PluginId, own: Translator) -> None:
        self._plugin = plugin
        self._own = own
        self.path, self.tokens = own.path, own.tokens

    def translate(self, piece: bytes) -> Iterator[bytes]:
        try:
            for event in self._own.translate(piece):
                if not isinstance(event, bytes):
                    raise wrong_result(self._plugin, "returned no bytes from translate")
                yield event
        except (AnswerDiffers, ValueError, RecursionError, RequestError, GeneratorExit):
            raise
        except BaseException as error:
            raise plugin_failed(self._plugin, error) from error
        finally:
            self.has_begun = self._own.has_begun is True
