"""What a continuer of other plugins keeps or gathers of a stream, whose failures stay those of this stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.replica import Candidate
from enginehouse.domain.tokens import StreamTokens
from enginehouse.interfaces.kept_streams import Gathering, KeptStream
from enginehouse.telemetry.plugin_failures import log_plugin_failure, plugin_errors

T = TypeVar("T")


def _forwarded(name: str) -> Any:
    """The attribute of the plugin's own object."""
    return property(lambda self: getattr(self.own, name), lambda self, value: setattr(self.own, name, value))


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

    def __init__(self, plugin: PluginId, own: KeptStream) -> None:
        self._plugin = plugin
        self.own = own

    def take(self, piece: bytes) -> bytes:
        with plugin_errors(self._plugin):
            return self.own.take(piece)

    def read(self) -> None:
        with plugin_errors(self._plugin):
            self.own.read()

    def ending(self) -> bytes | None:
        with plugin_errors(self._plugin):
            return self.own.ending()

    def may_go_on(self) -> bool:
        with plugin_errors(self._plugin):
            return self.own.may_go_on()

    def count(self) -> None:
        _asked(self._plugin, self.own.count, None)

    def release(self) -> None:
        _asked(self._plugin, self.own.release, None)

    @property
    def prompt_tokens(self) -> int | None:
        return _asked(self._plugin, lambda: self.own.prompt_tokens, None)

    def tokens(self) -> StreamTokens:
        return _asked(self._plugin, self.own.tokens, StreamTokens(), StreamTokens)

    def why_not_movable(self) -> str:
        return _asked(self._plugin, self.own.why_not_movable, f"the {self._plugin} failed", str)

    def saved(self, candidate: Candidate) -> bytes | None:
        return _asked(self._plugin, lambda: self.own.saved(candidate), None)


class GuardedGathering(Gathering):
    """Does as ``own``, the plugin's object. All but ``release`` raises ``PluginFailed`` if it fails."""

    why = _forwarded("why")
    error = _forwarded("error")

    def __init__(self, plugin: PluginId, own: Gathering) -> None:
        self._plugin = plugin
        self.own = own

    def as_stream(self, body: bytes) -> bytes:
        with plugin_errors(self._plugin):
            return self.own.as_stream(body)

    def add(self, piece: bytes) -> None:
        with plugin_errors(self._plugin):
            self.own.add(piece)

    def read(self) -> None:
        with plugin_errors(self._plugin):
            self.own.read()

    def body(self) -> bytes:
        with plugin_errors(self._plugin):
            return self.own.body()

    def release(self) -> None:
        _asked(self._plugin, self.own.release, None)


def _asked(plugin: PluginId, method: Callable[[], T], otherwise: T, returns: type | None = None) -> T:
    """What ``method`` returns; ``otherwise``, if it raises or returns something else than ``returns``."""
    try:
        found = method()
    except Exception as error:
        log_plugin_failure(plugin, "failed with what it keeps of a stream", error)
        return otherwise
    return found if returns is None or isinstance(found, returns) else otherwise
