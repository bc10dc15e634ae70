from __future__ import annotations

import random

from enginehouse_sim.simulator.calibration.validation import real_prompt
from enginehouse_sim.simulator.replay.traces.reader import TraceRequest


def asked(length: int, *prefix_ids: int) -> TraceRequest:
    return TraceRequest(arrival=0, input_length=length, output_length=1, prefix_ids=prefix_ids, prefix_tokens=16)


def test_prompts_have_common_beginnings_where_the_trace_says_so_and_nothing_else_in_common() -> None:
    chance = random.Random(1)
    first, second, other = (real_prompt(asked(50, *ids), 7, chance) for ids in ((1, 2), (1, 3), (4,)))
    assert [len(prompt) for prompt in (first, second, other)] == [50, 50, 50]
    assert first[:16] == second[:16]
    assert first[16:32] != second[16:32]
    assert first[:16] != other[:16]
    alone = [tuple(real_prompt(asked(16), 7, chance)) for _ in range(1000)]
    assert len(set(alone)) == 1000


def test_another_run_has_other_prompts() -> None:
    first, again = (real_prompt(asked(20, 1), run, random.Random(1)) for run in (7, 8))
    assert first[:16] != again[:16]


def test_a_prompt_is_as_long_as_the_trace_says_whatever_its_beginnings() -> None:
    assert len(real_prompt(asked(20, 1, 2, 3), 7, random.Random(1))) == 20
