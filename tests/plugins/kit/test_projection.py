from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginehouse_kit.projection import ProjectionParams, RequestFigures, project


def params(total: int = 100, **more: int) -> ProjectionParams:
    return ProjectionParams(block_size=16, total_blocks=total, **more)


def decoding(tokens: int, remaining: int, *shared: int, name: str = "a") -> RequestFigures:
    return RequestFigures(
        request_id=name,
        num_tokens=tokens,
        num_computed_tokens=tokens - 1,
        remaining_tokens=remaining,
        shared_blocks=shared,
    )


def test_nothing_runs_and_nothing_is_needed() -> None:
    projection = project([], params())
    assert projection.wc_until_block_starvation is None
    assert set(projection.predicted_blocks_per_pass) == {0}


def test_a_decoding_request_needs_one_more_block_when_its_last_one_is_full() -> None:
    needed = project([decoding(15, 40)], params(lookahead=20)).predicted_blocks_per_pass
    assert needed == [1, 1, *[2] * 16, 3, 3]


def test_a_request_gives_everything_back_when_it_completes() -> None:
    projection = project([decoding(30, 3)], params(lookahead=6))
    assert projection.per_request[0].steps_until_completion == 3
    assert projection.predicted_blocks_per_pass == [2, 2, 2, 0, 0, 0]


def test_starvation_is_seen_past_the_first_completion() -> None:
    """A short request ends first, and what it gives back is not enough for the long ones."""
    requests = [decoding(16, 2, name="short"), decoding(64, 500, name="b"), decoding(64, 500, name="c")]
    projection = project(requests, params(total=11, lookahead=64))
    assert projection.per_request[0].steps_until_completion == 2
    assert projection.predicted_blocks_per_pass[:3] == [9, 12, 10]
    assert projection.wc_until_block_starvation == 1
    assert project(requests, params(total=12, lookahead=64)).wc_until_block_starvation == 33


def test_a_completion_in_time_keeps_the_others_from_starving() -> None:
    requests = [decoding(150, 10, name="big"), decoding(16, 100, name="growing")]
    assert project(requests, params(total=12)).wc_until_block_starvation is None


def test_exactly_full_is_no_starvation() -> None:
    assert project([decoding(16, 17)], params(total=2)).wc_until_block_starvation is None
    assert project([decoding(17, 17)], params(total=2)).wc_until_block_starvation == 16


def test_shared_blocks_are_counted_once_and_as_long_as_anyone_holds_them() -> None:
    requests = [decoding(40, 2, 7, 8, name="a"), decoding(40, 4, 7, 8, name="b")]
    assert project(requests, params(lookahead=5)).predicted_blocks_per_pass == [4, 4, 3, 3, 0]


def test_a_prompt_is_read_chunk_by_chunk() -> None:
    request = RequestFigures(request_id="a", num_tokens=100, num_computed_tokens=0, remaining_tokens=2)
    projection = project([request], params(prefill_tokens_per_pass=32, lookahead=7))
    assert projection.predicted_blocks_per_pass == [2, 4, 6, 7, 7, 0, 0]
    assert projection.per_request[0].steps_until_completion == 5
    assert project([request], params(lookahead=3)).predicted_blocks_per_pass == [7, 7, 0]


def test_a_request_that_decodes_is_not_taken_for_one_that_reads_its_prompt() -> None:
    """Its last token is always still to be read; so it is not a pass late."""
    assert project([decoding(33, 1)], params(prefill_tokens_per_pass=1)).per_request[0].steps_until_completion == 1


def test_drafts_make_requests_grow_faster() -> None:
    needed = project([decoding(16, 20)], params(tokens_per_pass_per_request=4, lookahead=7)).predicted_blocks_per_pass
    assert needed == [1, 2, 2, 2, 2, 0, 0]


@pytest.mark.parametrize("remaining", [0, 1])
def test_a_request_at_its_end_takes_one_more_pass(remaining: int) -> None:
    assert project([decoding(20, remaining)], params()).per_request[0].steps_until_completion == 1


def blocks_needed(request: RequestFigures, k: int, given_params: ProjectionParams) -> tuple[int, set[int]]:
    """Pass by pass, from the definition: the private blocks, and the shared ones."""
    computed, known, left = request.num_computed_tokens, request.num_tokens, max(1, request.remaining_tokens)
    chunk = given_params.prefill_tokens_per_pass or 1_000_000
    for _ in range(k):
        computed = min(known, computed + chunk) if known - computed > chunk else known
        if computed == known:
            made = min(left, given_params.tokens_per_pass_per_request)
            known, left = known + given_params.tokens_per_pass_per_request, left - made
            if left == 0:
                return 0, set()
    tokens = known if known - computed <= chunk else computed + chunk
    whole = -(-tokens // given_params.block_size)
    return max(0, whole - len(request.shared_blocks)), set(request.shared_blocks)


@st.composite
def counters(draw: st.DrawFn) -> RequestFigures:
    tokens = draw(st.integers(1, 120))
    computed = draw(st.integers(0, tokens - 1))
    shared = draw(st.sets(st.integers(0, 5), max_size=computed // 16))
    return RequestFigures(
        request_id="r",
        num_tokens=tokens,
        num_computed_tokens=computed,
        remaining_tokens=draw(st.integers(0, 60)),
        shared_blocks=shared,
    )


@given(
    st.lists(counters(), max_size=6),
    st.integers(1, 80),
    st.integers(1, 3),
    st.one_of(st.none(), st.integers(4, 70)),
    st.integers(1, 60),
)
def test_the_projection_is_what_the_passes_one_after_the_other_come_to(
    requests: list[RequestFigures], lookahead: int, per_pass: int, chunk: int | None, total: int
) -> None:
    given_params = ProjectionParams(
        block_size=16,
        total_blocks=total,
        lookahead=lookahead,
        tokens_per_pass_per_request=per_pass,
        prefill_tokens_per_pass=chunk,
    )
    expected = []
    for k in range(lookahead):
        needs = [blocks_needed(request, k, given_params) for request in requests]
        expected.append(sum(private for private, _ in needs) + len(set[int]().union(*(shared for _, shared in needs))))
    projection = project(requests, given_params)
    assert projection.predicted_blocks_per_pass == expected
    assert projection.wc_until_block_starvation == next((k for k, n in enumerate(expected) if n > total), None)
