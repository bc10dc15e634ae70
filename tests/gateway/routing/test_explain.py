from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from enginehouse import Candidate, Capabilities, Filter, Health, Requirements, Strategy
from enginehouse.domain.replica import Load
from enginehouse.drivers import support_of
from enginehouse.errors import RateLimited
from enginehouse.routing_facts import Verdict
from enginehouse_kit.testing import candidate, requirements
from tests.support.routing import BUNDLED, make_router, make_snapshot, make_strategy, take_route


def test_a_decision_is_taken_apart() -> None:
    snap = make_snapshot(
        candidate("down", "m", health=Health.UNHEALTHY),
        candidate("blind", "m", capabilities=Capabilities(vision=False)),
        candidate("busy", "m", pending=10),
        candidate("idle", "m"),
    )
    explanation = make_router().explain(requirements("m", needs_vision=True, estimated_tokens=7), snap)
    assert msgspec.to_builtins(explanation) == {
        "requested": "m",
        "resolved": "m",
        "reason": "match",
        "attempted": ["m"],
        "requirements": {
            "model": "m",
            "path": "/v1/chat/completions",
            "stream": False,
            "estimated_tokens": 7,
            "needs_vision": True,
            "needs_tools": False,
            "needs_json_mode": False,
            "rule_effects": None,
            "session": "",
            "caller": None,
            "user": None,
            "zones": (),
            "extra": {},
        },
        "candidates": [
            row("down", dropped_by="health", why="backend 'down' is unhealthy"),
            row("blind", dropped_by="capabilities", why="lacks vision"),
            row("busy", score=97, parts={"priority": 100, "load": 90, "latency": 100}),
            row("idle", score=100, parts={"priority": 100, "load": 100, "latency": 100}),
        ],
        "prefix": None,
        "chosen": "m@idle",
        "error": None,
    }


