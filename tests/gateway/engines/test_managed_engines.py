"""Unloads that operators wait for."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import Any, cast

import pytest

from enginehouse.domain.errors import ShuttingDown
from enginehouse.engines.managed_engines import ManagedEngines
from enginehouse.telemetry.observers import Observers


class Stopping:
    """A host whose engine takes long to stop."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.of_backend = lambda _: ["m"]
        self.states = dict
        self.queue = SimpleNamespace(reject=lambda *_: None)

    async def unload(self, *_: object, force: bool) -> None:
        self.asked.set()
        await asyncio.get_running_loop().create_future()


async def test_other_processes_hear_of_a_queue_when_its_backend_begins_to_have_one() -> None:
    told: list[str] = []
    fleet = SimpleNamespace(on_facts=told.append)
    engines = ManagedEngines(cast(Any, SimpleNamespace(observers=Observers(), fleet=fleet)), {})
    host = SimpleNamespace(kept=dict, queue="queue", servers=SimpleNamespace(backends=[], load_with=None))
    host.servers.load_with = lambda make: host.servers.backends.append("router")
    engines._hosts = {"local": cast(Any, host)}
    engines.load_with(lambda backend: None)
    assert (cast(Any, engines.queues), told) == ({"router": "queue"}, ["router"])


@pytest.mark.parametrize("leaves", [False, True])
async def test_nobody_waits_for_an_unload_while_the_gateway_shuts_down(leaves: bool) -> None:
    """Nor is the error an exception that nobody has retrieved, if the client leaves (``leaves``) at that moment."""
    unhandled: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    host = Stopping()
    engines = ManagedEngines(cast(Any, SimpleNamespace(observers=Observers())), {})
    engines._hosts = {"local": cast(Any, host)}
    waiting = asyncio.create_task(engines.stop("m"))
    await host.asked.wait()
    engines.reject_waiting(ShuttingDown("The gateway shuts down"))
    if leaves:
        waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled() if leaves else isinstance(waiting.exception(), ShuttingDown)
    del waiting
    gc.collect()
    assert unhandled == []
