"""The prefix caches of all engines that publish events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import accumulate
from typing import Any, Final

import msgspec

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.config.kv_events import KvEventSettings
from enginehouse.config.schema import Config
from enginehouse.domain.cache_events import CacheEvent, PromptTokens
from enginehouse.domain.errors import ConfigError, RequestError
from enginehouse.engines.kv_events.follower import CacheFollower
from enginehouse.interfaces.drivers import EngineClient

_log = logging.getLogger(__name__)
_FIELDS: Final = (
    *("prompt", "messages", "tools", "chat_template", "chat_template_kwargs"),
    *("add_generation_prompt", "continue_final_message", "add_special_tokens"),
)
"""The fields of a request that decide the tokens of its prompt."""
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class _Tokenized(msgspec.Struct):
    tokens: list[int] = []
    token_strs: list[str] | None = None


class CacheView:
    """The ``EngineCaches`` of one router: a reload may prepare another one that is never used."""

    def __init__(self, caches: FollowedCaches) -> None:
        self.listeners: list[Callable[[str, list[CacheEvent]], None]] = []
        self._caches = caches

    def follows(self, backend: str) -> bool:
        return self._caches.follows(backend)

    def listen(self, on_events: Callable[[str, list[CacheEvent]], None]) -> None:
        self.listeners.append(on_events)

    def tokenize(self, backend: str, model: str, body: bytes, on_tokens: Callable[[PromptTokens], None]) -> None:
        self._caches.tokenize(backend, model, body, on_tokens)


class FollowedCaches:
    """Follows engines' caches for the router in force. ``client`` returns the means to ask the engine of a backend.

    An engine tokenizes one prompt at a time; others that come meanwhile are left out.
    """

    def __init__(self, client: Callable[[str], EngineClient]) -> None:
        self._client = client
        self._settings: Mapping[str, KvEventSettings] = {}
        self._followers: dict[str, CacheFollower] = {}
        self._view = CacheView(self)
        self._asked: set[str] = set()
        self._tasks = BackgroundTasks()

    def follow(self, settings: Mapping[str, KvEventSettings]) -> None:
        """Follow the caches of these backends, and no others. Needs a running event loop."""
        for name in [*self._followers]:
            if settings.get(name) != self._settings.get(name):
                self._followers.pop(name).close()
        self._settings = settings
        for name, each in settings.items():
            if name not in self._followers:
                self._followers[name] = follower = CacheFollower(name, each, partial(self._tell, name))
                follower.start()

    def close(self) -> None:
        """Follow no cache any more."""
        self.follow({})
        self._tasks.cancel()

    def use(self, view: CacheView) -> None:
        """Tell the router with this ``view`` what happens from now on, and what engines still know of before."""
        self._view = view
        for follower in self._followers.values():
            follower.begin_anew()

    def follows(self, backend: str) -> bool:
        """Whether ``backend`` publishes events."""
        return backend in self._settings

    def tokenize(self, backend: str, model: str, body: bytes, on_tokens: Callable[[PromptTokens], None]) -> None:
        """As in ``EngineCaches``."""
        if backend not in self._asked:
            self._asked.add(backend)
            self._tasks.start(self._tokenize(backend, model, body, on_tokens))

    def figures(self) -> Sequence[Mapping[str, Any]]:
        """For ``/api/status``: whether each engine is connected and all its events are known; gaps in them."""
        return [
            {
                "backend": name,
                "connected": each.connected,
                "exact": each.stream.exact,
                "gaps_filled": each.stream.filled,
                "gaps_lost": each.stream.lost,
            }
            for name, each in self._followers.items()
        ]

    async def _tokenize(self, backend: str, model: str, body: bytes, on_tokens: Callable[[PromptTokens], None]) -> None:
        try:
            fields = _fields(body)
            asked = {name: fields[name] for name in _FIELDS if name in fields}
            question = msgspec.json.encode({**asked, "model": model, "return_token_strs": True})
            response = await self._client(backend).request("POST", "/tokenize", question)
            if response.status == 200:
                found = msgspec.json.decode(response.body, type=_Tokenized)
                on_tokens(PromptTokens(found.tokens, list(accumulate(map(len, found.token_strs or ())))))
        except (RequestError, msgspec.MsgspecError, KeyError):
            _log.debug("Backend '%s' does not tokenize", backend)
        finally:
            self._asked.discard(backend)

    def _tell(self, backend: str, events: Sequence[CacheEvent]) -> None:
        try:
            for listener in self._view.listeners:
                listener(backend, list(events))
        except Exception:  # of a strategy
            _log.exception("A strategy failed to take the events of the prefix cache of '%s'", backend)


def kv_events_of(config: Config) -> Mapping[str, KvEventSettings]:
    """The backends that publish events. Raises ``ConfigError`` if the package to follow them is missing."""
    found = {name: each.kv_events for name, each in config.backends.items() if each.kv_events is not None}
    for name in found:
        if find_spec("zmq") is None:
            raise ConfigError(
                "needs the package pyzmq",
                key=f"backends.{name}.kv_events",
                remedy="pip install 'enginehouse[kv-events]'",
            )
    return found
