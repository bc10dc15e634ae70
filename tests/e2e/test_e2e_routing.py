"""The acceptance criteria of the intelligent router, through a real gateway to real engine processes."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from enginehouse.testing.engines import SimEngine
from enginehouse.testing.gateway import RunningGateway

Ask = Callable[..., httpx.Response]
WentTo = Callable[..., str]
Engines = dict[str, SimEngine]

IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}
SEEING: dict[str, Any] = {"messages": [{"role": "user", "content": [IMAGE]}]}
CALLING: dict[str, Any] = {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}
LONG: dict[str, Any] = {"messages": [{"role": "user", "content": "word " * 400}]}


@contextmanager
def routing(engines: Engines, text: str = "", priorities: dict[str, int] | None = None) -> Iterator[RunningGateway]:
    """A gateway in front of the three engines with this in its configuration."""
    backends = "".join(
        f'[backends.{name}]\ndriver = "sim"\nurl = "{engine.url}"\npriority = {(priorities or {}).get(name, 0)}\n'
        for name, engine in engines.items()
    )
    with RunningGateway(backends + text) as gateway:
        gateway.until(lambda status: all("shared" in each["models"] for each in status["backends"]))
        yield gateway


@contextmanager
def held(engine: SimEngine, gateway: RunningGateway, ask: Ask, model: str, count: int) -> Iterator[None]:
    """Requests for ``model`` that ``engine`` keeps in work."""
    engine.fault("hang", model=model)
    live = gateway.status()["requests"] + count
    threads = [threading.Thread(target=ask, args=(gateway, model)) for _ in range(count)]
    for thread in threads:
        thread.start()
    gateway.until(lambda status: status["requests"] == live)
    try:
        yield
    finally:
        engine.clear()
        for thread in threads:
            thread.join()


async def burst(gateway: RunningGateway, count: int) -> Counter[str]:
    """Where ``count`` requests go that are sent all at once."""
    body = {"model": "shared", "prompt": "x", "max_tokens": 1}
    limits = httpx.Limits(max_connections=50)
    async with httpx.AsyncClient(trust_env=False, limits=limits, timeout=30) as client:
        sent = (client.post(f"{gateway.url}/v1/completions", json=body) for _ in range(count))
        answers = await asyncio.gather(*sent)
    assert {answer.status_code for answer in answers} == {200}
    return Counter(answer.headers["x-enginehouse-backend"] for answer in answers)


@pytest.fixture(scope="module")
def smart(three_engines: Engines) -> Iterator[RunningGateway]:
    aliases = '[routing.aliases]\n"gpt-4" = "only-b"\n"gpt-5" = "gone"\n'
    fallbacks = '[routing.fallbacks]\n"claude" = ["gone", "only-c"]\n"lost" = ["gone", "away"]\n'
    with routing(three_engines, aliases + fallbacks) as gateway:
        yield gateway


def test_ac01_a_request_goes_where_its_model_is(smart: RunningGateway, engines: Engines, went_to: WentTo) -> None:
    assert [went_to(smart, f"only-{name}") for name in "abc"] == ["a", "b", "c"]


@pytest.mark.parametrize(("needs", "backends"), [(SEEING, {"a"}), (CALLING, {"b"}), (LONG, {"c"})])
def test_ac03_to_05_a_request_goes_where_it_can_be_served(
    smart: RunningGateway, engines: Engines, went_to: WentTo, needs: dict[str, Any], backends: set[str]
) -> None:
    assert {went_to(smart, "shared", **needs) for _ in range(5)} == backends


def test_ac07_an_alias_is_resolved(smart: RunningGateway, engines: Engines, ask: Ask) -> None:
    answer = ask(smart, "gpt-4")

    assert answer.headers["x-enginehouse-model"] == "only-b"
    assert answer.headers["x-enginehouse-reason"] == "alias"
    assert answer.json()["model"] == "only-b"


def test_ac08_a_fallback_serves_what_nobody_has(smart: RunningGateway, engines: Engines, ask: Ask) -> None:
    answer = ask(smart, "claude")

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
        ("only-a", LONG, 400, "capability_mismatch", {"model": "only-a", "missing": ["context_length"]}),
    ],
)
def test_ac10_errors_say_what_is_wrong(
    smart: RunningGateway,
    engines: Engines,
    ask: Ask,
    model: str,
    needs: dict[str, Any],
    status: int,
    code: str,
    details: dict[str, Any],
) -> None:
    answer = ask(smart, model, **needs)

    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code)
    assert details.items() <= error["details"].items()
    assert set(error) == {"message", "type", "param", "code", "details"}


def test_ac06_the_less_busy_backend_is_preferred(engines: Engines, ask: Ask, went_to: WentTo) -> None:
    text = "[routing.weights]\npriority = 0\nload = 100\nlatency = 0\n"
    with routing(engines, text) as gateway, held(engines["a"], gateway, ask, "only-a", 1):
        assert [went_to(gateway, "shared") for _ in range(3)] == ["b"] * 3
        with held(engines["b"], gateway, ask, "only-b", 2):
            assert went_to(gateway, "shared") == "c"


def test_ac06_the_faster_backend_is_preferred(engines: Engines, went_to: WentTo) -> None:
    text = "[routing.weights]\npriority = 0\nload = 0\nlatency = 100\n"
    with routing(engines, text) as gateway:
        engines["a"].fault("slow", first_byte="600ms")
        assert went_to(gateway, "shared") == "a"
        assert "a" not in {went_to(gateway, "shared") for _ in range(5)}


def test_ac11_smart_picks_the_highest_score(engines: Engines, went_to: WentTo, http: httpx.Client) -> None:
    with routing(engines, priorities={"a": 60, "b": 40, "c": 80}) as gateway:
        assert {went_to(gateway, "shared") for _ in range(5)} == {"b"}
        explained = http.post(f"{gateway.url}/api/explain/route", json={"model": "shared"}).json()

    scores = {each["backend"]: each["score"] for each in explained["candidates"]}
    assert max(scores, key=lambda name: scores[name]) == "b"
    assert explained["chosen"] == "shared@b"


async def test_ac12_and_16_round_robin_is_even_also_for_requests_at_once(engines: Engines, went_to: WentTo) -> None:
    with routing(engines, '[routing]\nstrategy = "round_robin"\n') as gateway:
        assert [went_to(gateway, "shared") for _ in range(6)] == ["a", "b", "c", "a", "b", "c"]
        assert await burst(gateway, 300) == {"a": 100, "b": 100, "c": 100}
        assert gateway.until(lambda status: status["requests"] == 0)
        assert [each["pending"] for each in gateway.status()["backends"]] == [0, 0, 0]


def test_ac13_priority_only_takes_the_lowest_number(engines: Engines, ask: Ask, went_to: WentTo) -> None:
    text = '[routing]\nstrategy = "priority_only"\n'
    with (
        routing(engines, text, priorities={"a": 2, "b": 1, "c": 3}) as gateway,
        held(engines["b"], gateway, ask, "only-b", 3),
    ):
        assert {went_to(gateway, "shared") for _ in range(5)} == {"b"}


async def test_ac14_random_is_roughly_even(engines: Engines) -> None:
    with routing(engines, '[routing]\nstrategy = "random"\n') as gateway:
        counts = await burst(gateway, 300)

    assert set(counts) == {"a", "b", "c"}
    assert all(60 <= count <= 140 for count in counts.values()), counts  # five standard deviations


def test_ac15_the_gateway_takes_far_less_than_a_millisecond(smart: RunningGateway, engines: Engines, ask: Ask) -> None:
    took = [int(ask(smart, "shared").headers["x-enginehouse-overhead-us"]) for _ in range(50)]

    assert statistics.median(took) < 1000, took
