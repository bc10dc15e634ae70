from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from enginehouse import (
    Candidate,
    Capabilities,
    Extractor,
    Filter,
    Health,
    InferenceRequest,
    InvalidRequest,
    ReplicaState,
    RequestError,
    Requirements,
    Strategy,
)
from enginehouse.domain.errors import CapabilityMismatch, FallbackExhausted, NoHealthyBackend
from enginehouse.domain.replica import Snapshot
from enginehouse.errors import ModelNotFound, PluginFailed, RateLimited
from enginehouse.routing.body.read import read_request
from enginehouse.routing.router import Router
from enginehouse.routing_facts import Reason
from enginehouse_kit.testing import candidate, request, requirements
from tests.support.routing import make_router, make_snapshot, take_route

DOWN: dict[str, Any] = {"health": Health.UNHEALTHY}
BLIND: dict[str, Any] = {"capabilities": Capabilities(vision=False)}


def test_a_traced_route_names_few_losers() -> None:
    snapshot = make_snapshot(*(candidate(f"e{number}", "m") for number in range(30)))
    details = make_router().choose(requirements("m"), snapshot, traced_at=5.0).details
    assert details is not None
    assert (details.began, details.candidates, len(details.losers)) == (5.0, 30, 10)


# --- aliases and fallbacks ---------------------------------------------------------------------------------------


def test_a_route_tells_what_was_asked_and_what_serves() -> None:
    route = make_router().choose(requirements("m"), make_snapshot(candidate("a", "m")))
    assert (route.requested, route.model, route.chosen.replica) == ("m", "m", "m@a")
    assert (route.reason, route.attempted) == (Reason.MATCH, ("m",))


def test_an_alias_is_tried_after_the_name_itself() -> None:
    both = make_snapshot(candidate("a", "gpt-4"), candidate("b", "llama"))
    assert take_route(make_router(aliases={"gpt-4": "llama"}), requirements("gpt-4"), both).chosen.replica == "gpt-4@a"


@pytest.mark.parametrize("own", [[], [candidate("a", "gpt-4", **DOWN)]])
def test_an_alias_is_taken_when_the_name_itself_cannot_serve(own: list[Candidate]) -> None:
    route = make_router(aliases={"gpt-4": "llama"}).choose(
        requirements("gpt-4"), make_snapshot(*own, candidate("b", "llama"))
    )
    assert (route.requested, route.model, route.reason) == ("gpt-4", "llama", Reason.ALIAS)
    assert route.attempted == ("gpt-4", "llama")


def test_an_alias_of_an_alias_is_not_followed() -> None:
    with pytest.raises(ModelNotFound):
        make_router(aliases={"a": "b", "b": "c"}).choose(requirements("a"), make_snapshot(candidate("x", "c")))


def test_a_model_that_a_backend_may_still_list_is_unavailable_and_not_unknown() -> None:
    known = Snapshot({"m": (candidate("a", "m"),)}, unlisted=("b", "c"))
    with pytest.raises(NoHealthyBackend, match="'n'; not known yet are the models of b, c") as unavailable:
        take_route(make_router(aliases={"x": "n"}), requirements("n"), known)
    assert unavailable.value.retry_after
    with pytest.raises(NoHealthyBackend):
        take_route(make_router(aliases={"x": "n"}), requirements("x"), known)


def test_fallbacks_are_tried_in_order() -> None:
    chain = make_router(fallbacks={"m": ["n", "o", "p"]})
    route = chain.choose(requirements("m"), make_snapshot(candidate("x", "o"), candidate("x", "p")))
    assert (route.model, route.reason, route.attempted) == ("o", Reason.FALLBACK, ("m", "n", "o"))


def test_a_fallbacks_own_fallbacks_are_not_followed() -> None:
    here = make_snapshot(candidate("x", "o"), candidate("x", "n", **DOWN))
    with pytest.raises(FallbackExhausted) as caught:
        take_route(make_router(fallbacks={"m": ["n"], "n": ["o"]}), requirements("m"), here)
    assert caught.value.attempted == ("m", "n")


def test_an_unavailable_alias_falls_back_as_its_target_does_and_then_as_itself() -> None:
    chain = make_router(
        aliases={"gpt-4": "big"}, fallbacks={"big": ["small", "tiny"], "gpt-4": ["tiny", "last", "big"]}
    )
    with pytest.raises(FallbackExhausted) as caught:
        chain.choose(requirements("gpt-4"), make_snapshot(candidate("x", "tiny", **DOWN)))
    assert caught.value.attempted == ("gpt-4", "big", "small", "tiny", "last")
    route = chain.choose(requirements("gpt-4"), make_snapshot(candidate("x", "last"), candidate("x", "small")))
    assert (route.model, route.reason, route.attempted) == ("small", Reason.FALLBACK, ("gpt-4", "big", "small"))


