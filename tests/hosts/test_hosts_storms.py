"""Many requests at once for more models than fit: all are answered, no model is loaded twice, nothing is left over."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from typing import Any

import httpx
import pytest

MODELS = "abcdefgh"
REQUESTS = 200


async def ask_all(home: Any, models: str) -> list[httpx.Response]:
    """Ask for all ``models`` at once."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=home.gateway.url, trust_env=False, limits=limits, timeout=50) as client:

        async def ask(number: int, model: str) -> httpx.Response:
            body = {"model": model, "messages": [{"role": "user", "content": str(number)}], "max_tokens": 2}
            return await client.post("/v1/chat/completions", json=body)

        return await asyncio.gather(*(ask(number, model) for number, model in enumerate(models)))


async def storm(home: Any, models: str) -> asyncio.Task[list[httpx.Response]]:
    """``ask_all`` meanwhile; all of them have arrived when this returns."""
    asking = asyncio.create_task(ask_all(home, models))
    await asyncio.to_thread(home.until_asked, len(models))
    return asking


def by_groups() -> str:
    return "".join(
        f'[scheduling.groups.{name}]\nmembers = ["{members}"]\nexclusive = false\n'
        for name, members in (("first", '", "'.join(MODELS[:4])), ("second", '", "'.join(MODELS[4:])))
    )


def by_matrix() -> str:
    pairs = " | ".join(f"({one} & {other})" for one, other in combinations(MODELS, 2))
    return f'[scheduling]\nswapper = "matrix"\n[scheduling.matrix.sets]\npairs = "{pairs}"\n'


def by_memory() -> str:
    return '[scheduling]\nswapper = "memory"\n[hosts.local]\nmemory = "2GiB"\n'


@pytest.mark.parametrize("rules", [by_groups, by_matrix, by_memory])
async def test_a_storm_over_eight_models_of_which_two_fit(house: Any, stage: Any, rules: Callable[[], str]) -> None:
    home = house(rules() + "".join(stage.sim(model, memory='"1GiB"') for model in MODELS))
    stage.limit(2)
    asked = MODELS * (REQUESTS // len(MODELS))
    asking = await storm(home, asked)
    stage.open()
    answers = await asking
    assert Counter(answer.status_code for answer in answers) == {200: REQUESTS}
    assert "".join(answer.json()["model"] for answer in answers) == asked
    assert "".join(answer.headers["x-enginehouse-backend"] for answer in answers) == asked
    assert {model: home.loads(model) for model in MODELS} == dict.fromkeys(MODELS, 1)
    assert len(home.engines()) == len(home.running()) == 2
    for gauge in ("enginehouse_live_requests", "enginehouse_backend_pending"):
        assert home.gauge(gauge) == 0
    assert home.gauge("enginehouse_requests_total") == REQUESTS
    home.gateway.stop()
    assert home.engines() == {}


async def test_alternating_requests_load_each_model_once(house: Any, stage: Any) -> None:
    home = house("".join(stage.sim(model) for model in "abc"))
    asking = await storm(home, "abcabc" * 4)
    stage.open()
    assert Counter(answer.status_code for answer in await asking) == {200: 24}
    assert {model: home.loads(model) for model in "abc"} == {"a": 1, "b": 1, "c": 1}
    assert len(home.running()) == 1


async def test_a_storm_whose_clients_all_leave_leaves_nothing_behind(house: Any, stage: Any) -> None:
    home = house("".join(stage.sim(model) for model in "abc"))
    asking = await storm(home, "abc" * 20)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    home.until_running()
    assert (home.requests(), home.engines()) == ([], {})
    assert home.gauge("enginehouse_backend_pending") == 0
    stage.open()
    assert home.ask("b").status_code == 200
