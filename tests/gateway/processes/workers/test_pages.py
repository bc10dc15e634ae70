"""Pages of the owner on a worker's connection."""

from __future__ import annotations

from typing import Any, cast

from starlette.responses import PlainTextResponse

from enginehouse.processes.workers.channel import Send
from enginehouse.processes.workers.pages import PageAnswers
from tests.support.waiting import until


async def test_a_page_ends_whose_answer_the_worker_does_not_take() -> None:
    sent: list[Any] = []

    async def prepare(path: str) -> None: ...

    def send(method: Any, page: int, message: Any) -> None:
        sent.append(message)

    pages = PageAnswers(PlainTextResponse("hello"), cast("Send", send), prepare)
    pages.page_asked(1, {"type": "http", "path": "/api/status", "headers": []})
    await until(lambda: sent)
    pages.page_in(1, {"type": "http.disconnect"})  # in place of page_taken
    await until(lambda: sent[-1] is None)
    assert [each and each["type"] for each in sent] == ["http.response.start", None]
    assert not pages._pages
