"""The acceptance criteria of the intelligent router, through a real gateway to real engine processes."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import httpx
import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway, Status
from tests.support import plain_httpx
from tests.support.operated_gateway import OperatedGateway, Serve

Engines = dict[str, SimEngine]


class Routing(Protocol):
    def __call__(self, text: str = "", **priorities: int) -> OperatedGateway: ...


IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}
SEEING: dict[str, Any] = {"messages": [{"role": "user", "content": [IMAGE]}]}
CALLING: dict[str, Any] = {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}
CLIENTS = 50
LONG: dict[str, Any] = {"messages": [{"role": "user", "content": "word " * 400}]}


def in_front_of(engines: Engines, text: str = "", priorities: dict[str, int] | None = None) -> str:
    """The configuration of a gateway in front of the engines."""
    backends = "".join(
        f'[backends.{name}]\ndriver = "sim"\nurl = "{engine.url}"\npriority = {(priorities or {}).get(name, 0)}\n'
        for name, engine in engines.items()
    )
    return backends + text


def all_are_known(status: Status) -> bool:
    return all("shared" in each["models"] for each in status["backends"])


@pytest.fixture
def routing(serve: Serve, engines: Engines) -> Routing:
    """Serve in front of the three engines, with this in the configuration."""

    def serve_in_front(text: str = "", **priorities: int) -> OperatedGateway:
        gateway = serve(in_front_of(engines, text, priorities))
        gateway.until(all_are_known)
        return gateway

    return serve_in_front


@contextmanager
def held(engine: SimEngine, gateway: OperatedGateway, model: str, count: int) -> Iterator[None]:
    """Requests for ``model`` that ``engine`` keeps in work."""
    engine.fault("hang", model=model)
    live = len(gateway.requests()) + count
    threads = [threading.Thread(target=gateway.ask, args=(model,)) for _ in range(count)]
    for thread in threads:
        thread.start()
    gateway.until(lambda status: status["requests"] == live)
    try:
        yield
    finally:
        engine.clear()
        for thread in threads:
            thread.join()


async def burst(gateway: OperatedGateway, count: int) -> Counter[str]:
    """Where ``count`` requests go, of which fifty are under way at any time."""
    body = {"model": "shared", "prompt": "x", "max_tokens": 1}
    answers: list[httpx.Response] = []
    async with plain_httpx.AsyncClient(base_url=gateway.process.url) as client:

        async def keep_asking() -> None:
            answers.extend([await client.post("/v1/completions", json=body) for _ in range(count // CLIENTS)])

        await asyncio.gather(*(keep_asking() for _ in range(CLIENTS)))
    assert {answer.status_code for answer in answers} == {200}
    return Counter(answer.headers["x-enginehouse-backend"] for answer in answers)


@pytest.fixture(scope="module")
def smart(three_engines: Engines, pool: ThreadPoolExecutor) -> Iterator[OperatedGateway]:
    aliases = '[routing.aliases]\n"gpt-4" = "only-b"\n"gpt-5" = "gone"\n'
    fallbacks = '[routing.fallbacks]\n"claude" = ["gone", "only-c"]\n"lost" = ["gone", "away"]\n'
    strategy = '[routing]\nstrategy = "smart"\n'
    with (
        RunningGateway(in_front_of(three_engines, strategy + aliases + fallbacks)) as process,
        OperatedGateway(process, pool) as gateway,
    ):
        gateway.until(all_are_known)
        yield gateway


def test_ac01_a_request_goes_where_its_model_is(smart: OperatedGateway, engines: Engines) -> None:
    assert [smart.went_to(f"only-{name}") for name in "abc"] == ["a", "b", "c"]


@pytest.mark.parametrize(("needs", "backends"), [(SEEING, {"a"}), (CALLING, {"b"}), (LONG, {"c"})])
def test_ac03_to_05_a_request_goes_where_it_can_be_served(
    smart: OperatedGateway, engines: Engines, needs: dict[str, Any], backends: set[str]
) -> None:
    assert {smart.went_to("shared", **needs) for _ in range(5)} == backends


def test_ac07_an_alias_is_resolved(smart: OperatedGateway, engines: Engines) -> None:
    answer = smart.ask("gpt-4")

    assert answer.headers["x-enginehouse-model"] == "only-b"
    assert answer.headers["x-enginehouse-reason"] == "alias"
    assert answer.json()["model"] == "gpt-4"


def test_ac08_a_fallback_serves_an_unknown_model(smart: OperatedGateway, engines: Engines) -> None:
    answer = smart.ask("claude")

    assert (answer.headers["x-enginehouse-backend"], answer.headers["x-enginehouse-reason"]) == ("c", "fallback")


def test_ac09_a_circle_of_aliases_is_refused_at_start(tmp_path: Path) -> None:
    config = tmp_path / "enginehouse.toml"
    config.write_text('[routing.aliases]\na = "b"\nb = "a"\n')

    ended = subprocess.run(
        [sys.executable, "-m", "enginehouse", "serve", "--config", str(config), "--port", "0"],
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert (ended.returncode, ended.stdout) == (1, "")
    assert 'circular alias "a" -> "b" -> "a"' in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("model", "needs", "status", "code", "details"),
    [
        ("gone", {}, 404, "model_not_found", {"model": "gone"}),
        ("gpt-5", {}, 404, "model_not_found", {"model": "gone"}),
        ("lost", {}, 503, "fallback_exhausted", {"attempted": ["lost", "gone", "away"]}),
        (
            "only-c",
            SEEING | CALLING,
            400,
            "capability_mismatch",
            {"model": "only-c", "missing": ["vision", "tools"]},
        ),
        ("only-a", LONG, 400, "context_length_exceeded", {"model": "only-a", "missing": ["context_length"]}),
    ],
)
def test_ac10_errors_say_what_is_wrong(
    smart: OperatedGateway,
    engines: Engines,
    model: str,
    needs: dict[str, Any],
    status: int,
    code: str,
    details: dict[str, Any],
) -> None:
    answer = smart.ask(model, **needs)

    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code)
    assert details.items() <= error["details"].items()
    assert set(error) == {"message", "type", "param", "code", "details"}


def test_ac06_the_less_busy_backend_is_preferred(routing: Routing, engines: Engines) -> None:
    gateway = routing('[routing]\nstrategy = "smart"\n[routing.weights]\npriority = 0\nload = 100\nlatency = 0\n')
    with held(engines["a"], gateway, "only-a", 1):
        assert [gateway.went_to("shared") for _ in range(3)] == ["b"] * 3
        with held(engines["b"], gateway, "only-b", 2):
            assert gateway.went_to("shared") == "c"


def test_ac06_the_faster_backend_is_preferred(routing: Routing, engines: Engines) -> None:
    gateway = routing("[routing.weights]\npriority = 0\nload = 0\nlatency = 100\n")
    engines["a"].fault("slow", first_byte="600ms")
    assert gateway.went_to("shared") == "a"
    assert "a" not in {gateway.went_to("shared") for _ in range(5)}


def test_ac11_smart_picks_the_highest_score(routing: Routing) -> None:
    strategy = '[routing]\nstrategy = "smart"\n'
    weights = "[routing.weights]\npriority = 60\nload = 40\nlatency = 0\n"  # a slow answer must not count
    gateway = routing(strategy + weights, a=60, b=40, c=80)
    assert {gateway.went_to("shared") for _ in range(5)} == {"b"}
    explained = gateway.http.post("/api/explain/route", json={"model": "shared"}).json()

    scores = {each["backend"]: each["score"] for each in explained["candidates"]}
    assert max(scores, key=lambda name: scores[name]) == "b"
    assert explained["chosen"] == "shared@b"


async def test_ac12_and_16_round_robin_is_even_also_for_requests_at_once(routing: Routing) -> None:
    gateway = routing('[routing]\nstrategy = "round_robin"\n')
    assert [gateway.went_to("shared") for _ in range(6)] == ["a", "b", "c", "a", "b", "c"]
    assert await burst(gateway, 300) == {"a": 100, "b": 100, "c": 100}
    status = gateway.until(lambda status: status["requests"] == 0)
    assert [each["pending"] for each in status["backends"]] == [0, 0, 0]


def test_ac13_priority_only_takes_the_lowest_number(routing: Routing, engines: Engines) -> None:
    gateway = routing('[routing]\nstrategy = "priority_only"\n', a=2, b=1, c=3)
    with held(engines["b"], gateway, "only-b", 3):
        assert {gateway.went_to("shared") for _ in range(5)} == {"b"}


async def test_ac14_random_is_roughly_even(routing: Routing) -> None:
    counts = await burst(routing('[routing]\nstrategy = "random"\n'), 300)

    assert set(counts) == {"a", "b", "c"}
    assert all(60 <= count <= 140 for count in counts.values()), counts  # five standard deviations


def test_ac15_the_gateway_takes_far_less_than_a_millisecond(smart: OperatedGateway, engines: Engines) -> None:
    def took() -> float:
        return statistics.median(int(smart.ask("shared").headers["x-enginehouse-overhead-us"]) for _ in range(50))

    assert any(took() < 1000 for _ in range(5)), "not even while the machine has little else to do"