def test_without_fallbacks_a_name_leads_to_itself_or_what_it_stands_for() -> None:
    chain = make_router(aliases={"gpt-4": "big"}, fallbacks={"big": ["small"], "gpt-4": ["small"]})
    route = chain.choose(requirements("gpt-4"), make_snapshot(candidate("b", "big")), fallbacks=False)
    assert (route.model, route.reason) == ("big", Reason.ALIAS)
    down = make_snapshot(candidate("b", "big", **DOWN), candidate("s", "small"))
    for name in ("gpt-4", "big"):
        assert take_route(chain, requirements(name), down).reason is Reason.FALLBACK
        with pytest.raises(NoHealthyBackend):
            chain.choose(requirements(name), down, fallbacks=False)


def test_a_fallback_must_have_the_capabilities_too() -> None:
    chain = make_router(fallbacks={"m": ["blind", "seeing"]})
    snap = make_snapshot(candidate("a", "m", **BLIND), candidate("b", "blind", **BLIND), candidate("c", "seeing"))
    assert take_route(chain, requirements("m", needs_vision=True), snap).model == "seeing"


def test_cold_replicas_are_candidates() -> None:
    cold = candidate("a", "m", state=ReplicaState.STOPPED, wake_s=20.0)
    assert take_route(make_router(), requirements("m"), make_snapshot(cold)).chosen is cold
    warm = candidate("b", "m")
    assert take_route(make_router(), requirements("m"), make_snapshot(cold, warm)).chosen is warm


# --- retries -----------------------------------------------------------------------------------------------------


def test_a_retry_goes_somewhere_else_and_says_so() -> None:
    snap = make_snapshot(candidate("a", "m"), candidate("b", "m"))
    route = make_router().choose(requirements("m"), snap, exclude={"m@a"})
    assert (route.chosen.backend, route.reason, route.attempted) == ("b", Reason.RETRY, ("m",))


def test_a_retry_may_go_to_the_alias() -> None:
    snap = make_snapshot(candidate("a", "n"), candidate("b", "n"))
    route = make_router(aliases={"m": "n"}).choose(requirements("m"), snap, exclude=["n@a"])
    assert (route.chosen.replica, route.reason, route.attempted) == ("n@b", Reason.RETRY, ("m", "n"))


def test_a_retry_that_needs_a_fallback_is_a_fallback() -> None:
    snap = make_snapshot(candidate("a", "m"), candidate("a", "n"))
    route = make_router(fallbacks={"m": ["n"]}).choose(requirements("m"), snap, exclude={"m@a"})
    assert (route.chosen.replica, route.reason) == ("n@a", Reason.FALLBACK)


def test_a_retry_with_nowhere_to_go_finds_no_healthy_backend() -> None:
    with pytest.raises(NoHealthyBackend):
        make_router().choose(requirements("m"), make_snapshot(candidate("a", "m")), exclude={"m@a"})


# --- errors ------------------------------------------------------------------------------------------------------


def refused(router: Router, needs: Requirements, snap: Snapshot) -> RequestError:
    with pytest.raises(RequestError) as caught:
        take_route(router, needs, snap)
    return caught.value


def test_no_backends_at_all_is_model_not_found() -> None:
    error = refused(make_router(), requirements("gpt-5"), make_snapshot())
    assert isinstance(error, ModelNotFound)
    assert (error.status, error.message) == (404, "Model 'gpt-5' not found")


def test_an_alias_of_an_unknown_model_names_both() -> None:
    error = refused(make_router(aliases={"gpt-4": "llama3:70b"}), requirements("gpt-4"), make_snapshot())
    assert isinstance(error, ModelNotFound)
    assert "'gpt-4'" in error.message
    assert "'llama3:70b'" in error.message


@pytest.mark.parametrize("fields", [DOWN, {"health": Health.UNKNOWN}, {"draining": True}])
def test_all_backends_out_is_no_healthy_backend(fields: dict[str, Any]) -> None:
    error = refused(make_router(), requirements("m"), make_snapshot(candidate("a", "m", **fields)))
    assert isinstance(error, NoHealthyBackend)
    assert (error.status, error.code) == (503, "no_healthy_backend")
    assert error.retry_after


