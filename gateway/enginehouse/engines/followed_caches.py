"""The prefix caches of all engines that publish events, and where launched engines publish them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.aio.timeouts import run_within
from enginehouse.config.schema import Config, KvEventSettings
from enginehouse.domain.errors import ConfigError, EnginehouseError
from enginehouse.domain.plugin_id import PluginId
from enginehouse.engines.state_file import state_folder
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.drivers import EngineClient, SupportsCacheEvents
from enginehouse.interfaces.engine_caches import CacheFollower, PromptTokens
from enginehouse.telemetry.plugin_failures import log_plugin_failure

_log = logging.getLogger(__name__)

_PATIENCE_S: Final = 30.0
_LONGEST: Final = 100
"""Unix sockets have paths of at most 107 bytes."""


def launched_events(gateway: str, backend: str) -> KvEventSettings:
    """The sockets of a managed ``backend`` of this gateway: files in its state folder, which others cannot open.

    Raises ``ConfigError`` if the folder's path is too long.
    """
    path = f"{state_folder(gateway)}/kv-{sha256(backend.encode()).hexdigest()[:12]}"
    if len(f"{path}-again".encode()) > _LONGEST:
        raise ConfigError(
            f"the path of a socket is too long: {path}",
            key="models.*.kv_events",
            remedy="name a shorter folder in ENGINEHOUSE_STATE_DIR",
        )
    return KvEventSettings(endpoint=f"ipc://{path}", replay=f"ipc://{path}-again")


def events_config(gateway: str, backend: str) -> str:
    """The ``--kv-events-config`` of vLLM and SGLang for these sockets."""
    events = launched_events(gateway, backend)
    config = {"enable_kv_cache_events": True, "publisher": "zmq"}
    return msgspec.json.encode({**config, "endpoint": events.endpoint, "replay_endpoint": events.replay}).decode()


class Published(NamedTuple):
    """Where an engine publishes its events, and the driver that follows them."""

    settings: KvEventSettings
    driver: SupportsCacheEvents


class CacheView:
    """The ``EngineCaches`` of one router: a reload may prepare another one that is never used."""

    def __init__(self, caches: FollowedCaches) -> None:
        self.listeners: list[Callable[[str, list[Any]], None]] = []
        self.listen = self.listeners.append
        self.follows, self.tokenize = caches.follows, caches.tokenize


class FollowedCaches:
    """Follows engines' caches for the router in force. ``client`` returns the means to ask the engine of a backend.

    An engine tokenizes one prompt at a time; others that come meanwhile are left out.
    """

    def __init__(self, client: Callable[[str], EngineClient]) -> None:
        self._client = client
        self._published: Mapping[str, Published] = {}
        self._followers: dict[str, CacheFollower] = {}
        self._view = CacheView(self)
        self._asked: set[str] = set()
        self._tasks = BackgroundTasks()

    def follow(self, published: Mapping[str, Published]) -> None:
        """Follow the caches of these backends, and no others. Needs a running event loop."""
        before, self._published = self._published, published
        for name in [*self._followers]:
            if published.get(name) != before[name]:
                with _logged(follower := self._followers.pop(name)):
                    follower.close()
        for name, (settings, driver) in published.items():
            if name not in self._followers:
                try:
                    self._followers[name] = driver.follow_cache(name, settings, partial(self._tell, name))
                except EnginehouseError as error:
                    _log.error("The prefix cache of '%s' is not followed: %s", name, error)

    def close(self) -> None:
        """Follow no cache any more."""
        self.follow({})
        self._tasks.cancel()

    def use(self, view: CacheView) -> None:
        """Tell the router with this ``view`` what happens from now on, and what engines still know of before."""
        self._view = view
        for follower in self._followers.values():
            with _logged(follower):
                follower.begin_anew()

    def follows(self, backend: str) -> bool:
        """Whether ``backend`` publishes events."""
        return backend in self._published

    def tokenize(self, backend: str, model: str, body: bytes, on_tokens: Callable[[PromptTokens], None]) -> None:
        """As in ``EngineCaches``."""
        if backend in self._published and backend not in self._asked:
            self._asked.add(backend)
            self._tasks.start(self._tokenize(backend, model, body, on_tokens))

    def figures(self) -> Sequence[Mapping[str, Any]]:
        """For ``/api/status``: whether each engine is connected and all its events are known; gaps in them."""
        rows = []
        for name, each in self._followers.items():
            with _logged(each):
                filled, lost = each.gaps
                row = {"backend": name, "connected": each.connected, "exact": each.exact}
                rows.append({**row, "gaps_filled": filled, "gaps_lost": lost})
        return rows

    async def _tokenize(self, backend: str, model: str, body: bytes, on_tokens: Callable[[PromptTokens], None]) -> None:
        try:
            question = self._published[backend].driver.tokenize(self._client(backend), model, body)
            tokens = await run_within(_PATIENCE_S, question)
            if tokens is not None:
                on_tokens(tokens)
        except (EnginehouseError, KeyError, TimeoutError):
            _log.debug("Backend '%s' does not tokenize", backend)
        finally:
            self._asked.discard(backend)

    def _tell(self, backend: str, events: Sequence[Any]) -> None:
        try:
            for listener in self._view.listeners:
                listener(backend, list(events))
        except Exception:  # of a strategy
            _log.exception("A strategy failed to take the events of the prefix cache of '%s'", backend)


@contextmanager
def _logged(follower: CacheFollower) -> Iterator[None]:
    """Log a failure of the follower, which may be a plugin's: it must not end what other caches need."""
    try:
        yield
    except Exception as error:
        kind = type(follower)
        log_plugin_failure(PluginId("cache follower", f"{kind.__module__}.{kind.__qualname__}"), "failed", error)


def kv_events_of(config: Config, drivers: Mapping[str, DriverSupport]) -> Mapping[str, Published]:
    """The backends that publish events, also those that the gateway launches. ``drivers``: by type.

    Raises ``ConfigError`` for events that cannot be followed.
    """
    found = {
        name: _published(f"backends.{name}.kv_events", each.kv_events, drivers[each.driver])
        for name, each in config.backends.items()
        if each.kv_events is not None
    }
    for name, model in config.models.items():
        if model.kv_events:
            for backend, host in model.possible_backends(name).items():
                settings = _launched(config, name, backend, host)
                found[backend] = _published(f"models.{name}.kv_events", settings, drivers[model.driver])
    return found


def _published(key: str, settings: KvEventSettings, driver: DriverSupport) -> Published:
    if driver.cache_events is None:
        raise ConfigError("the driver cannot follow the events of its engines", key=key, remedy="remove it")
    try:
        driver.cache_events.check_cache_events(settings)
    except ConfigError as error:
        raise ConfigError(error.problem, key=key, remedy=error.remedy) from None
    return Published(settings, driver.cache_events)


def _launched(config: Config, model: str, backend: str, host: str) -> KvEventSettings:
    settings = config.hosts.get(host)
    if settings is not None and settings.launcher != "local":
        problem, remedy = f"its host '{host}' may be another machine", "remove it"
        raise ConfigError(problem, key=f"models.{model}.kv_events", remedy=remedy)
    return launched_events(config.server.name, backend)
