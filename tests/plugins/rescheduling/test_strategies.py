from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from enginehouse import Candidate, ConfigError, Requirements, Role, Strategy
from enginehouse.errors import RateLimited
from enginehouse.rescheduling import ReschedulingSettings
from enginehouse.routing_facts import Load
from enginehouse_kit.testing import create
from tests.support.cluster_views import NOW_MS, half_batch_profile, instance, view
from tests.support.routing import take_pick

SETTINGS = ReschedulingSettings()


def candidate(name: str, pending: int = 0) -> Candidate:
    return Candidate(model="m", backend=name, replica=f"m@{name}", load=Load(pending=pending))


def asks(tokens: int = 100) -> Requirements:
    return Requirements(model="m", estimated_tokens=tokens)


def strategy(type: str, *instances: Any, settings: ReschedulingSettings = SETTINGS, **parameters: Any) -> Strategy:
    made: Strategy = create("strategy", type, parameters)
    made.on_view(view(*instances), settings)
    return made


def prompts(name: str, tokens: int, **fields: Any) -> Any:
    return instance(name, num_uncomputed_tokens_all_waiting_prefills=tokens, timestamp_ms=NOW_MS, **fields)


ABC = [candidate(name) for name in "abc"]


def picked(made: Strategy, tokens: int = 100, candidates: Any = ABC) -> str:
    return take_pick(made, asks(tokens), candidates).backend


def test_the_instance_with_the_fewest_prompts_is_picked() -> None:
    assert picked(strategy("llumnix_load", prompts("a", 300), prompts("b", 100), prompts("c", 200))) == "b"


def test_requests_count_before_engines_report_them() -> None:
    made = strategy("llumnix_load", prompts("a", 0), prompts("b", 150), prompts("c", 250))

    assert [picked(made) for _ in range(5)] == ["a", "a", "b", "a", "b"]


def test_a_new_view_replaces_the_account() -> None:
    made = strategy("llumnix_load", prompts("a", 0), prompts("b", 50))
    picked(made)
    made.on_view(view(prompts("a", 0), prompts("b", 50)), SETTINGS)

    assert picked(made, candidates=ABC[:2]) == "a"


def test_an_instance_at_its_threshold_is_picked_only_if_all_are() -> None:
    full, free = prompts("a", 2048, role=Role.PREFILL), prompts("b", 3000)

    assert picked(strategy("llumnix_load", full, free), candidates=ABC[:2]) == "b"
    assert picked(strategy("llumnix_load", full, prompts("b", 9000)), candidates=ABC[:2]) == "a"


@pytest.mark.parametrize("failing", [{"schedulable": False}, {"timestamp_ms": NOW_MS - 70_000}])
def test_a_failing_instance_comes_last(failing: dict[str, Any]) -> None:
    made = strategy("llumnix_load", instance("a", **failing), prompts("b", 9999))

    assert picked(made, candidates=ABC[:2]) == "b"


@pytest.mark.parametrize("type", ["llumnix_load", "slo"])
def test_without_figures_the_fewest_pending_requests_decide(type: str) -> None:
    made: Strategy = create("strategy", type)

    assert picked(made, candidates=[candidate("a", 2), candidate("b", 1), candidate("c", 1)]) == "b"


def test_another_metric() -> None:
    made = strategy(
        "llumnix_load", instance("a", 0.9), instance("b", 0.1), neutral_metric="kv_cache_usage_ratio_projected"
    )

    assert picked(made, candidates=ABC[:2]) == "b"
    with pytest.raises(ConfigError, match="there is no metric 'kv'"):
        create("strategy", "llumnix_load", {"neutral_metric": "kv"})


def test_the_shortest_predicted_time_is_picked(tmp_path: Path) -> None:
    """The profile takes a millisecond for a token of a prompt, and half a one for a request that decodes."""
    settings = msgspec.convert(half_batch_profile(tmp_path), ReschedulingSettings)
    made = strategy("slo", prompts("a", 900), prompts("b", 400), prompts("c", 600), settings=settings)

    assert [picked(made, 150) for _ in range(3)] == ["b", "b", "c"]
    assert [each.parts["load"] for each in made.explain(asks(100), ABC)] == [1000, 801, 850.5]


@pytest.mark.parametrize(("prompt", "is_refused"), [(4999, False), (5000, True)])
def test_a_request_that_no_instance_can_begin_in_time_is_refused(tmp_path: Path, prompt: int, is_refused: bool) -> None:
    settings = msgspec.convert(half_batch_profile(tmp_path), ReschedulingSettings)
    made = strategy("slo", prompts("a", 100), prompts("b", 200), settings=settings)
    if not is_refused:
        assert picked(made, prompt, ABC[:2]) == "a"
        return
    with pytest.raises(RateLimited, match=r"within 5\.1 s"):
        picked(made, prompt, ABC[:2])


def decodes(name: str, batch: int, tokens: int, **fields: Any) -> Any:
    return instance(
        name,
        scheduler_running_to_decode_requests_num=batch,
        scheduler_running_to_decode_tokens_num=tokens,
        timestamp_ms=NOW_MS,
        **fields,
    )


