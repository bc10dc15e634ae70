"""Many requests at once for more models than fit: all are answered, no model is loaded twice, nothing is left over."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import combinations

import httpx
import pytest

from tests.support import plain_httpx
from tests.support.fake_router import FakeRouter
from tests.support.operated_gateway import OperatedGateway, Serve, ServeAlone, Stage

MODELS = "abcdefgh"
REQUESTS = 200
EACH = 8


async def ask_all(gateway: OperatedGateway, models: str) -> list[httpx.Response]:
    """Ask for all ``models`` at once, each with a client of its own: a large pool of httpx is slow."""

    async def ask(number: int, model: str) -> httpx.Response:
        body = {"model": model, "messages": [{"role": "user", "content": str(number)}], "max_tokens": 2}
        async with plain_httpx.AsyncClient() as client:
            return await client.post(f"{gateway.process.url}/v1/chat/completions", json=body)

    return await asyncio.gather(*(ask(number, model) for number, model in enumerate(models)))


async def storm(gateway: OperatedGateway, models: str) -> asyncio.Task[list[httpx.Response]]:
    """``ask_all`` meanwhile; all of them have arrived when this returns."""
    asking = asyncio.create_task(ask_all(gateway, models))
    await asyncio.to_thread(gateway.until_asked, len(models))
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
async def test_a_storm_over_eight_models_of_which_two_fit(
    serve_alone: ServeAlone, stage: Stage, rules: Callable[[], str]
) -> None:
    gateway = serve_alone(rules() + "".join(stage.table(model, memory='"1GiB"') for model in MODELS))
    stage.limit(2)
    asked = MODELS * (REQUESTS // len(MODELS))
    asking = await storm(gateway, asked)
    stage.open()
    answers = await asking
    assert Counter(answer.status_code for answer in answers) == {200: REQUESTS}
    assert "".join(answer.json()["model"] for answer in answers) == asked
    assert "".join(answer.headers["x-enginehouse-backend"] for answer in answers) == asked
    assert {model: gateway.loads(model) for model in MODELS} == dict.fromkeys(MODELS, 1)
    assert len(gateway.engines()) == len(gateway.running()) == 2
    for gauge in ("enginehouse_live_requests", "enginehouse_backend_pending"):
        assert gateway.metric(gauge) == 0
    assert gateway.metric("enginehouse_requests_total") == REQUESTS
    gateway.process.stop()
    assert gateway.engines() == {}


@pytest.mark.parametrize("rules", [by_groups, by_matrix, by_memory])
async def test_a_storm_over_a_server_that_loads_models_itself(
    serve_alone: ServeAlone, rules: Callable[[], str]
) -> None:
    with FakeRouter(*MODELS) as router:
        router.open.clear()
        backend = f'[backends.local]\ndriver = "llamacpp_router"\nurl = "{router.url}"\nhost = "local"\n'
        sizes = "".join(f'[models.{model}]\nmemory = "1GiB"\n' for model in MODELS)
        gateway = serve_alone(rules() + backend + sizes)
        gateway.until(lambda status: len(status["replicas"]) == len(MODELS))
        asking = await storm(gateway, MODELS * EACH)
        router.open.set()
        assert Counter(answer.status_code for answer in await asking) == {200: len(MODELS) * EACH}
        assert Counter(router.served) == dict.fromkeys(MODELS, EACH)
        assert sorted(router.loads) == [*MODELS], "each once"
        assert sum(router.is_loaded(model) for model in MODELS) == 2


async def test_alternating_requests_load_each_model_once(serve: Serve, stage: Stage) -> None:
    gateway = serve("".join(stage.table(model) for model in "abc"))
    asking = await storm(gateway, "abcabc" * 4)
    stage.open()
    assert Counter(answer.status_code for answer in await asking) == {200: 24}
    assert {model: gateway.loads(model) for model in "abc"} == {"a": 1, "b": 1, "c": 1}
    assert len(gateway.running()) == 1


async def test_an_abandoned_storm_leaves_nothing_behind(serve: Serve, stage: Stage) -> None:
    gateway = serve('[scheduling]\ncancel_loads = "always"\n' + "".join(stage.table(model) for model in "abc"))
    asking = await storm(gateway, "abc" * 20)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    gateway.until_running()
    assert (gateway.requests(), gateway.engines()) == ([], {})
    assert gateway.metric("enginehouse_backend_pending") == 0
    stage.open()
    assert gateway.ask("b").status_code == 200