def test_all_unhealthy_is_no_healthy_backend_whatever_they_lack() -> None:
    error = refused(
        make_router(), requirements("m", needs_vision=True), make_snapshot(candidate("a", "m", **DOWN, **BLIND))
    )
    assert isinstance(error, NoHealthyBackend)


def test_an_alias_with_an_unhealthy_target_is_no_healthy_backend() -> None:
    error = refused(make_router(aliases={"x": "m"}), requirements("x"), make_snapshot(candidate("a", "m", **DOWN)))
    assert isinstance(error, NoHealthyBackend)


def test_a_known_name_with_an_unknown_alias_target_tells_of_the_name() -> None:
    error = refused(
        make_router(aliases={"m": "nowhere"}), requirements("m"), make_snapshot(candidate("a", "m", **DOWN))
    )
    assert isinstance(error, NoHealthyBackend)


@pytest.mark.parametrize(
    ("needs", "capabilities", "missing"),
    [
        ({"needs_vision": True}, {"vision": False}, ["vision"]),
        ({"needs_tools": True}, {"tools": False}, ["tools"]),
        ({"needs_json_mode": True}, {"json_mode": False}, ["json_mode"]),
        ({"estimated_tokens": 101}, {"context_length": 100}, ["context_length"]),
        (
            {"needs_vision": True, "needs_tools": True, "needs_json_mode": True, "estimated_tokens": 101},
            {"vision": False, "tools": False, "json_mode": False, "context_length": 100},
            ["vision", "tools", "json_mode", "context_length"],
        ),
        ({"needs_tools": True, "estimated_tokens": 101}, {"context_length": 100}, ["context_length"]),
    ],
)
def test_all_that_is_missing_is_listed(needs: dict[str, Any], capabilities: dict[str, Any], missing: list[str]) -> None:
    snap = make_snapshot(candidate("a", "m", capabilities=Capabilities(**capabilities)))
    error = refused(make_router(), requirements("m", **needs), snap)
    assert isinstance(error, CapabilityMismatch)
    assert (error.status, error.details["missing"]) == (400, missing)
    assert all(name in error.message for name in missing)


def test_what_different_backends_lack_is_listed_together() -> None:
    snap = make_snapshot(
        candidate("a", "m", capabilities=Capabilities(tools=False, context_length=10)),
        candidate("b", "m", capabilities=Capabilities(vision=False)),
    )
    error = refused(make_router(), requirements("m", needs_vision=True, needs_tools=True, estimated_tokens=50), snap)
    assert error.details["missing"] == ["vision", "tools", "context_length"]


def test_what_an_unhealthy_backend_lacks_is_not_listed() -> None:
    snap = make_snapshot(
        candidate("a", "m", health=Health.UNHEALTHY, capabilities=Capabilities(tools=False)),
        candidate("b", "m", capabilities=Capabilities(vision=False)),
    )
    error = refused(make_router(), requirements("m", needs_vision=True, needs_tools=True), snap)
    assert error.details["missing"] == ["vision"]


def test_a_spent_chain_lists_all_that_was_attempted_and_why() -> None:
    chain = make_router(aliases={"opus": "m"}, fallbacks={"m": ["n", "o"]})
    snap = make_snapshot(candidate("a", "m", **DOWN), candidate("a", "o", **BLIND))
    error = refused(chain, requirements("opus", needs_vision=True), snap)
    assert isinstance(error, FallbackExhausted)
    assert (error.status, error.code) == (503, "fallback_exhausted")
    assert error.details == {
        "attempted": ["opus", "m", "n", "o"],
        "reasons": {
            "opus": "model_not_found",
            "m": "no_healthy_backend",
            "n": "model_not_found",
            "o": "capability_mismatch",
        },
    }
    assert all(model in error.message for model in ("opus", "m", "n", "o"))


def test_a_chain_of_unknown_models_is_spent() -> None:
    chain = make_router(aliases={"opus": "m"}, fallbacks={"m": ["n"]})
    error = refused(chain, requirements("opus"), make_snapshot(candidate("a", "other")))
    assert isinstance(error, FallbackExhausted)
    assert (error.status, error.code, error.retry_after) == (503, "fallback_exhausted", 5)
    assert error.message.endswith("opus, m, n")
    assert error.details == {
        "attempted": ["opus", "m", "n"],
        "reasons": dict.fromkeys(("opus", "m", "n"), "model_not_found"),
    }


def test_a_chain_in_which_no_model_has_the_capability_is_a_mismatch() -> None:
    snap = make_snapshot(candidate("a", "n", **BLIND), candidate("a", "o", capabilities=Capabilities(vision=False)))
    error = refused(make_router(fallbacks={"m": ["n", "o"]}), requirements("m", needs_vision=True), snap)
    assert isinstance(error, CapabilityMismatch)
    assert (error.status, error.retry_after, error.details["missing"]) == (400, None, ["vision"])
    assert error.details["attempted"] == ["m", "n", "o"]


