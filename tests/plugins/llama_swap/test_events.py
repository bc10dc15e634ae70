"""The stream of events, between pages of the gateway that fail."""

from __future__ import annotations

import asyncio

import pytest
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from enginehouse_llama_swap.events import _Stream
from tests.support.waiting import within


async def frames(**statuses: int) -> list[bytes]:
    """The frames of a stream whose own pages answer with ``statuses``, by the last words of their paths."""

    async def pages(scope: Scope, receive: Receive, send: Send) -> None:
        page = scope["path"].rpartition("/")[2]
        status = statuses.get(page, 200)
        await send({"type": "http.response.start", "status": status, "headers": []})
        endless = status == 200 and page in ("events", "proxy", "upstream")
        await send({"type": "http.response.body", "body": b"event: snapshot\n\n", "more_body": endless})
        if endless:
            await asyncio.Event().wait()

    request = Request({"type": "http", "app": pages, "headers": [], "path": "/api/events", "query_string": b""})
    return [frame async for frame in _Stream(request).run()]


@pytest.mark.parametrize("page", ["events", "models"])
async def test_a_stream_of_which_a_page_fails_ends(page: str) -> None:
    """A browser then asks for another one; an open stream that tells nothing more would look like a quiet gateway."""
    assert await within(frames(**{page: 503}))


async def test_a_page_that_answers_nonsense_ends_the_stream(caplog: pytest.LogCaptureFixture) -> None:
    assert await within(frames())
    assert [record.getMessage() for record in caplog.records] == ["A stream of events failed"]


async def test_a_log_that_is_not_there_does_not_end_the_stream() -> None:
    shown = await within(frames(upstream=404, models=503))
    assert any(b"logData" in frame for frame in shown)
