from __future__ import annotations

from typing import Any

import pytest

from enginehouse.drivers import EngineClient, EngineResponse, LoadedModel
from enginehouse.errors import LoadFailed, NotEnoughMemory
from enginehouse_kit.drivers import LoadingDriver


class Loading(LoadingDriver):
    async def load(self, engine: EngineClient, model: str) -> None: ...

    async def unload(self, engine: EngineClient, model: str) -> None: ...

    async def loaded(self, engine: EngineClient) -> list[LoadedModel]:
        return []


class Server:
    """Gives every request the same answer."""

    def __init__(self, status: int, body: bytes) -> None:
        self._answer = EngineResponse(status, [], body)
        self.asked: list[Any] = []

    async def request(self, method: str, path: str, body: bytes = b"") -> EngineResponse:
        self.asked.append((method, path, body))
        return self._answer


@pytest.mark.parametrize(
    ("status", "body", "refusal"),
    [
        (200, b'{"error": "not an error"}', ""),
        (404, b'{"error": "no such model"}', "no such model"),
        (500, b'{"error": {"type": "internal_error", "message": "it broke"}}', "it broke"),
        (500, b'{"error": {}}', "status 500"),
        (502, b"<html>", "status 502"),
        (503, b"[]", "status 503"),
    ],
)
async def test_a_refusal_tells_its_reason(status: int, body: bytes, refusal: str) -> None:
    server = Server(status, body)
    assert await Loading().ask(server, "/load", {"model": "m"}) == refusal
    assert server.asked == [("POST", "/load", b'{"model":"m"}')]


@pytest.mark.parametrize(
    ("why", "kind"),
    [
        ("model requires more system memory (5.6 GiB) than is available (4.2 GiB)", NotEnoughMemory),
        ("Model loading was stopped due to insufficient system resources.", NotEnoughMemory),
        ("CUDA error: out of memory", NotEnoughMemory),
        ("file does not exist", LoadFailed),
    ],
)
def test_a_lack_of_memory_is_recognised(why: str, kind: type[LoadFailed]) -> None:
    error = Loading().load_failed("m", why)
    assert type(error) is kind
    assert error.message == f"The server did not load 'm': {why}"


@pytest.mark.parametrize(
    ("status", "message", "is_so"),
    [
        (400, "model is not loaded", True),
        (404, "No models loaded. Please load a model in the developer page or use the 'lms load' command.", True),
        (500, "Model is unloaded.", True),
        (404, "model 'm' not found", False),
        (400, "the request is too long", False),
        (200, "model is not loaded", False),
    ],
)
def test_an_answer_that_says_that_the_model_is_not_loaded_is_recognised(status: int, message: str, is_so: bool) -> None:
    body = b'{"error": {"code": 400, "message": "%s"}}' % message.encode()
    assert Loading().is_not_loaded(status, body) is is_so
    assert not Loading().is_not_loaded(status, b"<html>not loaded</html>")