@pytest.mark.parametrize("chain", [{"m": []}, {"m": ["m"]}])
def test_an_empty_chain_is_no_chain(chain: dict[str, list[str]]) -> None:
    assert isinstance(refused(make_router(fallbacks=chain), requirements("m"), make_snapshot()), ModelNotFound)


# --- plugins -----------------------------------------------------------------------------------------------------


class Refuse(Filter):
    """Drops every candidate, for want of what it is told, or raises."""

    def __init__(self, *missing: str, error: Exception | None = None) -> None:
        self.lacking = missing
        self.error = error

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        if self.error:
            raise self.error
        return []

    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        return "refused"

    def missing(self, requirements: Requirements, candidate: Candidate) -> Sequence[str]:
        return self.lacking


def test_what_third_party_filters_miss_comes_after_the_known_names() -> None:
    filters = [("a", Refuse("gold", "tools")), ("b", Refuse("audio", "vision"))]
    error = refused(make_router(filters=filters), requirements("m"), make_snapshot(candidate("a", "m")))
    assert error.details["missing"] == ["vision", "tools", "gold", "audio"]


def test_a_filter_that_drops_all_without_a_missing_capability_is_no_healthy_backend() -> None:
    filters = [("a", Refuse()), ("b", Refuse("audio"))]
    error = refused(make_router(filters=filters), requirements("m"), make_snapshot(candidate("a", "m")))
    assert isinstance(error, NoHealthyBackend)


def test_a_filter_that_raises_is_named() -> None:
    filters = [("tenant", Refuse(error=TypeError("secret")))]
    error = refused(make_router(filters=filters), requirements("m"), make_snapshot(candidate("a", "m")))
    assert isinstance(error, PluginFailed)
    assert error.message == "The filter 'tenant' of plugin 'acme' failed with TypeError"
    assert error.details == {"kind": "filter", "type": "tenant", "plugin": "acme"}


def test_a_filter_may_refuse_a_request() -> None:
    filters = [("tenant", Refuse(error=RateLimited("not now")))]
    assert isinstance(
        refused(make_router(filters=filters), requirements("m"), make_snapshot(candidate("a", "m"))), RateLimited
    )


class Broken(Strategy):
    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        raise LookupError("secret")


def test_a_strategy_that_raises_is_named() -> None:
    error = refused(make_router(("mine", Broken())), requirements("m"), make_snapshot(candidate("a", "m")))
    assert isinstance(error, PluginFailed)
    assert error.message == "The strategy 'mine' of plugin 'acme' failed with LookupError"


def test_filters_run_in_the_configured_order_and_only_those() -> None:
    snap = make_snapshot(candidate("a", "m", **DOWN))
    assert make_router(bundled_filters=("capabilities",)).choose(requirements("m"), snap).chosen.backend == "a"
    error = refused(
        make_router(bundled_filters=("capabilities", "health")),
        requirements("m", needs_vision=True),
        make_snapshot(candidate("a", "m", **DOWN, **BLIND)),
    )
    assert isinstance(error, CapabilityMismatch)


# --- extractors -----------------------------------------------------------------------------------------------------


def test_the_router_runs_all_extractors_on_what_was_read() -> None:
    raw = json.dumps(
        {"model": "m", "stream": True, "tools": [{}], "messages": [{"role": "user", "content": "12345678"}]}
    ).encode()
    requirements = make_router().requirements(read_request("/v1/chat/completions", [], raw))
    assert requirements == Requirements(model="m", stream=True, estimated_tokens=2, needs_tools=True)


class FailingExtractor(Extractor):
    def __init__(self, error: Exception) -> None:
        self.error = error

    def extract(self, request: InferenceRequest, requirements: Requirements) -> None:
        raise self.error


def test_an_extractor_that_raises_is_named() -> None:
    with pytest.raises(PluginFailed, match="extractor 'tenant' of plugin 'acme' failed with KeyError") as caught:
        make_router(extractors=[("tenant", FailingExtractor(KeyError("secret")))]).requirements(request())
    assert caught.value.status == 500
    assert "secret" not in caught.value.message
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_extractor_may_refuse_a_request() -> None:
    with pytest.raises(InvalidRequest, match="no tenant"):
        make_router(extractors=[("tenant", FailingExtractor(InvalidRequest("no tenant")))]).requirements(request())