def both(made: Strategy, tokens: int = 100, candidates: Any = ABC) -> tuple[str, str | None]:
    """Who reads a prompt, and who answers if it is another one."""
    prefill = made.pick(asks(tokens), candidates)
    decode = made.pick_decode(asks(tokens), candidates, prefill)
    if decode is None:
        made.placed(asks(tokens), prefill)
    else:
        made.placed_pair(asks(tokens), prefill, decode)
    return prefill.backend, decode.backend if decode is not None and decode is not prefill else None


@pytest.mark.parametrize("type", ["llumnix_load", "slo"])
def test_instances_with_roles_share_a_request(type: str) -> None:
    prefill = [prompts(name, 0, role=Role.PREFILL) for name in "ab"]
    made = strategy(type, *prefill, prompts("c", 0, role=Role.DECODE))

    assert [both(made, 1000) for _ in range(2)] == [("a", "c"), ("b", "c")]


def test_the_decode_instance_with_the_least_load_answers() -> None:
    made = strategy(
        "llumnix_load",
        prompts("a", 0, role=Role.PREFILL),
        instance("b", 0.5, role=Role.DECODE),
        instance("c", 0.4, role=Role.DECODE),
    )

    assert both(made) == ("a", "c")


def test_without_both_roles_one_instance_does_both() -> None:
    assert both(strategy("llumnix_load", prompts("a", 0), prompts("b", 10)), candidates=ABC[:2]) == ("a", None)
    alone = strategy("llumnix_load", prompts("a", 0, role=Role.DECODE), prompts("b", 10))
    assert both(alone, candidates=ABC[:2]) == ("a", None)


def test_an_answer_that_no_instance_can_give_in_time_is_refused(tmp_path: Path) -> None:
    settings = msgspec.convert(half_batch_profile(tmp_path), ReschedulingSettings)
    made = strategy(
        "slo", prompts("a", 0, role=Role.PREFILL), decodes("b", 84, 8400, role=Role.DECODE), settings=settings
    )
    with pytest.raises(RateLimited, match=r"make a token within 0\.0425 s"):
        both(made, candidates=ABC[:2])


def adaptive(tmp_path: Path, *instances: Any) -> Strategy:
    settings = msgspec.convert({**half_batch_profile(tmp_path), "adaptive_pd": True}, ReschedulingSettings)
    return strategy("slo", *instances, settings=settings)


def test_with_adaptive_pd_an_idle_instance_reads_and_the_fullest_fast_one_answers(tmp_path: Path) -> None:
    """Half a millisecond for each request that decodes: ``b`` takes 30 ms, ``c`` 20 ms."""
    made = adaptive(tmp_path, prompts("a", 0), decodes("b", 59, 5900), decodes("c", 39, 3900))

    assert both(made) == ("a", "b")


def test_with_adaptive_pd_the_fastest_answers_if_none_is_fast_enough(tmp_path: Path) -> None:
    slow, slower = decodes("b", 89, 8900), decodes("c", 99, 9900)
    made = adaptive(tmp_path, prompts("a", 0, reserved=Role.PREFILL), slow, slower)

    assert both(made) == ("a", "b")


def test_with_adaptive_pd_reserved_instances_keep_to_their_part(tmp_path: Path) -> None:
    made = adaptive(
        tmp_path, prompts("a", 900, reserved=Role.PREFILL), prompts("b", 0, reserved=Role.DECODE), prompts("c", 950)
    )

    assert both(made) == ("a", "b")


def test_with_adaptive_pd_the_reserved_of_equals_reads(tmp_path: Path) -> None:
    made = adaptive(tmp_path, prompts("a", 0), prompts("b", 0, reserved=Role.PREFILL), prompts("c", 0))

    assert both(made)[0] == "b"


def test_with_adaptive_pd_an_instance_with_prompts_to_read_does_not_answer(tmp_path: Path) -> None:
    """The target of 42.5 ms per token also limits how long its prompts may take."""
    behind = decodes("b", 59, 5900, num_uncomputed_tokens_all_waiting_prefills=50)
    made = adaptive(tmp_path, prompts("a", 0), behind, decodes("c", 39, 3900))

    assert both(made) == ("a", "c")


def test_with_adaptive_pd_the_instance_reserved_for_decode_answers_before_fuller_ones(tmp_path: Path) -> None:
    reserved = decodes("c", 9, 900, reserved=Role.DECODE)

    assert both(adaptive(tmp_path, prompts("a", 0), decodes("b", 59, 5900), reserved)) == ("a", "c")


@pytest.mark.parametrize("metric", ["predicted_ttft", "predicted_tpot"])
def test_predictions_come_from_the_configured_profiles(tmp_path: Path, metric: str) -> None:
    """The bundled profile ends far below."""
    settings = msgspec.convert(half_batch_profile(tmp_path), ReschedulingSettings)
    decoding = {"scheduler_running_to_decode_requests_num": 390, "scheduler_running_to_decode_tokens_num": 39_000}
    busy, idle = prompts("a", 90_000, **decoding), prompts("b", 90_000)
    made = strategy("llumnix_load", busy, idle, settings=settings, neutral_metric=metric, neutral_threshold=1e9)

    assert all(each.parts["load"] < 1e9 for each in made.explain(asks(100), ABC[:2]))
    assert picked(made, candidates=ABC[:2]) == "b"
