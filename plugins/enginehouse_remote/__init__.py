"""Servers that load models themselves: LM Studio, Ollama, the router of llama.cpp, and others whose drivers can load.

::

    server            asks one server which models it has loaded, loads them and unloads them
"""

from __future__ import annotations

from enginehouse import Register, Service, hookimpl
from enginehouse.backends import LoadingBackend
from enginehouse.services import ServiceGateway
from enginehouse_remote.server import RemoteServer


class RemoteLoads(Service):
    """Has the gateway queue, load and unload the models of such servers as those of engines that it launches."""

    table = "backends"

    def start(self, gateway: ServiceGateway) -> None:
        gateway.models.load_with(_begun)


def _begun(backend: LoadingBackend) -> RemoteServer:
    server = RemoteServer(backend)
    server.begin()
    return server


@hookimpl
def register_services(register: Register[Service]) -> None:
    """Register the service that loads models on their servers."""
    register("remote", RemoteLoads)
