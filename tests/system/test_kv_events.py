"""The index of prefixes is exact where engines publish the events of their caches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx as http

pytest.importorskip("zmq")

PROMPT = " ".join(f"word{n}" for n in range(150))
"""1,190 characters: four fine chunks of 64 tokens."""
OTHER = " ".join(f"some{n}" for n in range(385))
BLOCKS = 200
"""Of four tokens; the second prompt leaves no room for the first one."""


def engine(folder: Path, name: str) -> SimEngine:
    events = {"endpoint": f"ipc://{folder}/{name}", "replay_endpoint": f"ipc://{folder}/{name}-again", "topic": "kv"}
    config = msgspec.json.encode(events).decode()
    return SimEngine("m", block_size=4, num_gpu_blocks=BLOCKS, kv_events_config=config, max_model_len=4096)


def backend(folder: Path, name: str, url: str) -> str:
    return f"""
[backends.{name}]
driver = "sim"
url = "{url}"
kv_events = {{ endpoint = "ipc://{folder}/{name}", replay = "ipc://{folder}/{name}-again", topic = "kv" }}
"""


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[dict[str, SimEngine]]:
    with engine(tmp_path, "a") as a, engine(tmp_path, "b") as b:
        yield {"a": a, "b": b}


@pytest.fixture
def gateway(engines: dict[str, SimEngine], tmp_path: Path) -> Iterator[RunningGateway]:
    with RunningGateway("".join(backend(tmp_path, name, each.url) for name, each in engines.items())) as gateway:
        gateway.until_health(a="healthy", b="healthy")
        gateway.until(follows_all)
        yield gateway


def follows_all(status: Any) -> bool:
    return all(each["connected"] and each["exact"] for each in status["kv_events"])


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[RunningGateway]:
    options = f"block_size = 4, num_gpu_blocks = {BLOCKS}"
    model = f'driver = "sim"\noptions = {{ {options} }}\ncontext_length = 4096\nreplicas = 2\nkv_events = true\n'
    rules = "".join(f'[[routing.rules]]\nheader = "x-to: {each}"\nbackends = ["{each}"]\n' for each in ("m", "m-2"))
    with RunningGateway(f"{rules}[models.m]\n{model}preload = true\n") as gateway:
        gateway.until(lambda status: all(each["state"] == "ready" for each in status["replicas"]))
        gateway.until(follows_all)
        yield gateway


def test_engines_that_the_gateway_launches_publish_their_events_too(launched: RunningGateway) -> None:
    first = ask(launched.url, PROMPT)
    launched.until(lambda _: cached(launched)[first] == 256)
    asked = {"model": "m", "prompt": OTHER, "max_tokens": 2}
    assert http.post(f"{launched.url}/v1/completions", json=asked, headers={"x-to": first}).status_code == 200
    launched.until(lambda _: cached(launched)[first] == 0)


def ask(url: str, prompt: str, **fields: object) -> str:
    body = {"model": "m", "prompt": prompt, "max_tokens": 2, **fields}
    answer = http.post(f"{url}/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.headers.get("x-enginehouse-backend", ""))


def cached(gateway: RunningGateway, prompt: str = PROMPT) -> dict[str, int]:
    """The tokens of ``prompt`` that each engine has, as the gateway believes."""
    body = {"model": "m", "prompt": prompt}
    shown = http.post(f"{gateway.url}/api/explain/route?path=/v1/completions", json=body).json()
    return {each["backend"]: each["cached_tokens"] for each in shown["candidates"]}


def test_what_engines_store_and_evict_is_known_whoever_asks_them(
    gateway: RunningGateway, engines: dict[str, SimEngine]
) -> None:
    first = ask(gateway.url, PROMPT)
    other = "b" if first == "a" else "a"
    gateway.until(lambda _: cached(gateway) == {first: 256, other: 0})
    ask(engines[other].url, PROMPT)  # past the gateway
    gateway.until(lambda _: cached(gateway) == {first: 256, other: 256})
    ask(engines[first].url, OTHER)
    gateway.until(lambda _: cached(gateway) == {first: 0, other: 256})
    assert ask(gateway.url, PROMPT) == other


def test_an_engine_that_is_launched_anew_has_nothing(
    gateway: RunningGateway, engines: dict[str, SimEngine], tmp_path: Path
) -> None:
    first = ask(gateway.url, PROMPT)
    gateway.until(lambda _: cached(gateway)[first] == 256)
    engines[first].__exit__(None, None, None)
    gateway.until(lambda status: not follows_all(status))
    with engine(tmp_path, first) as again:
        gateway.write_config(
            "".join(backend(tmp_path, n, (again if n == first else e).url) for n, e in engines.items())
        )
        gateway.reload()
        gateway.until_health(a="healthy", b="healthy")
        gateway.until(lambda status: follows_all(status) and cached(gateway).get(first) == 0)


def test_a_router_that_a_reload_brings_learns_what_the_engines_have(
    gateway: RunningGateway, engines: dict[str, SimEngine], tmp_path: Path
) -> None:
    text = "".join(backend(tmp_path, name, each.url) for name, each in engines.items())
    gateway.write_config(text + "[plugins.cache_aware]\npriority_s = 2.0\n")
    gateway.reload()
    gateway.until(lambda _: "was reloaded" in gateway.log)
    gateway.until(lambda _: evicted(gateway, engines))


def evicted(gateway: RunningGateway, engines: dict[str, SimEngine]) -> bool:
    """Whether the gateway notices that an engine evicts what it was sent."""
    holder = ask(gateway.url, PROMPT)
    ask(engines[holder].url, OTHER)
    return cached(gateway)[holder] == 0
