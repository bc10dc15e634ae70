"""The servers of one host that load models themselves, and the replicas on them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from enginehouse.config.schema import ModelSettings
from enginehouse.domain.errors import UpstreamError
from enginehouse.domain.replica import replica_name
from enginehouse.engines.host_context import HostContext, ManagedReplica
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.drivers import EventClient, ServedModel
from enginehouse.interfaces.launchers import EngineProcess
from enginehouse.interfaces.model_servers import LoadingBackend, ModelServer
from enginehouse.relay.upstream.client import Client

MakeServer = Callable[[LoadingBackend], "ModelServer | None"]
"""Makes what loads the models of a backend; ``None`` if that fails, which is logged."""


class _ServedBackend:
    """One backend, and what loads its ``models``: by name, with an estimate of their memory where there is one."""

    server: ModelServer

    def __init__(self, url: str, driver: DriverSupport) -> None:
        self.url = url
        self.driver = driver
        self.models: Mapping[str, int | None] = {}


class ModelServers:
    """Keeps a ``ModelServer`` for each such backend of the host ``name``, once a service can make them.

    ``on_found`` gets the replica of a model that a server has loaded by itself.
    """

    def __init__(self, name: str, context: HostContext, on_found: Callable[[str, EngineProcess], None]) -> None:
        self._name = name
        self._context = context
        self._on_found = on_found
        self._make: MakeServer | None = None
        self._served: dict[str, _ServedBackend] = {}

    @property
    def backends(self) -> Collection[str]:
        """Those whose models are loaded in the queue of the host."""
        return self._served.keys()

    def load_with(self, make: MakeServer) -> None:
        """Have backends load their models from now on."""
        self._make = make
        self.reconfigure(self._context)

    def close(self) -> None:
        for each in self._served.values():
            each.server.close()

    def discover(self, backend: str, served: Sequence[ServedModel]) -> bool:
        """Take the models that a backend lists, or of these the configured ones; whether those to load have changed."""
        known, wanted = self._served.get(backend), self._context.config.backends[backend].models
        if known is None:
            return False
        if wanted is not None:
            loading = self._context.drivers[self._context.config.backends[backend].driver].loading
            assert loading is not None
            names = {loading.full_name(name): name for name in wanted}
            served = [replace(each, name=names[each.name]) for each in served if each.name in names]
        before, known.models = known.models, {each.name: each.memory for each in served if not each.proxied}
        known.server.discover(known.models)
        self._context.fleet.set_proxied(backend, frozenset(each.name for each in served if each.proxied))
        return before != known.models

    def replicas(self, context: HostContext) -> dict[str, ManagedReplica]:
        """The replicas of the servers that ``context`` keeps, by name."""
        return {
            replica_name(model, name): ManagedReplica(
                name, model, context.config.models.get(model, ModelSettings()), each.driver, server=each.server
            )
            for name, each in self._served.items()
            if self._is_kept(name, each, context)
            for model in each.models
        }

    def estimates(self) -> Mapping[str, int | None]:
        """The bytes that each replica will probably take, by its server."""
        served = self._served.items()
        return {replica_name(model, name): size for name, each in served for model, size in each.models.items()}

    def reconfigure(self, context: HostContext) -> None:
        """Use another configuration. A backend with another address or driver is another server."""
        before, self._context = self._served, context
        self._served = {}
        for name, backend in context.loading(self._name).items():
            known = before.get(name)
            if known is not None and self._is_kept(name, known, context):
                self._served[name] = before.pop(name)
            elif (made := self._made(name, backend.url, context.drivers[backend.driver])) is not None:
                self._served[name] = made
        for removed in before.values():
            removed.server.close()

    def _made(self, name: str, url: str, driver: DriverSupport) -> _ServedBackend | None:
        if self._make is None or driver.loading is None:
            return None
        served = _ServedBackend(url, driver)
        connect, interval = partial(self._connect, name, served), self._context.config.checks.interval

        def on_found(model: str, process: EngineProcess) -> None:
            self._on_found(replica_name(model, name), process)

        server = self._make(LoadingBackend(name, url, driver.loading, connect, interval, on_found))
        if server is None:
            return None
        served.server = server
        return served

    def _is_kept(self, name: str, served: _ServedBackend, context: HostContext) -> bool:
        backend = context.loading(self._name).get(name)
        return backend is not None and (backend.url, context.drivers[backend.driver]) == (served.url, served.driver)

    def _connect(self, name: str, served: _ServedBackend, timeout: float) -> EventClient:
        if self._served.get(name) is not served:  # another server may have its name now
            raise UpstreamError("its backend was removed from the configuration")
        return Client(self._context.upstreams[name], timeout)
