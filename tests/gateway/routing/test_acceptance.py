"""The intelligent router's acceptance criteria, by number, from a request's bytes over a live fleet to the replica."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from enginehouse import Capabilities, Health, InvalidRequest, RequestError, Route
from enginehouse.config.schema import CheckSettings
from enginehouse.domain.errors import CapabilityMismatch, FallbackExhausted, NoHealthyBackend
from enginehouse.errors import ModelNotFound
from enginehouse.fleet.fleet import Fleet
from enginehouse.fleet.live_backend import BackendInfo
from enginehouse.routing.body.read import read_request
from enginehouse.routing.router import Router
from enginehouse.routing_facts import UNKNOWN, Reason
from tests.support.routing import make_router, make_strategy, take_route

PLAIN = {"messages": [{"role": "user", "content": "hello"}]}
IMAGE = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]}
TOOLS = {**PLAIN, "tools": [{"type": "function"}]}
JSON = {**PLAIN, "response_format": {"type": "json_object"}}


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(CheckSettings(failures=3, successes=2), lambda: 0.0)


def serve(fleet: Fleet, name: str, *models: str, priority: int = 0, **able: Any) -> None:
    capabilities = Capabilities(**able)
    declared = dict.fromkeys(models, capabilities)
    fleet.add(BackendInfo(name=name, url="", priority=priority, models=declared, health=Health.HEALTHY))


def send(router: Router, fleet: Fleet, model: str, body: dict[str, Any] = PLAIN) -> Route:
    request = read_request("/v1/chat/completions", [], json.dumps({"model": model, **body}).encode())
    return take_route(router, router.requirements(request), fleet.snapshot)


def refused(router: Router, fleet: Fleet, model: str, body: dict[str, Any] = PLAIN) -> RequestError:
    with pytest.raises(RequestError) as caught:
        send(router, fleet, model, body)
    return caught.value


def break_down(fleet: Fleet, name: str) -> None:
    for _ in range(3):
        fleet.failed(name, "connection refused")


def test_ac01_a_request_goes_to_the_backend_that_has_its_model(fleet: Fleet) -> None:
    serve(fleet, "A", "llama3:8b")
    serve(fleet, "B", "mistral:7b")
    assert send(make_router(), fleet, "llama3:8b").chosen.backend == "A"
    assert send(make_router(), fleet, "mistral:7b").chosen.backend == "B"
    error = refused(make_router(), fleet, "gpt-5")
    assert (error.status, error.message) == (404, "Model 'gpt-5' not found")


def test_ac02_only_healthy_backends_are_candidates(fleet: Fleet) -> None:
    serve(fleet, "A", "m")
    serve(fleet, "B", "m")
    break_down(fleet, "A")
    assert {send(make_router(name), fleet, "m").chosen.backend for name in ("smart", "round_robin", "random")} == {"B"}
    break_down(fleet, "B")
    assert refused(make_router(), fleet, "m").code == "no_healthy_backend"


@pytest.mark.parametrize(
    ("need", "body"), [("vision", IMAGE), ("tools", TOOLS), ("json_mode", JSON)], ids=["ac03", "ac04", "json_mode"]
)
def test_ac03_ac04_a_request_goes_where_its_needs_are_met(fleet: Fleet, need: str, body: dict[str, Any]) -> None:
    serve(fleet, "A", "m", **{need: False})
    serve(fleet, "B", "m", priority=90, **{need: True})
    assert send(make_router(), fleet, "m").chosen.backend == "A"
    assert send(make_router(), fleet, "m", body).chosen.backend == "B"
    fleet.remove("B")
    error = refused(make_router(), fleet, "m", body)
    assert isinstance(error, CapabilityMismatch)
    assert (error.status, error.missing) == (400, (need,))


def test_ac05_a_long_request_goes_where_it_fits(fleet: Fleet) -> None:
    serve(fleet, "small", "m", context_length=1000)
    serve(fleet, "large", "m", priority=90, context_length=2000)
    for characters, backend in ((4003, "small"), (4004, "large"), (8003, "large")):
        body = {"messages": [{"role": "user", "content": "x" * characters}]}
        assert send(make_router(), fleet, "m", body).chosen.backend == backend
    error = refused(make_router(), fleet, "m", {"messages": [{"role": "user", "content": "x" * 8004}]})
    assert isinstance(error, CapabilityMismatch)
    assert error.missing == ("context_length",)


def test_ac06_backends_are_scored_by_priority_load_and_latency(fleet: Fleet) -> None:
    serve(fleet, "A", "m", priority=1)
    serve(fleet, "B", "m", priority=2)
    fleet.load("A").pending = 10
    fleet.load("A").answered(50.0)
    fleet.load("B").pending = 2
    fleet.load("B").answered(200.0)
    request = read_request("/v1/chat/completions", [], json.dumps({"model": "m", **PLAIN}).encode())
    asked = make_router()
    explained = asked.explain(asked.requirements(request), fleet.snapshot).candidates
    assert [each.score for each in explained] == [
        (99 * 50 + 90 * 30 + 95 * 20) // 100,
        (98 * 50 + 98 * 30 + 80 * 20) // 100,
    ]


def test_ac07_an_alias_is_resolved_without_the_client_noticing(fleet: Fleet) -> None:
    asked = make_router(aliases={"gpt-4": "llama3:70b"})
    error = refused(asked, fleet, "gpt-4")
    assert isinstance(error, ModelNotFound)
    assert error.status == 404
    assert "gpt-4" in error.message
    assert "llama3:70b" in error.message
    serve(fleet, "A", "llama3:70b")
    route = send(asked, fleet, "gpt-4")
    assert (route.chosen.backend, route.model, route.reason) == ("A", "llama3:70b", Reason.ALIAS)


def test_ac08_the_fallback_chain_is_walked_in_order(fleet: Fleet) -> None:
    asked = make_router(fallbacks={"claude-3-opus": ["llama3:70b", "mistral:7b"]})
    unknown = refused(asked, fleet, "claude-3-opus")
    serve(fleet, "C", "claude-3-opus")
    break_down(fleet, "C")
    for error in (unknown, refused(asked, fleet, "claude-3-opus")):
        assert isinstance(error, FallbackExhausted)
        assert error.status == 503
        assert all(model in error.message for model in ("claude-3-opus", "llama3:70b", "mistral:7b"))
    serve(fleet, "A", "mistral:7b")
    assert send(asked, fleet, "claude-3-opus").model == "mistral:7b"
    serve(fleet, "B", "llama3:70b")
    assert send(asked, fleet, "claude-3-opus").model == "llama3:70b"


def test_ac09_aliases_in_a_circle_cannot_loop(fleet: Fleet) -> None:
    """Configuration refuses them; whatever came past it would end, too."""
    for name in "abc":
        assert isinstance(refused(make_router(aliases={"a": "b", "b": "c", "c": "a"}), fleet, name), ModelNotFound)
    assert isinstance(refused(make_router(aliases={"a": "a"}), fleet, "a"), ModelNotFound)


def test_ac10_every_failure_says_what_is_wrong(fleet: Fleet) -> None:
    serve(fleet, "A", "down")
    serve(fleet, "B", "plain", vision=False, tools=False)
    break_down(fleet, "A")
    asked = make_router(fallbacks={"spent": ["down"]})
    errors = {
        "": (InvalidRequest, "'model' is empty"),
        "unknown": (ModelNotFound, "Model 'unknown' not found"),
        "down": (NoHealthyBackend, "No healthy backend available for model 'down'"),
        "spent": (FallbackExhausted, "spent, down"),
    }
    for model, (kind, text) in errors.items():
        error = refused(asked, fleet, model)
        assert isinstance(error, kind)
        assert text in error.message
    mismatch = refused(asked, fleet, "plain", {**IMAGE, **{"tools": [{}]}})
    assert "'plain'" in mismatch.message
    assert "vision, tools" in mismatch.message


def test_ac11_smart_selects_the_highest_score(fleet: Fleet) -> None:
    for name, pending in (("A", 10), ("B", 2), ("C", 5)):
        serve(fleet, name, "m")
        fleet.load(name).pending = pending
    assert send(make_router("smart"), fleet, "m").chosen.backend == "B"


def test_ac12_round_robin_is_even(fleet: Fleet) -> None:
    for name in "ABC":
        serve(fleet, name, "m")
    asked = make_router("round_robin")
    assert Counter(send(asked, fleet, "m").chosen.backend for _ in range(6)) == {"A": 2, "B": 2, "C": 2}


def test_ac13_priority_only_selects_the_lowest_number(fleet: Fleet) -> None:
    serve(fleet, "B", "m", priority=2)
    serve(fleet, "A", "m", priority=1)
    fleet.load("A").pending = 99
    asked = make_router("priority_only")
    assert {send(asked, fleet, "m").chosen.backend for _ in range(10)} == {"A"}


def test_ac14_random_is_about_even(fleet: Fleet) -> None:
    for name in "ABC":
        serve(fleet, name, "m")
    asked = make_router(("random", make_strategy("random", seed=3)))
    counts = Counter(send(asked, fleet, "m").chosen.backend for _ in range(100))
    assert all(25 <= counts[name] <= 45 for name in "ABC")


def test_ac15_a_decision_takes_less_than_a_millisecond(fleet: Fleet) -> None:
    models = [f"model-{n}" for n in range(1000)]
    for number in range(100):
        serve(fleet, f"gpu-{number}", *models, tools=True, context_length=8192)
    asked = make_router()
    request = read_request("/v1/chat/completions", [], json.dumps({"model": "model-500", **TOOLS}).encode())
    required = asked.requirements(request)

    def seconds() -> float:
        start = time.thread_time()
        take_route(asked, required, fleet.snapshot)
        return time.thread_time() - start

    assert sorted(seconds() for _ in range(100))[50] < 0.001


@pytest.mark.parametrize("name", ["smart", "round_robin", "priority_only", "random"])
def test_ac16_decisions_at_the_same_time_do_not_disturb_each_other(fleet: Fleet, name: str) -> None:
    for backend in "ABCD":
        serve(fleet, backend, "m")
    asked = make_router(name)

    def many() -> Iterator[str]:
        for _ in range(500):
            yield send(asked, fleet, "m").chosen.backend

    with ThreadPoolExecutor(4) as threads:
        working = [threads.submit(lambda: list(many())) for _ in range(4)]
        for turn in range(60):
            (fleet.drain if turn % 2 == 0 else fleet.undrain)("D")
            fleet.set_models("A", {"m": Capabilities(context_length=8192 + turn)})
        chosen = Counter(backend for each in working for backend in each.result())
    assert chosen.total() == 2000
    if name in ("round_robin", "random"):
        assert min(chosen[backend] for backend in "ABC") > 300


# --- the fleet changes while requests come -----------------------------------------------------------------------


def test_a_backend_added_removed_or_failing_changes_routing_at_once(fleet: Fleet) -> None:
    asked = make_router(fallbacks={"m": ["small"]})
    serve(fleet, "A", "m")
    assert send(asked, fleet, "m").chosen.backend == "A"
    fleet.add(BackendInfo(name="B", url="", priority=5, health=Health.UNKNOWN))
    fleet.set_models("B", {"m": UNKNOWN})
    break_down(fleet, "A")
    assert isinstance(refused(asked, fleet, "m"), FallbackExhausted)
    fleet.succeeded("B")
    assert send(asked, fleet, "m").chosen.backend == "B"
    fleet.remove("B")
    serve(fleet, "C", "small")
    assert send(asked, fleet, "m").reason is Reason.FALLBACK
    fleet.succeeded("A")
    fleet.succeeded("A")
    assert send(asked, fleet, "m").reason is Reason.MATCH
    fleet.drain("A")
    assert send(asked, fleet, "m").chosen.backend == "C"
