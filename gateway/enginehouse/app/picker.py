"""The gateway's decisions, for a proxy that moves the bytes itself."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from starlette.types import ASGIApp

from enginehouse.aio.serving import SERVING
from enginehouse.app.gateway import Gateway
from enginehouse.app.reload import ConfigSource
from enginehouse.config.load_config import LoadedConfig, load_config_or_embedded
from enginehouse.config.secret_variables import secret_values
from enginehouse.domain.errors import ConfigError, NoHealthyBackend, RequestError
from enginehouse.domain.replica import Health
from enginehouse.domain.request import Headers
from enginehouse.http.client_connection import ClientConnection
from enginehouse.http.cross_origin import Cors
from enginehouse.http.server import HttpServer
from enginehouse.interfaces.authenticators import AdmittedCaller
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.relay.pick import Pick, PickClient, is_among
from enginehouse.telemetry.logs import configure_logs

if TYPE_CHECKING:
    from uvicorn.server import ServerState

_log = logging.getLogger(__name__)


class Picker:
    """A gateway that decides where requests go, and leaves their bytes to a proxy.

    It probes, discovers, launches, queues, limits and counts as ``serve`` does. Make it from a configuration file, or
    from the one that ``serve`` would find; then ``open`` it inside a running loop. Raises ``ConfigError`` or
    ``PluginError``.
    """

    def __init__(self, file: Path | None = None) -> None:
        def read() -> LoadedConfig:
            loaded = load_config_or_embedded(file, os.environ)
            if loaded.config.guards:
                remedy = "let the gateway itself relay the requests, or remove the guards"
                with loaded.naming_file():
                    raise ConfigError("guards see no request that a proxy carries", key="guards", remedy=remedy)
            return loaded

        loaded = read()
        log = configure_logs(loaded.config.telemetry, secrets=secret_values(loaded.config))
        for warning in loaded.warnings:
            _log.warning("%s", warning)
        with loaded.naming_file():
            registry = load_plugins(loaded.config.plugins).registry
            self._gateway = Gateway(loaded.config, registry, log, ConfigSource(read, loaded.file))
        self._proxy = AdmittedCaller("proxy", gateway=True)
        self._http: HttpServer | None = None
        self.is_ready = False

    @property
    def application(self) -> ASGIApp:
        """The pages of ``serve``; engines' endpoints are served by ``protocol``."""
        return self._gateway.application

    def protocol(self, config: object, server_state: ServerState, *_: object, **__: object) -> asyncio.Protocol:
        """A client's connection to what ``serve`` serves, for uvicorn's ``http``."""
        if self._http is None:
            path = self._gateway.path
            cors = Cors(path.config.server.cors)
            state = server_state.connections, server_state.tasks
            self._http = HttpServer(self.application, path.admission, path.paths, cors, *state)
        return cast("asyncio.Protocol", ClientConnection(self._http))

    @property
    def urls(self) -> Sequence[str]:
        """The addresses of all backends that run now."""
        upstreams = self._gateway.relay.context.upstreams
        return [each.pool.origin.url for each in upstreams.values() if each.pool.origin.url]

    @property
    def drain_delay(self) -> float:
        """How long requests are served after ``leave`` (``server.drain_delay``), in seconds."""
        return self._gateway.config.server.drain_delay

    @property
    def max_body(self) -> int:
        """The most bytes of a request's body (``server.max_body``)."""
        return self._gateway.admission.max_body

    def too_large(self) -> RequestError:
        """The error for a body of more than ``max_body``."""
        return self._gateway.admission.too_large()

    async def open(self) -> None:
        """Start. ``is_ready`` from when every remote backend was probed once."""
        self._gateway.build_hosts()
        SERVING.is_stopping = lambda: False
        await self._gateway.start()
        await self._gateway.settled()
        self.is_ready = True

    def leave(self) -> None:
        """Say from now on that this gateway leaves. Requests are still served."""
        self.is_ready = False
        self._gateway.health.leaving = True

    async def close(self) -> None:
        """Refuse new requests and those that wait, and stop."""
        self.is_ready = False
        await self._gateway.stop()
        SERVING.is_stopping = None

    def reload(self) -> None:
        """Read the configuration again, as ``serve`` does on SIGHUP."""
        self._gateway.reloader.start_reload("SIGHUP")

    def pick(
        self,
        client: PickClient,
        path: str,
        headers: Headers,
        fallbacks: int = 0,
        address: str = "",
        on_behalf: tuple[str, int] | None = None,
    ) -> Pick:
        """A new request: call its ``begin`` with the body, and ``client`` learns where it goes, now or later.

        It may be refused at once, because of its ``headers``, which have lower-case names. ``fallbacks``: how many
        further addresses are wanted. ``address``: the client's. ``on_behalf``: the caller and its priority, as the
        proxy tells them; they hold if no keys are set, and for a key with ``gateway``.
        """
        gateway = self._gateway
        pick = gateway.relay.open_pick(client, path, headers, fallbacks, address)
        try:
            caller = gateway.admission.admit(headers)
            front = self._proxy if caller is None else caller
            if on_behalf is not None and front.gateway:
                caller = front.on_behalf(*on_behalf)
            pick.admitted(caller)
        except RequestError as error:
            pick.fail(error)
        return pick

    def pick_any(self, headers: Headers, among: Collection[str] | None = None) -> tuple[str, int]:
        """The address of an engine for a request that names no model: the healthy one with the fewest requests.

        Raises ``RequestError`` if there is none, or if the request is refused because of its ``headers``.
        """
        self._gateway.admission.admit(headers)
        context = self._gateway.relay.context
        healthy = {
            context.upstreams[each.backend].address: each.load.pending
            for row in context.fleet.snapshot.models.values()
            for each in row
            if each.health is Health.HEALTHY and not each.draining and each.backend in context.upstreams
        }
        may = [at for at in healthy if at[0] and (among is None or is_among(at, among))]
        if not may:
            raise NoHealthyBackend("*")
        return min(may, key=healthy.__getitem__)
