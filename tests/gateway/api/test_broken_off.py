from __future__ import annotations

import asyncio

from tests.support.fake_client import FakeClient

REQUEST = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"


async def test_all_that_was_written_is_sent_before_the_connection_breaks() -> None:
    client = FakeClient(asyncio.get_running_loop())
    client.send(REQUEST)
    door = client.engine.unanswered[0].door
    door.start(200, b"", 9)
    door.write(b"abc")
    door.write(b"def")
    door.abort()
    assert client.transport.written.endswith(b"\r\n\r\nabcdef")
    assert client.transport.aborted
