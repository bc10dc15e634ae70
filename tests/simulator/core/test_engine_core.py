from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from enginehouse_sim.options import CoreSettings, SchedulerConstants
from enginehouse_sim.simulator.core.engine_core import IDLE_STEP, EngineCore
from enginehouse_sim.simulator.domain.request import RequestStatus
from enginehouse_sim.simulator.steps.models import ConstantSteps
from tests.support.kv_memory import CheckedRunner, KvMemory
from tests.support.scheduler_fakes import Requests, Schedulers


@pytest.fixture
def new_core(new_scheduler: Schedulers) -> Callable[..., EngineCore]:
    """100 ms for a step that ends a prompt, 10 ms for one that decodes."""

    def new(**parts: Any) -> EngineCore:
        scheduler = new_scheduler(**parts)
        settings = CoreSettings(constants=SchedulerConstants(num_spec_tokens=parts.get("num_spec_tokens", 0)))
        runner = CheckedRunner(settings, KvMemory(4))
        return EngineCore(scheduler, runner, ConstantSteps(0.1, 0.01))

    return new


def drain(core: EngineCore) -> tuple[dict[str, list[int]], float]:
    """The tokens of each request, and the seconds until the last one."""
    tokens: dict[str, list[int]] = {}
    seconds = 0.0
    while core.has_work:
        result = core.step()
        seconds += result.seconds
        for output in result.outputs:
            tokens.setdefault(output.request_id, []).extend(output.new_token_ids)
    return tokens, seconds


def test_a_request_alone_takes_a_prefill_and_its_decodes(
    new_core: Callable[..., EngineCore], new_request: Requests
) -> None:
    core = new_core()
    core.scheduler.add_request(new_request(10, max_tokens=5))
    tokens, seconds = drain(core)
    assert len(tokens["a"]) == 5
    assert seconds == pytest.approx(0.1 + 4 * 0.01)


@pytest.mark.parametrize(
    "parts",
    [
        {"async_scheduling": True},
        {"num_spec_tokens": 3},
        {"num_spec_tokens": 3, "async_scheduling": True},
    ],
)
def test_tokens_do_not_depend_on_how_steps_are_made(
    new_core: Callable[..., EngineCore], new_request: Requests, parts: dict[str, Any]
) -> None:
    prompts = [list(range(100 * number, 100 * number + 10 + number)) for number in range(5)]
    answers = []
    for core in (new_core(), new_core(**parts)):
        for number, prompt in enumerate(prompts):
            core.scheduler.add_request(new_request(prompt, request_id=str(number), max_tokens=5 + number))
        answers.append(drain(core)[0])
        core.scheduler.shutdown()
    assert answers[0] == answers[1]
    assert [len(answers[0][str(number)]) for number in range(5)] == [5, 6, 7, 8, 9]


def test_an_aborted_request_has_no_output_and_is_removed_from_the_runner(
    new_core: Callable[..., EngineCore], new_request: Requests
) -> None:
    core = new_core()
    core.scheduler.add_request(new_request(10))
    core.step()
    core.scheduler.finish_requests(["a", "unknown"])
    assert core.has_work
    result = core.step()
    assert result.scheduled.finished_req_ids == ("a",)
    assert not result.outputs
    assert not core.has_work


def test_a_stop_string_ends_a_request_from_outside(new_core: Callable[..., EngineCore], new_request: Requests) -> None:
    core = new_core()
    core.scheduler.add_request(new_request(10))
    core.step()
    core.scheduler.finish_requests(["a"], RequestStatus.FINISHED_STOPPED)
    assert core.step().scheduled.finished_req_ids == ("a",)


def test_an_engine_that_only_waits_looks_again_after_a_while(
    new_core: Callable[..., EngineCore], new_request: Requests, new_connector: Callable[..., Any]
) -> None:
    core = new_core(connector=new_connector(a=None))
    core.scheduler.add_request(new_request(10))
    assert core.step().seconds == IDLE_STEP
    assert core.has_work
