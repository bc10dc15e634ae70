from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginehouse_sim.options import CoreSettings, SchedulerConstants
from enginehouse_sim.simulator.domain.outputs import ModelRunnerOutput, NewRequestData, SchedulerOutput
from enginehouse_sim.simulator.domain.request import CachedRequestData
from enginehouse_sim.simulator.model.runner import ModelRunner
from enginehouse_sim.simulator.model.text import EOS, TextSampler, encode, text_of
from enginehouse_sim.simulator.steps.costs import StepLoad
from tests.support.asked import fields_of, new_state
from tests.support.kv_memory import CachedSequence, CheckedRunner, InconsistentBlocks, KvMemory

PROMPT = encode("the engine house stands by the river")  # nine tokens
BLOCKS = [7, 3, 9, 4, 5, 6]


def expected(length: int, prompt: Sequence[int] = PROMPT, **kind: Any) -> list[int]:
    place = TextSampler(0, text_of(prompt), **kind)
    return [place.next() for _ in range(length)]


def new(prompt: Sequence[int] = PROMPT, computed: int = 0, **more: Any) -> NewRequestData:
    return NewRequestData(
        **{"request_id": "a", "max_tokens": 10, "block_ids": BLOCKS, **more},
        prompt_token_ids=list(prompt),
        num_computed_tokens=computed,
    )


def cached(computed: int, blocks: Sequence[int] = (), **more: Any) -> CachedRequestData:
    return CachedRequestData(more.pop("request_id", "a"), more.pop("resumed", False), blocks, computed, **more)


def plan(tokens: Mapping[str, int], *data: NewRequestData | CachedRequestData, **more: Any) -> SchedulerOutput:
    return SchedulerOutput(
        step=0,
        new_requests=[one for one in data if isinstance(one, NewRequestData)],
        cached_requests=[one for one in data if isinstance(one, CachedRequestData)],
        num_scheduled_tokens=dict(tokens),
        total_num_scheduled_tokens=sum(tokens.values()),
        **more,
    )


def sampled(output: ModelRunnerOutput, request_id: str = "a") -> list[int]:
    return list(output.sampled_token_ids[output.req_id_to_index[request_id]])


@pytest.fixture
def runner() -> ModelRunner:
    return CheckedRunner(CoreSettings(constants=SchedulerConstants(total_gpu_blocks=63)), KvMemory(block_size=4))


def test_a_step_that_reaches_the_end_of_the_prompt_makes_one_token(runner: ModelRunner) -> None:
    assert sampled(runner.execute(plan({"a": 9}, new()))) == expected(1)


def test_a_prompt_read_in_part_makes_no_token(runner: ModelRunner) -> None:
    assert sampled(runner.execute(plan({"a": 4}, new()))) == []
    assert sampled(runner.execute(plan({"a": 4}, cached(4)))) == []
    assert sampled(runner.execute(plan({"a": 1}, cached(8)))) == expected(1)


@given(st.lists(st.integers(1, 9), max_size=9))
def test_tokens_do_not_depend_on_how_the_prompt_is_cut_up(cuts: list[int]) -> None:
    runner = CheckedRunner(CoreSettings(), KvMemory(block_size=4))
    made: list[int] = []
    computed = 0
    for cut in [*cuts, 9, 9, *[1] * 5]:
        known = len(PROMPT) + len(made)
        count = min(cut, known - computed)
        data = new() if computed == 0 else cached(computed)
        made += sampled(runner.execute(plan({"a": count}, data)))
        computed += count
    assert made == expected(len(made))
    assert len(made) >= 5


def test_tokens_do_not_depend_on_other_requests_in_the_step(runner: ModelRunner) -> None:
    other = encode("another prompt")
    output = runner.execute(
        plan({"b": 4, "a": 9}, new(other, request_id="b", block_ids=[1]), new(choice=2, block_ids=[2, 3, 4]))
    )
    assert sampled(output, "b") == expected(1, other)
    assert sampled(output) == expected(1, choice=2)


def test_a_resumed_request_continues_from_all_its_tokens_in_other_blocks(runner: ModelRunner) -> None:
    made = sampled(runner.execute(plan({"a": 9}, new())))
    made += sampled(runner.execute(plan({"a": 1}, cached(9))))
    resumed = cached(0, [20, 21, 22], resumed=True, token_ids=[*PROMPT, *made])
    made += sampled(runner.execute(plan({"a": 11}, resumed)))
    made += sampled(runner.execute(plan({"a": 1}, cached(11))))
    assert made == expected(4)


def test_a_request_prefilled_elsewhere_continues_its_answer() -> None:
    runner = ModelRunner(CoreSettings())
    output = runner.execute(plan({"a": 1}, new(computed=11, output_token_ids=expected(3))))
    assert sampled(output) == expected(4)[3:]
    assert runner.load.decodes == 1


