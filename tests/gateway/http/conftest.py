from __future__ import annotations

import asyncio
import importlib.util
import logging
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.support.fake_client import FakeClient


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """uvloop, which the gateway uses where it can, and asyncio's own loop."""
    if importlib.util.find_spec("uvloop") is None:
        return {"asyncio": asyncio.new_event_loop}
    import uvloop

    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.fixture(scope="module")
def server(loop: asyncio.AbstractEventLoop) -> Iterator[FakeClient]:
    log = logging.getLogger("enginehouse.http.client_connection")
    log.setLevel(logging.ERROR)
    yield FakeClient(loop)
    log.setLevel(logging.NOTSET)
