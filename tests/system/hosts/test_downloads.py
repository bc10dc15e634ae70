"""A model with a source is downloaded when a request first asks for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.played_hub import PlayedHub, played_hub

WEIGHTS = bytes(4 << 20)
NAME = "hf.co/org/m-GGUF:Q8_0"
CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}


@pytest.fixture
def hub() -> Iterator[PlayedHub]:
    with played_hub() as hub:
        hub.repositories["org/m-GGUF"] = {"m-Q8_0.gguf": WEIGHTS}
        yield hub


@pytest.fixture
def gateway(hub: PlayedHub, tmp_path: Path) -> Iterator[RunningGateway]:
    config = f"""
[pull]
hub = "{hub.url}"
folder = "{tmp_path}/models"
[models.m]
driver = "sim"
source = "{NAME}"
"""
    with RunningGateway(config) as gateway:
        yield gateway


def live(gateway: RunningGateway) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(plain_httpx.get(f"{gateway.url}/api/requests").content)["requests"]
    return rows


def chat(gateway: RunningGateway) -> httpx.Response:
    return plain_httpx.post(f"{gateway.url}/v1/chat/completions", json=CHAT)


def test_a_request_waits_for_the_download_and_sees_how_far_it_is(
    gateway: RunningGateway, hub: PlayedHub, tmp_path: Path
) -> None:
    hub.released = Event()
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(chat, gateway)
        status = gateway.until(
            lambda status: [each["condition"].get("why") for each in status["replicas"]] == ["50 % of 4.2 MB"]
        )
        [request] = live(gateway)
        hub.released.set()
        assert answer.result().status_code == 200, answer.result().text

    assert status["replicas"][0]["condition"]["word"] == "downloading"
    assert (request["phase"], request["progress"]) == ("downloading", "50 % of 4.2 MB")
    assert (tmp_path / "models/org/m-GGUF/m-Q8_0.gguf").stat().st_size == len(WEIGHTS)
    assert f"downloading {NAME}: 100 % of 4.2 MB" in plain_httpx.get(f"{gateway.url}/api/logs/m").text


def test_a_model_that_cannot_be_downloaded_says_why(gateway: RunningGateway, hub: PlayedHub) -> None:
    hub.gated.add("org/m-GGUF")

    answer = chat(gateway)

    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "load_failed")
    assert "accept the model's terms" in answer.json()["error"]["message"]


def test_an_unload_ends_the_download_and_the_next_load_goes_on(gateway: RunningGateway, hub: PlayedHub) -> None:
    hub.released = Event()
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(chat, gateway)
        gateway.until(
            lambda status: [each["condition"].get("why") for each in status["replicas"]] == ["50 % of 4.2 MB"]
        )
        plain_httpx.post(f"{gateway.url}/api/models/m/unload?force=true")
        assert answer.result().status_code == 503
    hub.released.set()

    assert chat(gateway).status_code == 200
