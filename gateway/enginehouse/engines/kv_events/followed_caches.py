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
from enginehouse.config.managed import possible_backends
from enginehouse.config.schema import Config
from enginehouse.domain.cache_events import CacheEvent, PromptTokens
from enginehouse.domain.errors import ConfigError, RequestError
from enginehouse.engines.kv_events.follower import CacheFollower
from enginehouse.engines.kv_events.launched import launched_events
from enginehouse.engines.kv_events.ranks import RankedCache
from enginehouse.interfaces.drivers import EngineClient

_log = logging.getLogger(__name__)
_FIELDS: Final = (
    *("prompt", "messages", "tools", "chat_template", "chat_template_kwargs"),
    *("add_generation_prompt", "continue_final_message", "add_special_tokens"),
)
"""The fields of a request that decide the tokens of its prompt."""
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class _TokenizeAnswer(msgspec.Struct):
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
        self._followers: dict[str, Sequence[CacheFollower]] = {}
        self._ranked: dict[str, RankedCache] = {}
        self._view = CacheView(self)
        self._asked: set[str] = set()
        self._tasks = BackgroundTasks()

    def follow(self, settings: Mapping[str, KvEventSettings]) -> None:
        """Follow the caches of these backends, and no others. Needs a running event loop."""
        for name in [*self._followers]:
            if settings.get(name) != self._settings.get(name):
                for follower in self._followers.pop(name):
                    follower.close()
        self._settings = settings
        for name, each in settings.items():
            if name not in self._followers:
                self._follow(name, each)

    def close(self) -> None:
        """Follow no cache any more."""
        self.follow({})
        self._tasks.cancel()

    def use(self, view: CacheView) -> None:
        """Tell the router with this ``view`` what happens from now on, and what engines still know of before."""
        self._view = view
        for name, followers in self._followers.items():
            self._ranked[name] = RankedCache(len(followers))
            for follower in followers:
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
                "connected": all(each.connected for each in ranks),
                "exact": all(each.stream.exact for each in ranks),
                "gaps_filled": sum(each.stream.filled for each in ranks),
                "gaps_lost": sum(each.stream.lost for each in ranks),
            }
            for name, ranks in self._followers.items()
        ]

    def _follow(self, name: str, settings: KvEventSettings) -> None:
        ranks = range(settings.ranks)
        self._ranked[name] = RankedCache(len(ranks))
        self._followers[name] = [
            CacheFollower(name, settings.of_rank(rank), partial(self._tell, name, rank)) for rank in ranks
        ]
        for follower in self._followers[name]:
            follower.start()

    async def _tokenize(self, backend: str, model: str, body: bytes, on_tokens: Callable[[PromptTokens], None]) -> None:
        try:
            fields = _fields(body)
            asked = {name: fields[name] for name in _FIELDS if name in fields}
            question = msgspec.json.encode({**asked, "model": model, "return_token_strs": True})
            response = await self._client(backend).request("POST", "/tokenize", question)
            if response.status == 200:
                found = msgspec.json.decode(response.body, type=_TokenizeAnswer)
                on_tokens(PromptTokens(found.tokens, list(accumulate(map(len, found.token_strs or ())))))
        except (RequestError, msgspec.MsgspecError, KeyError):
            _log.debug("Backend '%s' does not tokenize", backend)
        finally:
            self._asked.discard(backend)

    def _tell(self, backend: str, rank: int, events: Sequence[CacheEvent]) -> None:
        if self._settings[backend].ranks > 1:
            events = [*self._ranked[backend].happened(rank, events)]
        try:
            for listener in self._view.listeners:
                listener(backend, list(events))
        except Exception:  # of a strategy
            _log.exception("A strategy failed to take the events of the prefix cache of '%s'", backend)


def kv_events_of(config: Config) -> Mapping[str, KvEventSettings]:
    """The backends that publish events, also those that the gateway launches.

    Raises ``ConfigError`` for sockets that cannot be followed, or if the package to follow them is missing.
    """
    found = {name: each.kv_events for name, each in config.backends.items() if each.kv_events is not None}
    for name, events in found.items():
        if events.ranks > 1 and not events.endpoint.startswith("tcp:"):
            key, remedy = f"backends.{name}.kv_events", "give a tcp: endpoint"
            raise ConfigError("ranks have TCP ports of their own", key=key, remedy=remedy)
    for name, model in config.models.items():
        if model.kv_events:
            for backend, host in possible_backends(name, model).items():
                found[backend] = _launched(config, name, backend, host)
    if found and find_spec("zmq") is None:
        name = next(iter(found))
        table = "backends" if name in config.backends else "models"
        remedy = "pip install 'enginehouse[kv-events]'"
        raise ConfigError("needs the package pyzmq", key=f"{table}.{name}.kv_events", remedy=remedy)
    return found


def _launched(config: Config, model: str, backend: str, host: str) -> KvEventSettings:
    settings = config.hosts.get(host)
    if settings is not None and settings.launcher != "local":
        problem, remedy = f"its host '{host}' may be another machine", "remove it"
        raise ConfigError(problem, key=f"models.{model}.kv_events", remedy=remedy)
    return launched_events(config.server.name, backend)
