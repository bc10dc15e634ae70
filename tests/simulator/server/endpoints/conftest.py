from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from enginehouse_kit.engines import SimEngine
from tests.support import plain_httpx as http


@pytest.fixture(scope="session")
def fast_engine() -> Iterator[SimEngine]:
    """An engine that answers at once, with small blocks and an adapter."""
    with SimEngine(
        "tiny", context_length=400, block_size=4, lora_modules="tuned=/adapters/tuned", max_loras=1
    ) as engine:
        yield engine


@pytest.fixture
def engine(fast_engine: SimEngine) -> SimEngine:
    """The fast engine, with nothing in its cache."""
    http.post(f"{fast_engine.url}/reset_prefix_cache")
    return fast_engine


@pytest.fixture
def post(engine: SimEngine) -> Callable[..., Any]:
    """Send a request for the model and read the JSON answered."""

    def send(path: str, status: int = 200, **body: Any) -> Any:
        answer = http.post(f"{engine.url}{path}", json={"model": "tiny", **body})
        assert answer.status_code == status, answer.text
        return answer.json()

    return send