def test_a_new_request_reaches_the_runner_with_all_its_fields() -> None:
    request = new_state(
        request_id="r", prompt_token_ids=[1], max_tokens=5, min_tokens=2, choice=1, logprobs=3, ignore_eos=True
    )
    data = NewRequestData.of(request, [4], 0)
    assert (data.request_id, data.prompt_token_ids, data.block_ids) == ("r", [1], [4])
    assert (data.min_tokens, data.choice, data.logprobs, data.ignore_eos) == (2, 1, 3, True)


def test_a_finished_request_is_removed(runner: ModelRunner) -> None:
    runner.execute(plan({"a": 9}, new()))
    runner.execute(plan({}, finished_req_ids=["a"]))
    with pytest.raises(KeyError):
        runner.execute(plan({"a": 1}, cached(9)))


def test_a_step_without_requests_makes_nothing(runner: ModelRunner) -> None:
    output = runner.execute(plan({}))
    assert (output.req_ids, output.sampled_token_ids, output.logprobs) == ([], [], None)
    assert fields_of(runner.load) == fields_of(StepLoad(total_kv_tokens=992))


def test_an_answer_ends_after_min_tokens_at_the_earliest() -> None:
    runner = ModelRunner(CoreSettings(mean_length=1))
    made = sampled(runner.execute(plan({"a": 9}, new(min_tokens=2))))
    made += sampled(runner.execute(plan({"a": 1}, cached(9))))
    made += sampled(runner.execute(plan({"a": 1}, cached(10))))
    assert made == [*expected(2), EOS]


def test_stop_tokens_are_not_sampled_before_min_tokens(runner: ModelRunner) -> None:
    stop = expected(1)[0]
    assert sampled(runner.execute(plan({"a": 9}, new(stop_token_ids=frozenset({stop}))))) == [stop]
    assert sampled(runner.execute(plan({"a": 9}, new(min_tokens=1, stop_token_ids=frozenset({stop}))))) != [stop]


def test_a_request_that_ignores_eos_continues() -> None:
    runner = ModelRunner(CoreSettings(mean_length=1))
    assert sampled(runner.execute(plan({"a": 9}, new(ignore_eos=True)))) == expected(1)


def test_logprobs_come_for_requests_that_asked(runner: ModelRunner) -> None:
    output = runner.execute(plan({"a": 9, "b": 9}, new(logprobs=3), new(request_id="b", block_ids=[30, 31, 32])))
    assert output.logprobs is not None
    place = TextSampler(0, text_of(PROMPT))
    assert output.logprobs[output.req_id_to_index["a"]] == [place.alternatives(place.copy().next(), 3)]
    assert output.logprobs[output.req_id_to_index["b"]] == []


def test_a_pooling_request_gets_a_vector_and_no_token(runner: ModelRunner) -> None:
    assert runner.execute(plan({"a": 4}, new(pooling=True))).pooler_output == {}
    output = runner.execute(plan({"a": 5}, cached(4)))
    assert sampled(output) == []
    assert len(output.pooler_output["a"]) == 64


def test_a_row_decides_which_token_may_come(runner: ModelRunner) -> None:
    [brace] = encode("{")
    more: dict[str, Any] = {"structured_output_request_ids": {"a": 1}}
    rows = [frozenset({EOS}), frozenset({brace})]
    assert sampled(runner.execute(plan({"a": 9}, new(), grammar_bitmask=rows, **more))) == [brace]


class TestDrafts:
    def step(self, runner: ModelRunner, computed: int, drafts: Sequence[int]) -> list[int]:
        tokens = {"a": 1 + len(drafts)}
        return sampled(runner.execute(plan(tokens, cached(computed), scheduled_spec_decode_tokens={"a": drafts})))

    def test_right_drafts_are_accepted_and_one_more_token_is_made(self, runner: ModelRunner) -> None:
        runner.execute(plan({"a": 9}, new()))
        assert self.step(runner, 9, expected(3)[1:]) == expected(4)[1:]

    def test_a_wrong_draft_is_replaced_and_those_behind_it_are_dropped(self, runner: ModelRunner) -> None:
        runner.execute(plan({"a": 9}, new()))
        right = expected(6)
        assert self.step(runner, 9, [right[1], 5, right[3]]) == right[1:3]
        assert self.step(runner, 11, []) == right[3:4]

    def test_each_draft_is_checked_against_its_own_row(self, runner: ModelRunner) -> None:
        runner.execute(plan({"a": 9}, new()))
        first, second, third = encode("[1,")
        output = runner.execute(
            plan(
                {"a": 3},
                cached(9),
                scheduled_spec_decode_tokens={"a": [first, third]},
                structured_output_request_ids={"a": 0},
                grammar_bitmask=[frozenset({first}), frozenset({second}), frozenset({third})],
            )
        )
        assert sampled(output) == [first, second]

    @pytest.mark.parametrize(("acceptance", "least", "most"), [(1.0, 3.0, 3.0), (0.0, 0.0, 0.0), (0.5, 0.6, 1.2)])
    def test_as_many_are_accepted_as_asked(self, acceptance: float, least: float, most: float) -> None:
        runner = ModelRunner(CoreSettings(constants=SchedulerConstants(num_spec_tokens=3), draft_acceptance=acceptance))
        output = runner.execute(plan({"a": 9}, new()))
        made, accepted = sampled(output), 0
        for _ in range(200):
            assert output.spec_token_ids is not None
            drafts = output.spec_token_ids[0]
            assert len(drafts) == 3
            tokens = plan({"a": 4}, cached(8 + len(made)), scheduled_spec_decode_tokens={"a": drafts})
            output = runner.execute(tokens)
            accepted += len(sampled(output)) - 1
            made += sampled(output)
        assert made == expected(len(made))
        assert least <= accepted / 200 <= most

    def test_nothing_is_drafted_before_the_prompt_is_read(self) -> None:
        runner = ModelRunner(CoreSettings(constants=SchedulerConstants(num_spec_tokens=3)))
        assert runner.execute(plan({"a": 4}, new())).spec_token_ids == [[]]


