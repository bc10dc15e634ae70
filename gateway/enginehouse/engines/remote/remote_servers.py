"""The servers of one host that load models themselves, and the replicas on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from enginehouse.config.schema import ModelSettings
from enginehouse.domain.errors import UpstreamError
from enginehouse.domain.replica import replica_name
from enginehouse.engines.host_context import HostContext
from enginehouse.engines.managed_replica import ManagedReplica
from enginehouse.engines.remote.remote_server import RemoteServer
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.drivers import EventClient, ServedModel
from enginehouse.interfaces.launchers import EngineProcess
from enginehouse.interfaces.swappers import HostedReplica
from enginehouse.relay.upstream.client import Client
from enginehouse.scheduling.scheduling_rules import hosted_replica


class RemoteServers:
    """Keeps a ``RemoteServer`` for each such backend of the host ``name``.

    ``on_found`` gets the replica of a model that a server has loaded by itself.
    """

    def __init__(self, name: str, context: HostContext, on_found: Callable[[str, EngineProcess], None]) -> None:
        self._name = name
        self._context = context
        self._on_found = on_found
        self._open = False
        self._servers: dict[str, RemoteServer] = {}
        self.reconfigure(context)

    def begin(self) -> None:
        """Begin to ask the servers for their loaded models."""
        self._open = True
        for server in self._servers.values():
            server.begin()

    def close(self) -> None:
        for server in self._servers.values():
            server.close()

    def discover(self, backend: str, served: Sequence[ServedModel]) -> bool:
        """Take the models that a backend lists, or of these the configured ones; whether those to load have changed."""
        server, wanted = self._servers.get(backend), self._context.config.backends[backend].models
        if server is None:
            return False
        if wanted is not None:
            names = {server.loading.full_name(name): name for name in wanted}
            served = [replace(each, name=names[each.name]) for each in served if each.name in names]
        changed = server.discover(served)
        self._context.fleet.set_proxied(backend, server.proxied)
        return changed

    def replicas(self, context: HostContext) -> dict[str, ManagedReplica]:
        """The replicas of the servers that ``context`` keeps, by name."""
        return {
            replica_name(model, name): ManagedReplica(
                name, model, context.config.models.get(model, ModelSettings()), server.driver, server=server
            )
            for name, server in self._servers.items()
            if _is_same(server, context, self._name)
            for model in server.models
        }

    def facts(self, context: HostContext) -> dict[str, HostedReplica]:
        """The same replicas, as schedulers and swappers see them."""
        config = context.config
        return {
            replica: hosted_replica(
                config,
                managed.model_name,
                managed.backend,
                managed.model,
                managed.model.concurrency or config.backends[managed.backend].concurrency,
            )
            for replica, managed in self.replicas(context).items()
        }

    def estimates(self) -> Mapping[str, int | None]:
        """The bytes that each replica will probably take, by its server."""
        return {
            replica_name(model, name): memory
            for name, server in self._servers.items()
            for model, memory in server.models.items()
        }

    def reconfigure(self, context: HostContext) -> None:
        """Use another configuration. A backend with another address or driver is another server."""
        before, self._context = self._servers, context
        self._servers = {}
        for name, backend in context.loading(self._name).items():
            known = before.pop(name, None)
            if known is None or not _is_same(known, context, self._name):
                if known is not None:
                    known.close()
                known = self._server(name, backend.url, context.drivers[backend.driver])
            self._servers[name] = known
        for removed in before.values():
            removed.close()

    def _server(self, name: str, url: str, driver: DriverSupport) -> RemoteServer:
        connect, interval = partial(self._connect, name), self._context.config.checks.interval
        server = RemoteServer(name, url, driver, connect, interval, partial(self._note_found, name))
        if self._open:
            server.begin()
        return server

    def _connect(self, name: str, timeout: float) -> EventClient:
        if (upstream := self._context.upstreams.get(name)) is None:
            raise UpstreamError("its backend was removed from the configuration")
        return Client(upstream, timeout)

    def _note_found(self, name: str, model: str, process: EngineProcess) -> None:
        self._on_found(replica_name(model, name), process)


def _is_same(server: RemoteServer, context: HostContext, host: str) -> bool:
    backend = context.loading(host).get(server.name)
    return backend is not None and (backend.url, context.drivers[backend.driver]) == (server.url, server.driver)
