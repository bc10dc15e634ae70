"""A continuer of other plugins, whose failures stay its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from enginehouse.domain.plugin_id import PluginId
from enginehouse.interfaces.continuers import Continuer
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.drivers import SupportsContinuation
from enginehouse.interfaces.kept_streams import Gathering, KeptStream, NewShare, Question, Rest
from enginehouse.interfaces.moving_streams import StreamMove
from enginehouse.interfaces.protocols import Protocol
from enginehouse.relay.guarded_kept_stream import GuardedGathering, GuardedKeptStream
from enginehouse.telemetry.plugin_failures import await_plugin, log_plugin_failure, plugin_errors, wrong_result


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