def row(backend: str, **fields: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {"score": None, "parts": {}, "dropped_by": None, "why": None}
    figures = ("slots", "free", "engine_waiting", "kv_usage", "figures_age_ms", "cached_tokens", "backlog_s")
    rates = ("ms_per_token", "ms_per_output_token")
    unknown: dict[str, Any] = {**dict.fromkeys((*figures, *rates)), "evicts": []}
    return {"replica": f"m@{backend}", "backend": backend, "model": "m", **empty, **unknown, **fields}


class Knowing(Strategy):
    """Knows what is cached, and how long a request would wait."""

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        return candidates[0]

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        return [Verdict(parts={"cached_tokens": 64, "backlog_s": 1.5}) for _ in candidates]


def test_the_figures_that_a_decision_reads_are_shown() -> None:
    busy = candidate("busy", "m", load=Load(pending=5, slots=4))
    reporting = candidate("reporting", "m", load=Load(pending=1, slots=4))
    reporting.load.report(waiting=2, kv_usage=0.5, cache_tokens=0, at=8.5)
    router = make_router(("knowing", Knowing()), now=lambda: 10.0)
    shown = router.explain(requirements("m"), make_snapshot(busy, reporting)).candidates
    assert [(each.slots, each.free) for each in shown] == [(4, 0), (4, 3)]
    assert [(each.engine_waiting, each.kv_usage) for each in shown] == [(None, None), (2, 0.5)]
    assert [each.figures_age_ms for each in shown] == [None, 1500]
    assert [(each.cached_tokens, each.backlog_s) for each in shown] == [(64, 1.5)] * 2


def test_every_model_that_was_tried_is_shown() -> None:
    chain = make_router(aliases={"x": "m"}, fallbacks={"m": ["n", "o"]})
    snap = make_snapshot(candidate("a", "m", health=Health.UNKNOWN), candidate("a", "n"), candidate("a", "o"))
    explanation = chain.explain(requirements("x"), snap)
    assert explanation.attempted == ["x", "m", "n"]
    assert [each.replica for each in explanation.candidates] == ["m@a", "n@a"]
    assert explanation.candidates[0].why == "backend 'a' has not been checked yet"
    assert (explanation.resolved, explanation.reason, explanation.chosen) == ("n", "fallback", "n@a")


def test_a_refusal_is_explained_as_a_client_would_be_told() -> None:
    snap = make_snapshot(candidate("a", "m", capabilities=Capabilities(tools=False)))
    explanation = make_router().explain(requirements("m", needs_tools=True), snap)
    assert (explanation.chosen, explanation.resolved, explanation.reason) == (None, None, None)
    assert explanation.candidates[0].dropped_by == "capabilities"
    assert explanation.error is not None
    assert explanation.error["code"] == "capability_mismatch"
    assert explanation.error["details"] == {"model": "m", "missing": ["tools"]}


@pytest.mark.parametrize("type", ["smart", "round_robin", "priority_only", "random"])
def test_explaining_foretells_every_route_and_changes_none(type: str) -> None:
    asked = make_router(type)
    snap = make_snapshot(*(candidate(name, "m", priority=n) for n, name in enumerate("abcd")))
    for _ in range(12):
        foretold = {asked.explain(requirements("m"), snap).chosen for _ in range(3)}
        foretold |= {asked.choose(requirements("m"), snap).chosen.replica for _ in range(3)}
        assert foretold == {take_route(asked, requirements("m"), snap).chosen.replica}


class Reverses(Filter):
    """Keeps the last candidates, which come first."""

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return candidates[:0:-1]

    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        return "it is the first"


@pytest.mark.parametrize("type", ["smart", "cache_aware"])
def test_an_explanation_heeds_the_order_in_which_filters_leave_the_candidates(type: str) -> None:
    asked = make_router(type, filters=[("reverses", Reverses())])
    snap = make_snapshot(*(candidate(name, "m") for name in "abc"))
    explanation = asked.explain(requirements("m"), snap)
    assert explanation.chosen == asked.choose(requirements("m"), snap).chosen.replica == "m@c"
    assert [each.replica for each in explanation.candidates] == ["m@a", "m@b", "m@c"]


class Forgetful(Strategy):
    """A strategy that has too little to say."""

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        return candidates[0]

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        return []


@pytest.mark.parametrize(
    "type", ["smart", "round_robin", "weighted", "p2c", "least_pending", "random", "session", "cache_aware"]
)
def test_no_choice_that_is_not_carried_out_changes_the_next_one(type: str) -> None:
    """Drains, hedges and retries ask too; two gateways with the same requests, only one of which has probes, agree."""
    seed: dict[str, Any] = {} if type in ("smart", "round_robin", "weighted", "cache_aware") else {"seed": 7}
    snap = make_snapshot(*(candidate(name, "m", weight=n) for n, name in enumerate("abcd", 1)))
    probed, other = (make_router((type, make_strategy(type, **seed))) for _ in range(2))
    for number in range(24):
        needs = requirements("m", session=str(number % 3))
        for _ in range(number % 3):
            probed.choose(needs, snap, exclude=("m@a",))
            probed.choose(needs, snap)
            probed.explain(needs, snap)
        assert take_route(probed, needs, snap).chosen is take_route(other, needs, snap).chosen


def test_a_strategy_that_cannot_explain_is_named() -> None:
    problem = "explained 0 of 1 candidates"
    explanation = make_router(("mine", Forgetful())).explain(requirements("m"), make_snapshot(candidate("a", "m")))
    assert explanation.error is not None
    assert explanation.error["code"] == "plugin_failed"
    assert explanation.error["message"].startswith("The strategy 'mine'")
    assert problem in explanation.error["message"]


def test_whatever_a_plugin_notes_an_explanation_can_be_printed() -> None:
    needs = requirements("m", extra={"mine.thing": Forgetful})
    explanation = make_router().explain(needs, make_snapshot(candidate("a", "m")))
    assert "Forgetful" in json.dumps(msgspec.to_builtins(explanation))


class Twice(Strategy):
    """Has the first candidate read the prompt, and the last one answer."""

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        return candidates[0]

    def pick_decode(
        self, requirements: Requirements, candidates: Sequence[Candidate], prefill: Candidate
    ) -> Candidate | None:
        return candidates[-1]


@pytest.mark.parametrize(
    ("able", "chosen", "prefill"), [("abc", "m@c", "m@a"), ("bc", "m@a", None), ("ab", "m@a", None), ("", "m@a", None)]
)
def test_the_replica_that_reads_the_prompt_is_shown(able: str, chosen: str, prefill: str | None) -> None:
    snap = make_snapshot(*(candidate(name, "m") for name in "abc"))
    made = make_router(("twice", Twice()))
    drivers = {name: support_of(BUNDLED.create("driver", "vllm" if name in able else "openai")) for name in "abc"}
    explanation = made.explain(requirements("m"), snap, drivers)
    assert (explanation.chosen, msgspec.to_builtins(explanation).get("prefill")) == (chosen, prefill)


class Refusing(Strategy):
    """Finds all candidates too slow."""

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        raise RateLimited("All are too slow")

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        return [Verdict(None, {"load": 9})]


def test_a_refusal_of_the_strategy_shows_the_candidates_too() -> None:
    explanation = make_router(("mine", Refusing())).explain(requirements("m"), make_snapshot(candidate("a", "m")))
    assert explanation.error is not None
    assert (explanation.error["code"], explanation.chosen) == ("rate_limited", None)
    assert [each.parts for each in explanation.candidates] == [{"load": 9}]
