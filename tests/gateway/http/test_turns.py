"""What one client sends at once is parsed in several turns of the event loop, if that takes long."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.fake_client import FakeClient

_READ = 256 * 1024
"""What an event loop reads at once, at most."""
_CHUNKED = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
_SHORT = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}"


async def send_all(client: FakeClient, data: bytes) -> int:
    """Send as much as is read, again and again. Returns how often the client had to wait for a turn."""
    waits = 0
    for at in range(0, len(data), _READ):
        client.send(data[at : at + _READ])
        while not client.transport.reads:
            waits += 1
            await asyncio.sleep(0)
    return waits


async def test_a_body_in_tiny_chunks_is_whole_after_many_turns() -> None:
    client = FakeClient(asyncio.get_running_loop())
    waits = await send_all(client, _CHUNKED + b"1\r\na\r\n" * 200_000 + b"0\r\n\r\n")
    await client.settle()
    assert [request.body for request in client.engine.requests] == [b"a" * 200_000]
    assert waits >= 40
    assert client.transport.written.startswith(b"HTTP/1.1 200")


@pytest.mark.long
async def test_many_requests_at_once_are_answered_in_many_turns() -> None:
    client = FakeClient(asyncio.get_running_loop())
    client.engine.at_once = True
    waits = await send_all(client, _SHORT * 5000)
    await client.settle()
    assert (len(client.engine.requests), client.transport.written.count(b"HTTP/1.1 200")) == (5000, 5000)
    assert waits >= 15


@pytest.mark.long
async def test_requests_that_wait_for_an_answer_are_parsed_on_after_it() -> None:
    client = FakeClient(asyncio.get_running_loop())
    client.send(_SHORT * 5000)
    assert not client.transport.reads
    while not client.transport.reads:
        await client.settle()
    assert (len(client.engine.requests), client.transport.written.count(b"HTTP/1.1 200")) == (5000, 5000)


@pytest.mark.parametrize("most", [0, 1_000_000])
async def test_a_plain_body_takes_no_turns(most: int) -> None:
    client = FakeClient(asyncio.get_running_loop())
    body = b"a" * most
    waits = await send_all(client, b"%scontent-length: %d\r\n\r\n%s" % (_SHORT.partition(b"content")[0], most, body))
    await client.settle()
    assert ([request.body for request in client.engine.requests], waits) == ([body], 0)


async def test_a_client_that_leaves_meanwhile_is_forgotten() -> None:
    client = FakeClient(asyncio.get_running_loop())
    client.send(_CHUNKED + b"1\r\na\r\n" * 40_000)
    client.transport.close()
    client.connection.connection_lost(None)
    for _ in range(10):
        await asyncio.sleep(0)
    assert (client.engine.requests, client.transport.written) == ([], b"")
