"""What is refused before anything was received of it."""

from __future__ import annotations

from typing import Any

import pytest

from enginehouse.domain.errors import ShuttingDown
from enginehouse.http.application import refuse


class FakePaths:
    """Has no protocols."""

    def error(self, path: str, status: int, envelope: dict[str, Any]) -> bytes:
        return b"{}"


@pytest.mark.parametrize(
    ("scope", "start"),
    [
        ({"type": "http"}, "http.response.start"),
        (
            {"type": "websocket", "subprotocols": [], "extensions": {"websocket.http.response": {}}},
            "websocket.http.response.start",
        ),
    ],
)
async def test_a_refusal_says_when_to_come_again(scope: dict[str, Any], start: str) -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    paths: Any = FakePaths()
    await refuse({**scope, "path": "/x"}, receive, send, ShuttingDown("The gateway stops"), paths)
    assert (sent[0]["type"], sent[0]["status"]) == (start, 503)
    assert (b"retry-after", b"1") in sent[0]["headers"]
