"""What the default strategy has learned outlives a reload, a take-over and a restart of its gateway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enginehouse_kit.engines import SimEngine
from tests.support.operated_gateway import OperatedGateway, ServeAlone
from tests.support.upgraded_gateway import UpgradedGateway

PROMPT = "All aboard, the train to the north leaves from platform four. " * 200


@pytest.fixture
def engines() -> Iterator[dict[str, SimEngine]]:
    with SimEngine("shared") as a, SimEngine("shared") as b:
        yield {"a": a, "b": b}


def config(engines: dict[str, SimEngine], more: str = "") -> str:
    tables = [f'[backends.{name}]\ndriver = "sim"\nurl = "{engine.url}"\n' for name, engine in engines.items()]
    return "".join(tables) + more


def cached(gateway: OperatedGateway) -> dict[str, Any]:
    """The tokens of the prompt that each engine is thought to have."""
    body = {"model": "shared", "prompt": PROMPT}
    answer = gateway.http.post("/api/explain/route?path=/v1/completions", json=body)
    return {each["backend"]: each["cached_tokens"] or 0 for each in answer.json()["candidates"]}


def ask(gateway: OperatedGateway) -> str:
    body = {"model": "shared", "prompt": PROMPT, "max_tokens": 1}
    return str(gateway.http.post("/v1/completions", json=body).headers["x-enginehouse-backend"])


def test_a_prompt_goes_where_its_beginning_is(
    serve_alone: ServeAlone, engines: dict[str, SimEngine], tmp_path: Path
) -> None:
    state = str(tmp_path)
    gateway = serve_alone(config(engines), ENGINEHOUSE_STATE_DIR=state)
    gateway.until_health(a="healthy", b="healthy")
    first = ask(gateway)
    known = cached(gateway)
    assert {name for name, tokens in known.items() if tokens > 2000} == {first}

    weights = "[routing.weights]\npriority = 40\nload = 40\nlatency = 20\n"
    gateway.reconfigure(config(engines, weights))
    assert cached(gateway) == known

    upgraded = UpgradedGateway(gateway.process)
    upgraded.upgrade()
    assert cached(gateway) == known
    assert gateway.process.status()["learned"][first]["ms_per_token"] > 0
    upgraded.stop()

    gateway = serve_alone(config(engines), ENGINEHOUSE_STATE_DIR=state)
    gateway.until_health(a="healthy", b="healthy")
    assert cached(gateway) == known
    assert ask(gateway) == first
    assert gateway.process.status()["learned"][first]["ms_per_token"] > 0
