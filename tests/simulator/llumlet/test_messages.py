from __future__ import annotations

from enginehouse_sim.simulator.domain.outputs import MovedRequest
from enginehouse_sim.simulator.domain.request import RequestState, fields_of

OF_THE_SCHEDULER = {
    "all_token_ids",
    "block_hashes",
    "ending_tokens",
    "fast_path_until",
    "is_prefill_chunk",
    "max_num_tokens",
    "num_cached_tokens",
    "num_computed_tokens",
    "num_output_placeholders",
    "num_preemptions",
    "num_prompt_tokens",
    "num_tokens",
    "num_tokens_with_spec",
    "spec_token_ids",
    "stale_step",
    "status",
    "stop_reason",
}


def test_a_moved_request_has_all_that_its_client_asked_for() -> None:
    request = RequestState(request_id="a", prompt_token_ids=[], max_tokens=1)
    assert {*MovedRequest.__struct_fields__} == {*fields_of(request)} - OF_THE_SCHEDULER
