"""A plugin that fails or returns nonsense is named by the error, and its traceback is in the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from enginehouse import (
    Candidate,
    Extractor,
    Filter,
    Headers,
    InferenceRequest,
    InvalidRequest,
    RequestError,
    Requirements,
    Strategy,
)
from enginehouse.domain.plugin_id import PluginId
from enginehouse.errors import PluginFailed
from enginehouse.routing_facts import Verdict
from enginehouse.telemetry import plugin_failures
from enginehouse_kit.testing import candidate, request, requirements
from tests.support.routing import make_router, make_snapshot, take_route

HERE = make_snapshot(candidate("a", "m"), candidate("b", "m"))


pytestmark = pytest.mark.usefixtures("every_failure")


class Keeps(Filter):
    """Keeps what ``keep`` makes of the candidates."""

    def __init__(
        self, keep: Callable[[Sequence[Candidate]], Any], why: Any = "", missing: Any = (), refusal: Any = None
    ) -> None:
        self.make, self.reason, self.lacking, self.error = keep, why, missing, refusal

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        kept: Sequence[Candidate] = self.make(candidates)
        return kept

    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        reason: str = self.reason
        return reason

    def missing(self, requirements: Requirements, candidate: Candidate) -> Sequence[str]:
        names: Sequence[str] = self.lacking
        return names

    def refusal(self, requirements: Requirements, candidates: Sequence[Candidate]) -> RequestError | None:
        error: RequestError | None = self.error
        return error


class Picks(Strategy):
    def __init__(self, pick: Callable[[Sequence[Candidate]], Any], verdicts: Any = None) -> None:
        self.choose, self.verdicts = pick, verdicts

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        chosen: Candidate = self.choose(candidates)
        return chosen

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        return [Verdict()] * len(candidates) if self.verdicts is None else self.verdicts


class Sets(Extractor):
    def __init__(self, field: str, value: object) -> None:
        self.field, self.value = field, value

    def extract(self, request: InferenceRequest, requirements: Requirements) -> None:
        setattr(requirements, self.field, self.value)


def raises(error: BaseException) -> Callable[[Sequence[Candidate]], Any]:
    def fail(candidates: Sequence[Candidate]) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    ("keep", "problem"),
    [
        (lambda found: (each for each in found), "returned an object of type generator instead of a list"),
        (lambda found: None, "returned None instead of a list of candidates"),
        (lambda found: "ab", "returned an object of type str instead"),
        (lambda found: [candidate("a", "m")], "returned something else than candidates"),
        (lambda found: [None], "returned something else than candidates"),
        (lambda found: [*found, *found], "returned something else than candidates"),
    ],
)
def test_a_filter_that_returns_nonsense_is_named(
    keep: Callable[[Sequence[Candidate]], Any], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    router = make_router(filters=[("tenant", Keeps(keep))])
    with pytest.raises(PluginFailed, match=f"^The filter 'tenant' of plugin 'acme' {problem}") as caught:
        take_route(router, requirements("m"), HERE)
    assert caught.value.details == {"kind": "filter", "type": "tenant", "plugin": "acme"}
    assert problem in caplog.text
    error = router.explain(requirements("m"), HERE).error
    assert error is not None
    assert error["code"] == "plugin_failed"


def test_a_filter_may_keep_a_tuple_or_what_it_was_given() -> None:
    for keep in (tuple, lambda found: found, lambda found: found[1:]):
        assert make_router(filters=[("tenant", Keeps(keep))]).choose(requirements("m"), HERE)


def test_a_filter_has_an_error_of_its_own() -> None:
    error = InvalidRequest("No backend is in your country")
    router = make_router(filters=[("tenant", Keeps(lambda found: [], refusal=error))])
    with pytest.raises(InvalidRequest, match="in your country"):
        take_route(router, requirements("m"), HERE)
    router = make_router(filters=[("tenant", Keeps(lambda found: [], refusal="no"))])
    with pytest.raises(PluginFailed, match=r"returned an object of type str from refusal instead of .*RequestError"):
        take_route(router, requirements("m"), HERE)


class OnlyNear(Keeps):
    """Keeps what is near a client that says so."""

    def mark(self, requirements: Requirements, headers: Headers, rehearsal: bool) -> None:
        if (b"x-near", b"a") in headers:
            requirements.extra["acme.near"] = "a"
        elif headers:
            raise ZeroDivisionError

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return [each for each in candidates if each.backend == requirements.extra.get("acme.near", each.backend)]


def test_a_filter_reads_headers_and_no_move_goes_around_it() -> None:
    router = make_router(filters=[("near", OnlyNear(list, why="far away"))])
    needs, (_, far) = requirements("m"), HERE.candidates("m")
    router.apply_rules(needs, [(b"x-near", b"a")])
    assert take_route(router, needs, HERE).chosen.backend == "a"
    assert router.why_not(needs, far) == "far away"
    with pytest.raises(PluginFailed, match="filter 'near' of plugin 'acme' failed with ZeroDivisionError"):
        router.apply_rules(requirements("m"), [(b"x-far", b"a")])


@pytest.mark.parametrize("missing", [None, "gold", [1]])
def test_a_filter_whose_reasons_are_no_names_is_named(missing: object) -> None:
    router = make_router(filters=[("tenant", Keeps(lambda found: [], missing=missing))])
    with pytest.raises(PluginFailed, match=r"filter 'tenant' of plugin 'acme' returned .* from missing"):
        take_route(router, requirements("m"), HERE)


@pytest.mark.parametrize(
    ("pick", "problem"),
    [
        (lambda found: None, "picked None instead of a candidate"),
        (lambda found: 0, "picked an object of type int instead of a candidate"),
        (lambda found: candidate("c", "m"), "picked 'm@c', which is none of the given candidates"),
    ],
)
def test_a_strategy_that_picks_nonsense_is_named_by_the_route_and_by_its_explanation(
    pick: Callable[[Sequence[Candidate]], Any], problem: str
) -> None:
    router = make_router(("mine", Picks(pick)))
    with pytest.raises(PluginFailed, match=rf"^The strategy 'mine' of plugin 'acme' {problem}$") as caught:
        take_route(router, requirements("m"), HERE)
    assert caught.value.details == {"kind": "strategy", "type": "mine", "plugin": "acme"}
    error = router.explain(requirements("m"), HERE).error
    assert error is not None
    assert problem in error["message"]


@pytest.mark.parametrize("verdicts", [1, [1, 2], [Verdict()]])
def test_a_strategy_that_explains_nonsense_is_named(verdicts: object) -> None:
    explanation = make_router(("mine", Picks(lambda found: found[0], verdicts))).explain(requirements("m"), HERE)
    assert explanation.error is not None
    assert explanation.error["details"] == {"kind": "strategy", "type": "mine", "plugin": "acme"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("estimated_tokens", "many"),
        ("estimated_tokens", -1),
        ("estimated_tokens", 1.5),
        ("extra", None),
        ("model", None),
        ("path", b"/v1"),
        ("needs_vision", "yes"),
        ("needs_tools", 1),
        ("needs_json_mode", None),
        ("stream", "no"),
    ],
)
def test_an_extractor_that_sets_a_wrong_type_is_named(field: str, value: object) -> None:
    router = make_router(extractors=[("tenant", Sets(field, value))])
    found = f"set '{field}' to|failed with TypeError"  # compiled fields take only values of their types
    with pytest.raises(PluginFailed, match=f"extractor 'tenant' of plugin 'acme' ({found})") as caught:
        router.requirements(request())
    assert caught.value.details == {"kind": "extractor", "type": "tenant", "plugin": "acme"}


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), ZeroDivisionError()])
def test_what_a_plugin_raises_is_a_failure_with_its_traceback_in_the_log(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    name = type(error).__name__
    for router in (
        make_router(filters=[("tenant", Keeps(raises(error)))]),
        make_router(("mine", Picks(raises(error)))),
    ):
        caplog.clear()
        with pytest.raises(PluginFailed, match=f"of plugin 'acme' failed with {name}"):
            take_route(router, requirements("m"), HERE)
        assert "Traceback" in caplog.text
        assert "raise error" in caplog.text


def test_a_plugin_that_always_fails_does_not_flood_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    monkeypatch.setattr(plugin_failures, "_limit", plugin_failures.RateLimit(10, lambda: now[0]))
    plugin = PluginId("filter", "tenant", "acme")
    for _ in range(100):
        plugin_failures.log_plugin_failure(plugin, "failed")
    plugin_failures.log_plugin_failure(PluginId("filter", "other", "acme"), "failed")
    assert len(caplog.records) == 2
    now[0] = 10
    plugin_failures.log_plugin_failure(plugin, "failed")
    assert (
        caplog.messages[-1] == "The filter 'tenant' of plugin 'acme' failed (99 more failures since the last message)"
    )


def test_an_error_that_a_plugin_means_for_the_client_passes() -> None:
    with pytest.raises(RequestError, match=r"^not now$"):
        make_router(filters=[("tenant", Keeps(raises(RequestError("not now"))))]).choose(requirements("m"), HERE)
