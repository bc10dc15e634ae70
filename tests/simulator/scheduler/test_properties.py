"""Whatever the limits and whatever comes: the rules that every step keeps."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from enginehouse_sim.options import CoreSettings, SchedulerConstants, SchedulingPolicy
from enginehouse_sim.simulator.core.engine_core import EngineCore
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.cache_manager import KvCacheManager
from enginehouse_sim.simulator.model.text import EOS
from enginehouse_sim.simulator.scheduler.scheduler import BatchScheduler
from enginehouse_sim.simulator.steps.models import ConstantSteps
from tests.support.asked import new_state
from tests.support.kv_memory import CheckedRunner, KvMemory

MAX_STEPS = 2000
LAST_EVENT = 60
AMPLE = SchedulerConstants(block_size=4, total_gpu_blocks=200, max_model_len=60)

limits = st.fixed_dictionaries(
    {
        "total_gpu_blocks": st.integers(8, 40),
        "max_model_len": st.integers(40, 60),
        "max_num_seqs": st.integers(1, 6),
        "max_num_batched_tokens": st.integers(5, 60),
        "long_prefill_token_threshold": st.sampled_from([0, 7]),
        "chunked_prefill_enabled": st.sampled_from([True, True, False]),
        "enable_prefix_caching": st.booleans(),
        "policy": st.sampled_from(SchedulingPolicy),
        "pace": st.sampled_from(
            [
                {},
                {"async_scheduling": False},
                {"num_spec_tokens": 3},
                {"num_spec_tokens": 3, "async_scheduling": False},
            ]
        ),
        "watermark": st.sampled_from([0.0, 0.1]),
        "reserve_full_sequence": st.booleans(),
        "prefill_schedule_interval": st.sampled_from([1, 3]),
    }
)
requests = st.lists(
    st.fixed_dictionaries(
        {
            "family": st.integers(0, 1),
            "shared": st.integers(1, 20),
            "own": st.integers(1, 15),
            "max_tokens": st.integers(1, 20),
            "priority": st.integers(0, 2),
            "comes_at": st.integers(0, 30),
            "leaves_at": st.one_of(st.none(), st.none(), st.integers(0, LAST_EVENT)),
        }
    ),
    min_size=1,
    max_size=10,
)


def engine(constants: SchedulerConstants) -> EngineCore:
    settings = CoreSettings(constants=constants, mean_length=25, draft_acceptance=0.6)
    scheduler = BatchScheduler(constants, KvCacheManager(constants))
    runner = CheckedRunner(settings, KvMemory(constants.block_size))
    return EngineCore(scheduler, runner, ConstantSteps(0.1, 0.01))


def request(number: int, fields: dict[str, Any]) -> RequestState:
    """No two arrive at one time: two of equal priority would then evict each other for ever, as in vLLM."""
    prompt = [1000 * fields["family"] + 300 + at for at in range(fields["shared"])]
    return new_state(
        request_id=f"r{number}",
        prompt_token_ids=[*prompt, *(5000 + 100 * number + at for at in range(fields["own"]))],
        max_tokens=fields["max_tokens"],
        priority=fields["priority"],
        arrival_time=fields["comes_at"] + number / 1000,
        eos_token_id=EOS,
    )


def check_step(core: EngineCore, constants: SchedulerConstants, scheduled: dict[str, int], total: int) -> None:
    state = core.scheduler.state
    assert sum(scheduled.values()) == total <= constants.max_num_batched_tokens
    assert all(size > 0 for size in scheduled.values())
    assert len(scheduled) <= constants.max_num_seqs
    assert len(state.running) <= constants.max_num_seqs
    places = [each.request_id for each in (*state.running, *state.waiting, *state.paused.values())]
    assert sorted(places) == sorted(state.requests)


class Story:
    """The tokens of all requests, and how they ended."""

    def __init__(self) -> None:
        self.tokens: dict[str, list[int]] = {}
        self.reasons: dict[str, str] = {}

    def take_in(self, outputs: Any) -> None:
        for output in outputs:
            assert output.request_id not in self.reasons, "it had ended"
            self.tokens.setdefault(output.request_id, []).extend(output.new_token_ids)
            if output.finish_reason is not None:
                self.reasons[output.request_id] = output.finish_reason


def play(constants: SchedulerConstants, coming: list[dict[str, Any]]) -> Story:
    core, story = engine(constants), Story()
    for number in range(MAX_STEPS):
        for index, fields in enumerate(coming):
            if fields["comes_at"] == number:
                core.scheduler.add_request(request(index, fields))
            if fields["leaves_at"] == number:
                core.scheduler.finish_requests([f"r{index}"])
        if number > LAST_EVENT and not core.has_work:
            break
        result = core.step()
        check_step(
            core, constants, dict(result.scheduled.num_scheduled_tokens), result.scheduled.total_num_scheduled_tokens
        )
        story.take_in(result.outputs)
    assert not core.has_work, "requests are left"
    assert core.scheduler.state.kv_cache.num_free_blocks == constants.total_gpu_blocks - 1
    assert core.scheduler.state.encoder_cache.num_evictable == constants.encoder_cache_size
    return story


@settings(max_examples=100)
@given(limits, requests)
def test_every_request_ends_once_with_the_tokens_it_would_have_alone(
    limits: dict[str, Any], coming: list[dict[str, Any]]
) -> None:
    constants = SchedulerConstants(block_size=4, **limits.pop("pace"), **limits)
    story = play(constants, coming)
    for number, fields in enumerate(coming):
        alone = answer(number, fields)
        got = story.tokens.get(f"r{number}", [])
        assert got == alone[: len(got)]
        if fields["leaves_at"] is None:
            assert f"r{number}" in story.reasons
            assert len(got) == len(alone) or len(request(number, fields).prompt_token_ids) + len(alone) > room(
                constants
            )


def room(constants: SchedulerConstants) -> int:
    """The longest request that the engine can take on, or back on."""
    longest = min(constants.max_model_len, constants.token_capacity)
    return longest if constants.chunked_prefill_enabled else min(longest, constants.max_num_batched_tokens)


def answer(number: int, fields: dict[str, Any]) -> list[int]:
    """The tokens of a request that has an ample engine for itself."""
    core, story = engine(AMPLE), Story()
    core.scheduler.add_request(request(number, fields))
    while core.has_work:
        story.take_in(core.step().outputs)
    return story.tokens[f"r{number}"]
