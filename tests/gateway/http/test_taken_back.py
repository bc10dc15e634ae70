"""A request that goes back to its client's connection, for another gateway to read."""

from __future__ import annotations

import asyncio
from errno import EMFILE
from types import SimpleNamespace

import pytest

from tests.support.fake_client import FakeClient

BODY = b'{"model": "m"}'


@pytest.mark.parametrize("target", [b"/v1/completions", b"/v1/completions?a=%0d%0ax:%20y", b"/v1/%63ompletions?b"])
async def test_a_request_that_is_taken_back_is_the_one_that_came(target: bytes) -> None:
    client = FakeClient(asyncio.get_running_loop())
    client.connection._successor = lambda *_: None
    sent = b"POST %s HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%s" % (target, len(BODY), BODY)
    client.send(sent)
    current = client.connection._current
    assert current is not None
    assert current.take_back() == sent


async def test_a_connection_that_cannot_be_passed_on_is_closed() -> None:
    def pass_on(*_: object) -> None:
        raise OSError(EMFILE, "Too many open files")

    client = FakeClient(asyncio.get_running_loop())
    client.transport.set_socket(SimpleNamespace(fileno=lambda: 3))
    client.connection.leave(pass_on)
    assert client.transport.aborted
