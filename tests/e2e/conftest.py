from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from enginehouse.testing.engines import SimEngine
from enginehouse.testing.gateway import RunningGateway

Ask = Callable[..., httpx.Response]


@pytest.fixture(scope="session")
def http() -> Iterator[httpx.Client]:
    with httpx.Client(trust_env=False, timeout=30) as client:
        yield client


@pytest.fixture(scope="session")
def ask(http: httpx.Client) -> Ask:
    """Send a short chat request through a gateway."""

    def send(gateway: RunningGateway, model: str, **more: Any) -> httpx.Response:
        body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2, **more}
        return http.post(f"{gateway.url}/v1/chat/completions", json=body)

    return send


@pytest.fixture(scope="session")
def went_to(ask: Ask) -> Callable[..., str]:
    """The backend that answered such a request."""

    def backend(gateway: RunningGateway, model: str, **more: Any) -> str:
        answer = ask(gateway, model, **more)
        assert answer.status_code == 200, answer.text
        return answer.headers["x-enginehouse-backend"]

    return backend


@pytest.fixture(scope="module")
def three_engines() -> Iterator[dict[str, SimEngine]]:
    """Engines ``a``, ``b`` and ``c`` that all serve ``shared``, and one model each that only they have."""
    with (
        SimEngine("shared", "only-a", vision=True, tools=False, context_length=200) as a,
        SimEngine("shared", "only-b", vision=False, tools=True, context_length=200) as b,
        SimEngine("shared", "only-c", vision=False, tools=False, context_length=100_000) as c,
    ):
        yield {"a": a, "b": b, "c": c}


@pytest.fixture
def engines(three_engines: dict[str, SimEngine]) -> Iterator[dict[str, SimEngine]]:
    """The three engines, with nothing left over from another test."""
    for engine in three_engines.values():
        engine.clear()
    yield three_engines
    for engine in three_engines.values():
        engine.clear()


@pytest.fixture
def free_port() -> int:
    """A port that an engine had and gave back: nobody else is likely to take it soon."""
    with SimEngine("nothing") as engine:
        return engine.port
