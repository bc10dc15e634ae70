"""The paths that llama-swap's page and tools use, on a real gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from enginehouse_kit.gateway import RunningGateway
from enginehouse_llama_swap.activity import histogram
from tests.support import plain_httpx

CONFIG = """
[compat]
llama_swap = true
[auth]
keys = [{ name = "op", key = "k-op-secret", admin = true }, { name = "app", key = "k-app-secret" }]
[routing.aliases]
gpt-4 = "small"
[models.small]
driver = "sim"
name = "Small one"
description = "for tests"
ttl = "10m"
[models.large]
driver = "sim"
"""
OPERATOR = {"x-api-key": "k-op-secret"}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with (
        RunningGateway(CONFIG, key="k-op-secret") as gateway,
        plain_httpx.Client(base_url=gateway.url, headers=OPERATOR, timeout=30) as client,
    ):
        yield client


def ask(client: httpx.Client, path: str = "/v1/chat/completions", **more: object) -> httpx.Response:
    body = {"model": "gpt-4", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, **more}
    return client.post(path, json=body, headers={"x-session-id": "s-1"})


def test_what_runs_is_shown_with_all_fields(client: httpx.Client) -> None:
    assert ask(client).status_code == 200
    [running] = [each for each in client.get("/running").json()["running"] if each["model"] == "small"]
    assert running.keys() >= {"model", "state", "cmd", "proxy", "ttl", "name", "description"}
    assert (running["state"], running["name"], running["description"]) == ("ready", "Small one", "for tests")
    assert running["ttl"] == 600
    assert running["proxy"].startswith("http://127.0.0.1:")


@pytest.mark.parametrize("path", ["/api/models/unload/gpt-4", "/api/models/unload"])
def test_models_are_unloaded(client: httpx.Client, path: str) -> None:
    assert ask(client).status_code == 200
    answer = client.post(path)
    assert answer.status_code == 200
    assert answer.text == "OK" if path.endswith("gpt-4") else answer.json() == {"msg": "ok"}
    assert "small" not in [each["model"] for each in client.get("/running").json()["running"]]


def test_an_unknown_model_cannot_be_unloaded(client: httpx.Client) -> None:
    assert client.post("/api/models/unload/nothing").status_code == 404


def test_the_model_list_has_both_paths(client: httpx.Client) -> None:
    ids = [[card["id"] for card in client.get(path).json()["data"]] for path in ("/models", "/v1/models")]
    assert ids[0] == ids[1]
    assert set(ids[0]) == {"small", "large", "gpt-4"}


def test_the_list_below_upstream_leads_to_the_page(client: httpx.Client) -> None:
    answer = client.get("/upstream")
    assert (answer.status_code, answer.headers["location"]) == (302, "/dashboard")


def test_there_are_no_profiles_captures_and_figures_of_the_machine(client: httpx.Client) -> None:
    assert client.get("/api/profiles").json() == {"active": None, "profiles": []}
    assert client.get("/api/captures/1").status_code == 404
    for path in ("/api/performance", "/api/hardware"):
        assert (client.get(path).status_code, client.get(path).json()) == (503, {"enabled": False})


def test_the_version_stays_the_one_for_clients_of_ollama(client: httpx.Client) -> None:
    version = client.get("/api/version").json()
    assert version["version"].count(".") == 2
    assert version["commit"].startswith("enginehouse ")


def test_activity_tells_what_requests_used(client: httpx.Client) -> None:
    for stream in (False, True):
        assert ask(client, stream=stream, stream_options={"include_usage": True} if stream else None).is_success
    page = client.get("/api/metrics/activity", params={"limit": 1, "model": "small"}).json()
    assert (page["page"], page["limit"], len(page["data"])) == (1, 1, 1)
    assert page["total"] == page["total_pages"] >= 2
    [row] = page["data"]
    assert (row["model"], row["req_path"], row["resp_status_code"]) == ("small", "/v1/chat/completions", 200)
    assert row["tokens"]["output_tokens"] == 4
    assert row["tokens"]["input_tokens"] > 0
    assert row["tokens"]["tokens_per_second"] > 0
    assert row["metadata"] == {
        "backend": "small", "caller": "op", "session": "s-1", "address": "127.0.0.1", "agent": row["metadata"]["agent"],
    }  # fmt: skip
    oldest = client.get("/api/metrics/activity", params={"order": "asc", "limit": 1}).json()["data"][0]
    assert oldest["id"] == 1
    stats = client.get("/api/metrics/stats", params={"model": "small"}).json()
    assert stats["total_requests"] == page["total"]
    assert sum(stats["gen_histogram"]["bins"]) >= 1


@pytest.mark.parametrize(
    "query", ["min_id=abc", "max_id=0", "min_id=3&max_id=2", "start=yesterday", "end=2026-01-01T00:00:00", "limit=1000"]
)
def test_a_query_that_means_nothing_is_refused(client: httpx.Client, query: str) -> None:
    assert client.get(f"/api/metrics/activity?{query}").status_code == 400


def test_ids_bound_the_activity(client: httpx.Client) -> None:
    for _ in range(3):
        assert ask(client).is_success
    rows = client.get("/api/metrics/activity?min_id=2&max_id=3").json()["data"]
    assert [row["id"] for row in rows] == [3, 2]


def messages(client: httpx.Client, wanted: set[str]) -> dict[str, Any]:
    """The first message of each type, until all ``wanted`` have come; own events have names."""
    found: dict[str, Any] = {}
    with client.stream("GET", "/api/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        name = ""
        for line in answer.iter_lines():
            if line.startswith("event:"):
                name = line.removeprefix("event:").strip()
            elif line.startswith("data:") and name == "message":
                sent = json.loads(line.removeprefix("data:"))
                found.setdefault(sent["type"], json.loads(sent["data"]))
            elif line.startswith("data:"):
                found.setdefault(f"own:{name}", json.loads(line.removeprefix("data:")))
            if wanted <= found.keys():
                break
    return found


def test_events_are_for_both_pages(client: httpx.Client) -> None:
    assert ask(client).is_success
    wanted = {"uiConfig", "profileChanged", "modelStatus", "inflight", "logData", "own:snapshot"}
    found = messages(client, wanted)
    [small] = [each for each in found["modelStatus"] if each["id"] == "small"]
    assert (small["state"], small["aliases"], small["peerID"]) == ("ready", ["gpt-4"], "")
    assert found["inflight"] == {"operation": "snapshot", "requests": []}
    assert found["logData"]["source"] in ("proxy", "upstream")
    assert {each["replica"] for each in found["own:snapshot"]["replicas"]} == {"small@small", "large@large"}


def test_a_live_request_is_in_flight_and_can_be_cancelled(client: httpx.Client) -> None:
    body = {"model": "small", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4000, "stream": True}
    with client.stream("POST", "/v1/chat/completions", json=body, headers={"x-request-id": "long"}) as answer:
        pieces = answer.iter_bytes()  # which closes the answer when it is dropped
        next(pieces)
        [row] = messages(client, {"inflight"})["inflight"]["requests"]
        assert (row["id"], row["model"], row["remote_ip"]) == ("long", "small", "127.0.0.1")
        assert client.post("/api/inflight/long/cancel").json() == {"msg": "ok"}
    assert client.post("/api/inflight/long/cancel").status_code == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/events"),
        ("GET", "/api/metrics/activity"),
        ("GET", "/api/metrics/stats"),
        ("GET", "/api/version"),
        ("GET", "/api/profiles"),
        ("GET", "/api/captures/1"),
        ("GET", "/api/performance"),
        ("POST", "/api/models/unload"),
        ("POST", "/api/models/unload/small"),
        ("POST", "/api/inflight/x/cancel"),
    ],
)
def test_the_pages_need_an_admin_key(client: httpx.Client, method: str, path: str) -> None:
    for key, status in (("", 401), ("k-app-secret", 403)):
        assert client.request(method, path, headers={"x-api-key": key}).status_code == status


def test_a_stylesheet_loads_no_model(client: httpx.Client) -> None:
    client.post("/api/models/unload/large")
    answer = client.get("/upstream/large/theme.css")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "not_loaded")
    assert "large" not in [each["model"] for each in client.get("/running").json()["running"]]
    assert client.get("/upstream/large/health").status_code == 200
    assert client.get("/upstream/large/theme.css").json().get("error", {}).get("code") != "not_loaded"


def test_bins_hold_every_known_value() -> None:
    assert histogram([-1, -1]) is None
    found = histogram([1.0, 2.0, 3.0, 4.0, 101.0, -1])
    assert found is not None
    assert sum(found["bins"]) == 5
    assert (found["min"], found["max"], found["p50"], found["p99"]) == (1.0, 101.0, 3.0, 101.0)
    same = histogram([5.0, 5.0])
    assert same is not None
    assert sum(same["bins"]) == 2
