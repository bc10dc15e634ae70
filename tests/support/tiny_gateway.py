"""A gateway with nothing but engines, to be killed: ``python tiny_gateway.py '{"folder", "models", "start"}'``.

It takes over the engines of an earlier gateway, starts the given ones, and stops on SIGTERM. It prints every event as a
line of JSON.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from enginehouse import Driver, ReplicaState
from enginehouse.config.schema import ModelSettings
from enginehouse.drivers import EngineClient, EngineResponse, ServedModel
from enginehouse.engines.engine import Engine
from enginehouse.engines.host_context import ManagedReplica
from enginehouse.engines.state_file import StateFile
from enginehouse.errors import UpstreamError
from enginehouse.interfaces.driver_support import support_of
from tests.support.bare_host import BareHost
from tests.support.launchers import local_launcher


class Order(msgspec.Struct):
    folder: str
    models: dict[str, ModelSettings]
    start: list[str]


class TinyDriver(Driver):
    async def healthy(self, engine: EngineClient) -> bool:
        return (await engine.request("GET", "/")).status == 200

    async def models(self, engine: EngineClient) -> list[ServedModel]:
        return []


class TinyClient:
    def __init__(self, address: str) -> None:
        self._port = int(address.rpartition(":")[2])
        self.last = ""

    async def request(self, method: str, path: str, body: bytes = b"") -> EngineResponse:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError as error:
            raise UpstreamError(str(error)) from None
        writer.write(f"{method} {path} HTTP/1.0\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        return EngineResponse(int(answer.split(b" ", 2)[1]), [], answer.partition(b"\r\n\r\n")[2])


def report(**what: Any) -> None:
    print(msgspec.json.encode(what).decode(), flush=True)


class TinyHost(BareHost):
    def engine_changed(self, engine: Engine) -> None:
        report(replica=engine.replica, state=engine.shown)

    def engine_exited(self, engine: Engine) -> None:
        report(gone=engine.replica)


async def run(order: Order) -> None:
    state_file = StateFile(Path(order.folder))
    engines = TinyHost(
        local_launcher(state_file.logs),
        state_file,
        {
            f"{name}@{name}": ManagedReplica(name, name, model, support_of(TinyDriver()))
            for name, model in order.models.items()
        },
        lambda backend, address: TinyClient(address),
    )
    end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set)
    await engines.open()
    for name in order.start:
        await engines.start(f"{name}@{name}")
    report(
        running={name: record.handle["pid"] for name, record in state_file.records.items()},
        ports={name: record.port for name, record in state_file.records.items()},
        ready=[replica for replica, state in engines.states().items() if state is ReplicaState.READY],
        measured=engines.measured,
        log={replica: supervisor.log.tail(20) for replica, supervisor in engines.engines.items()},
    )
    await end.wait()
    await engines.close()
    report(left=list(state_file.records), logs=[path.name for path in state_file.logs.iterdir()])
    state_file.close()


if __name__ == "__main__":
    logging.basicConfig()
    uvloop.run(run(msgspec.json.decode(sys.argv[1], type=Order)))
