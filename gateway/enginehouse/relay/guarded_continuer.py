"""A continuer of other plugins, and what it keeps and gathers of streams: their failures stay those of one stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.request_record import StreamTokens
from enginehouse.interfaces.continuers import Continuer, Gathering, KeptStream, NewShare, Question, Rest, StreamMove
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.drivers import SupportsContinuation
from enginehouse.interfaces.protocols import Protocol
from enginehouse.telemetry.plugin_failures import await_plugin, log_plugin_failure, plugin_errors, wrong_result


def _forwarded(name: str) -> Any:
    """The attribute of the plugin's own object."""
    return property(lambda self: getattr(self.own, name), lambda self, value: setattr(self.own, name, value))


def _failing(name: str) -> Any:
    """The method of the plugin's own object, whose failure raises ``PluginFailed``."""

    def method(self: Any, *facts: object) -> object:
        with plugin_errors(self.plugin):
            return getattr(self.own, name)(*facts)

    return method


def _asked(name: str, otherwise: object = None, returns: type = object) -> Any:
    """The method of the plugin's own object; it returns ``otherwise`` if that fails or does not return ``returns``."""
    return lambda self, *facts: _answer(self.plugin, lambda: getattr(self.own, name)(*facts), otherwise, returns)


def _answer(plugin: PluginId, ask: Callable[[], Any], otherwise: object, returns: type = object) -> Any:
    try:
        found = ask()
    except Exception as error:
        log_plugin_failure(plugin, "failed with what it keeps of a stream", error)
        return otherwise
    return found if isinstance(found, returns) else otherwise


class GuardedKeptStream(KeptStream):
    """Does as ``own``, the plugin's object.

    What fails while the stream passes or breaks raises ``PluginFailed``. What others ask of it, and its end, cannot
    fail: the stream then stays where it is, and nothing is known of it.
    """

    pieces = _forwarded("pieces")
    most = _forwarded("most")
    cut = _forwarded("cut")
    meter = _forwarded("meter")
    ended = _forwarded("ended")
    take = _failing("take")
    read = _failing("read")
    ending = _failing("ending")
    may_go_on = _failing("may_go_on")
    count = _asked("count")
    release = _asked("release")
    tokens = _asked("tokens", StreamTokens(), StreamTokens)
    saved = _asked("saved")
    prompt_tokens = property(lambda self: _answer(self.plugin, lambda: self.own.prompt_tokens, None))

    def __init__(self, plugin: PluginId, own: KeptStream) -> None:
        self.plugin = plugin
        self.own = own

    def why_not_movable(self) -> str:
        why: str = _answer(self.plugin, self.own.why_not_movable, f"the {self.plugin} failed", str)
        return why


class GuardedGathering(Gathering):
    """Does as ``own``, the plugin's object. All but ``release`` raises ``PluginFailed`` if it fails."""

    why = _forwarded("why")
    error = _forwarded("error")
    as_stream = _failing("as_stream")
    add = _failing("add")
    read = _failing("read")
    body = _failing("body")
    release = _asked("release")

    def __init__(self, plugin: PluginId, own: Gathering) -> None:
        self.plugin = plugin
        self.own = own


class GuardedContinuer(Continuer):
    """Does as ``inner``. If that fails before a stream begins, the stream passes as if nobody kept it.

    Later failures raise ``PluginFailed``.
    """

    def __init__(self, plugin: PluginId, inner: Continuer) -> None:
        self._plugin = plugin
        self._inner = inner

    def keep(
        self, path: str, body: bytes, driver: SupportsContinuation, share: NewShare
    ) -> tuple[KeptStream | None, bytes]:
        try:
            kept, asked = self._inner.keep(path, body, driver, share)
        except Exception as error:
            log_plugin_failure(self._plugin, "failed in keep", error)
            return None, body
        if isinstance(asked, bytes) and (kept is None or isinstance(kept, KeptStream)):
            return self._guarded(kept), asked
        log_plugin_failure(self._plugin, "returned neither a KeptStream nor None, and bytes, from keep")
        return None, body

    def keep_typed(
        self,
        path: str,
        body: bytes,
        driver: SupportsContinuation,
        share: NewShare,
        protocol: Protocol,
        knows: Callable[[str], bool],
    ) -> KeptStream | None:
        try:
            kept = self._inner.keep_typed(path, body, driver, share, protocol, knows)
        except Exception as error:
            log_plugin_failure(self._plugin, "failed in keep_typed", error)
            return None
        return self._guarded(kept)

    def rest(self, kept: KeptStream, rule: str) -> Rest:
        with plugin_errors(self._plugin):
            found = self._inner.rest(_own(kept), rule)
        if not isinstance(found, Rest):
            raise wrong_result(self._plugin, "returned no Rest from rest")
        return found

    async def move(self, move: StreamMove) -> None:
        await await_plugin(self._plugin, self._inner.move, _OwnMove(move))

    def restore(
        self, path: str, saved: bytes, drivers: Mapping[str, DriverSupport], share: NewShare
    ) -> tuple[KeptStream, str]:
        with plugin_errors(self._plugin):
            kept, model = self._inner.restore(path, saved, drivers, share)
        if not (isinstance(kept, KeptStream) and isinstance(model, str)):
            raise wrong_result(self._plugin, "returned no KeptStream and model from restore")
        return GuardedKeptStream(self._plugin, kept), model

    def gathered(self, path: str, body: bytes, share: NewShare) -> Gathering | None:
        try:
            found = self._inner.gathered(path, body, share)
        except Exception as error:
            log_plugin_failure(self._plugin, "failed in gathered", error)
            return None
        return GuardedGathering(self._plugin, found) if isinstance(found, Gathering) else None

    def _guarded(self, kept: object) -> KeptStream | None:
        return GuardedKeptStream(self._plugin, kept) if isinstance(kept, KeptStream) else None


class _OwnMove:
    """A ``StreamMove`` whose stream is the plugin's own object."""

    def __init__(self, move: StreamMove) -> None:
        self._move = move

    def __getattr__(self, name: str) -> Any:
        return getattr(self._move, name)

    def kept(self) -> KeptStream:
        return _own(self._move.kept())

    async def cut(self, ask: Callable[[KeptStream], Awaitable[Question]]) -> float:
        return await self._move.cut(lambda kept: ask(_own(kept)))


def _own(kept: KeptStream) -> KeptStream:
    """The plugin's object of a stream, which it has kept itself."""
    assert isinstance(kept, GuardedKeptStream)
    return kept.own