def test_the_load_of_a_step_tells_prompts_from_answers(runner: ModelRunner) -> None:
    runner.execute(plan({"a": 9}, new()))
    assert fields_of(runner.load) == fields_of(
        StepLoad(prefill_tokens=9, own_pairs=45, first_tokens=1, total_kv_tokens=992)
    )
    chunk = new(request_id="b", block_ids=[30, 31, 32])
    runner.execute(plan({"a": 2, "b": 4}, cached(9), chunk, scheduled_spec_decode_tokens={"a": [5]}))
    assert fields_of(runner.load) == fields_of(
        StepLoad(prefill_tokens=4, own_pairs=10, decodes=1, draft_tokens=1, active_kv_tokens=10, total_kv_tokens=992)
    )
    runner.execute(plan({"b": 5}, cached(4, request_id="b")))
    assert fields_of(runner.load) == fields_of(
        StepLoad(prefill_tokens=5, prefill_pairs=20, own_pairs=15, first_tokens=1, total_kv_tokens=992)
    )


class TestBlocks:
    """What the memory finds."""

    def test_too_few_blocks(self, runner: ModelRunner) -> None:
        with pytest.raises(InconsistentBlocks, match="2 blocks for 9 tokens"):
            runner.execute(plan({"a": 9}, new(block_ids=[1, 2])))

    @pytest.mark.parametrize("blocks", [[1, 0, 2], [1, 2, 1]])
    def test_the_null_block_and_a_block_twice(self, runner: ModelRunner, blocks: list[int]) -> None:
        with pytest.raises(InconsistentBlocks, match="block 0, or a block twice"):
            runner.execute(plan({"a": 9}, new(block_ids=blocks)))

    def test_a_prefix_that_was_never_computed(self, runner: ModelRunner) -> None:
        with pytest.raises(InconsistentBlocks, match="a reads token 0 in block 7"):
            runner.execute(plan({"a": 1}, new(computed=8)))

    def test_a_shared_prefix_is_right(self, runner: ModelRunner) -> None:
        runner.execute(plan({"a": 9}, new()))
        output = runner.execute(plan({"b": 1}, new(request_id="b", computed=8, block_ids=[7, 3, 30])))
        assert sampled(output, "b") == expected(1)

    def test_a_prefix_with_another_salt_is_not(self, runner: ModelRunner) -> None:
        runner.execute(plan({"a": 9}, new()))
        with pytest.raises(InconsistentBlocks):
            runner.execute(plan({"b": 1}, new(request_id="b", computed=8, block_ids=[7, 3, 30], cache_salt="mine")))

    def test_a_prefix_that_came_from_outside_is_right(self) -> None:
        memory = KvMemory(block_size=4)
        memory.write(CachedSequence("sender", PROMPT, BLOCKS, "/"), 0, 8)
        assert sampled(CheckedRunner(CoreSettings(), memory).execute(plan({"a": 1}, new(computed=8)))) == expected(1)

    def test_a_block_that_was_given_to_someone_else(self, runner: ModelRunner) -> None:
        runner.execute(plan({"a": 9}, new()))
        runner.execute(plan({"b": 2}, new([50, 51], request_id="b", block_ids=[9])))
        with pytest.raises(InconsistentBlocks, match="a reads token 8 in block 9"):
            runner.execute(plan({"a": 1}, cached(9)))

    def test_blocks_that_grow_and_drafts_that_were_rejected_are_right(self, runner: ModelRunner) -> None:
        made = sampled(runner.execute(plan({"a": 9}, new(block_ids=[1, 2, 3]))))
        wrong = {"scheduled_spec_decode_tokens": {"a": [5, 6]}}
        made += sampled(runner.execute(plan({"a": 3}, cached(9), **wrong)))
        for computed in range(10, 20):
            blocks = [computed // 4 + 1] if computed % 4 == 0 else []
            made += sampled(runner.execute(plan({"a": 1}, cached(computed, blocks))))
        assert made == expected(12)
