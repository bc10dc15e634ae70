"""Clients of Ollama pull and delete models of a gateway."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from enginehouse import EnginehouseError
from enginehouse.app import Gateway
from enginehouse.config.schema import Config
from enginehouse.model_sources import PulledModels, PullProgress
from enginehouse_pull.pages import _lines
from tests.support import plain_httpx
from tests.support.installed_plugins import installed_plugins
from tests.support.played_hub import PlayedHub, played_hub
from tests.support.waiting import within

WEIGHTS = b"weights" * 1000
KEY = {"authorization": "Bearer ops-secret"}


@pytest.fixture
def hub() -> Iterator[PlayedHub]:
    with played_hub() as hub:
        hub.models["library/llama3.2:1b"] = [("model", WEIGHTS)]
        yield hub


@pytest.fixture
async def gateway(hub: PlayedHub, tmp_path: Path) -> Gateway:
    config = {
        "models": {"served": {"driver": "sim"}},
        "pull": {"hub": hub.url, "registry": hub.url, "folder": str(tmp_path)},
        "auth": {"keys": [{"name": "ops", "key": "ops-secret", "admin": True}, {"name": "team", "key": "team-secret"}]},
    }
    served = Gateway(msgspec.convert(config, Config), installed_plugins())
    served.build_hosts()
    return served


@pytest.fixture
def client(gateway: Gateway) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(gateway.application)
    return plain_httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=KEY)


def weights(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.read_bytes() == WEIGHTS]


async def test_a_model_is_pulled_with_its_progress_and_deleted(client: httpx.AsyncClient, tmp_path: Path) -> None:
    answer = await client.post("/api/pull", json={"model": "llama3.2:1b"})
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert (lines[0], lines[-1]) == ({"status": "pulling manifest"}, {"status": "success"})
    assert (lines[-2]["completed"], lines[-2]["total"]) == (len(WEIGHTS), len(WEIGHTS))
    assert re.fullmatch("sha256:[0-9a-f]{64}", lines[-2]["digest"]), "older commands of Ollama fail for a shorter one"
    assert weights(tmp_path)
    assert (await client.request("DELETE", "/api/delete", json={"model": "llama3.2:1b"})).status_code == 200
    assert not weights(tmp_path)
    gone = await client.request("DELETE", "/api/delete", json={"name": "llama3.2:1b"})
    assert (gone.status_code, "llama3.2:1b" in gone.json()["error"]) == (404, True)


@pytest.mark.parametrize("name", ["llama3.2:1b", "served", "served:latest"])
async def test_a_pull_without_a_stream_has_one_answer(client: httpx.AsyncClient, hub: PlayedHub, name: str) -> None:
    answer = await client.post("/api/pull", json={"model": name, "stream": False})
    assert (answer.status_code, answer.json()) == (200, {"status": "success"})
    assert bool(hub.asked) is (name == "llama3.2:1b"), "what the gateway serves is there already"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_pull_ends_when_the_gateway_stops_although_no_byte_arrives(
    client: httpx.AsyncClient, gateway: Gateway, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    asked, arrives, given_up = threading.Event(), threading.Event(), threading.Event()

    def silent(models: PulledModels, name: str, progress: PullProgress) -> Path:
        asked.set()
        arrives.wait()
        try:
            progress(1, None)
        except EnginehouseError:
            given_up.set()
        return Path()

    monkeypatch.setattr(PulledModels, "pull", silent)
    pull = asyncio.ensure_future(client.post("/api/pull", json={"model": "llama3.2:1b", "stream": stream}))
    await asyncio.to_thread(asked.wait)
    gateway.closing.set()
    try:
        answer = await within(pull)
    finally:
        arrives.set()
    assert "was abandoned: pull again" in json.loads(answer.text.splitlines()[-1])["error"]
    await asyncio.to_thread(given_up.wait)


async def test_slow_pulls_take_no_thread_of_the_gateway(
    client: httpx.AsyncClient, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrives, running = threading.Event(), threading.Semaphore(0)
    most = [0, 0]
    counting = threading.Lock()

    def slow(models: PulledModels, name: str, progress: PullProgress) -> Path:
        with counting:
            most[0] += 1
            most[1] = max(most)
        running.release()
        arrives.wait()
        with counting:
            most[0] -= 1
        return Path()

    monkeypatch.setattr(PulledModels, "pull", slow)
    pulls = [asyncio.ensure_future(client.post("/api/pull", json={"model": f"llama3.2:{n}b"})) for n in range(40)]
    try:
        await within(asyncio.to_thread(lambda: [running.acquire() for _ in range(4)]))
        assert await within(asyncio.gather(*(asyncio.to_thread(int, "1") for _ in range(40)))) == [1] * 40
    finally:
        arrives.set()
    answers = await within(asyncio.gather(*pulls))
    assert {json.loads(answer.text.splitlines()[-1])["status"] for answer in answers} == {"success"}
    assert most[1] == 4


@pytest.mark.parametrize("body", [b"{}", b'{"model": ""}', b'{"name": ""}', b'{"stream": false}'])
async def test_without_a_name_nothing_is_pulled_or_deleted(
    client: httpx.AsyncClient, tmp_path: Path, body: bytes
) -> None:
    await client.post("/api/pull", json={"model": "llama3.2:1b"})
    for method, path in (("DELETE", "/api/delete"), ("POST", "/api/pull")):
        refused = await client.request(method, path, content=body)
        assert (refused.status_code, refused.json()) == (400, {"error": "model is required"})
    assert weights(tmp_path)


async def test_what_cannot_be_pulled_is_an_error_in_ollamas_form(client: httpx.AsyncClient) -> None:
    unknown = await client.post("/api/pull", json={"model": "nothing:1b", "stream": False})
    assert (unknown.status_code, "nothing:1b" in unknown.json()["error"]) == (500, True)
    streamed = await client.post("/api/pull", json={"model": "nothing:1b"})
    assert "nothing:1b" in json.loads(streamed.text.splitlines()[-1])["error"]
    for wrong in (b'{"model": "what?!"}', b"{", b'{"model": "\xff"}', b'{"x":' + b"[" * 100_000):
        refused = await client.post("/api/pull", content=wrong)
        assert (refused.status_code, bool(refused.json()["error"])) == (400, True)
    undeleted = await client.request("DELETE", "/api/delete", content=b'{"model": "\xff"}')
    assert undeleted.status_code == 400


@pytest.mark.parametrize(("method", "path"), [("POST", "/api/pull"), ("DELETE", "/api/delete")])
async def test_pulling_is_for_operators(client: httpx.AsyncClient, method: str, path: str) -> None:
    headers = {"authorization": "Bearer team-secret"}
    assert (await client.request(method, path, json={"model": "m"}, headers=headers)).status_code == 403


async def test_no_progress_is_lost_while_a_client_reads_slowly(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, reported, ends = threading.Event(), threading.Event(), threading.Event()

    def pull(models: PulledModels, name: str, progress: PullProgress) -> Path:
        progress(1, 2)
        seen.wait()
        progress(2, 2)
        reported.set()
        ends.wait()
        return Path()

    monkeypatch.setattr(PulledModels, "pull", pull)
    facts = gateway.application.state.facts
    lines = _lines(facts, facts.pulled(), "llama3.2:1b", asyncio.Semaphore())
    assert [await within(anext(lines)) for _ in range(2)][-1]["completed"] == 1
    seen.set()
    await within(asyncio.to_thread(reported.wait))
    assert (await within(anext(lines)))["completed"] == 2
    ends.set()
    assert await within(anext(lines)) == {"status": "success"}
