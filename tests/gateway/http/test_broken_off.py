from __future__ import annotations

import asyncio

from tests.support.fake_client import FakeClient

REQUEST = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"


async def test_all_that_was_written_is_sent_before_the_connection_breaks() -> None:
    client = FakeClient(asyncio.get_running_loop())
    client.send(REQUEST)
    writer = client.engine.unanswered[0].writer
    writer.start(200, b"", 9)
    writer.write(b"abc")
    writer.write(b"def")
    writer.abort()
    assert client.transport.written.endswith(b"\r\n\r\nabcdef")
    assert client.transport.aborted
