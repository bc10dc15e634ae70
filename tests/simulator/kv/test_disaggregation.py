"""Disaggregated prefill: which blocks an engine publishes for another one, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from enginehouse_sim.simulator.domain.constants import MultiModalInput
from enginehouse_sim.simulator.domain.request import RequestState, RequestStatus
from enginehouse_sim.simulator.kv.block_hashes import BlockHasher
from enginehouse_sim.simulator.kv.disaggregation import (
    FETCH_TIMEOUT,
    Disaggregation,
    KvAddress,
    RemoteBlockRegistry,
    RemoteBlocks,
)
from enginehouse_sim.simulator.steps.costs import KvShape, KvTransfer

New = Callable[..., RequestState]
LINK = KvTransfer(KvShape(layers=1, kv_heads=1, head_dim=1, dtype_bytes=1), bandwidth=16)


class Pair:
    """A prefill engine and a decode engine that know of each other's offers."""

    def __init__(self) -> None:
        self.time = 0.0
        offers = RemoteBlockRegistry()
        self.prefill, self.decode = (
            Disaggregation(KvAddress(name, offers, "127.0.0.1", 8000), BlockHasher(4), LINK, lambda: self.time)
            for name in "pd"
        )


@pytest.fixture
def pair() -> Pair:
    return Pair()


@pytest.fixture
def prefilled(new_request: New) -> Callable[..., RequestState]:
    """A request that read its prompt, made its one token and ended."""

    def new(prompt: int | list[int], **fields: Any) -> RequestState:
        params = {"do_remote_decode": True, "do_remote_prefill": False}
        request = new_request(prompt, kv_transfer_params=params, **fields)
        request.num_computed_tokens = request.num_tokens
        request.append(5)
        request.status = RequestStatus.FINISHED_LENGTH_CAPPED
        return request

    return new


Prefilled = Callable[..., RequestState]


def test_kv_transfer_params_have_vllms_keys(pair: Pair, prefilled: Prefilled) -> None:
    params = pair.prefill.keeps(prefilled(10, request_id="x"), (1, 2, 3))
    assert params == {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_engine_id": "p",
        "remote_request_id": "x",
        "remote_block_ids": [1, 2, 3],
        "remote_host": "127.0.0.1",
        "remote_port": 8000,
        "tp_size": 1,
    }


@pytest.mark.parametrize("status", [RequestStatus.FINISHED_ABORTED, RequestStatus.FINISHED_STOPPED])
def test_only_requests_that_end_by_their_length_are_published(
    pair: Pair, prefilled: Prefilled, status: RequestStatus
) -> None:
    request = prefilled(10)
    request.status = status
    assert pair.prefill.keeps(request, (1, 2, 3)) is None


def test_only_requested_and_present_blocks_are_published(pair: Pair, prefilled: Prefilled) -> None:
    assert pair.prefill.keeps(prefilled(10), ()) is None
    for params in (None, {}, {"do_remote_decode": False}):
        request = prefilled(10)
        request.kv_transfer_params = params
        assert pair.prefill.keeps(request, (1, 2, 3)) is None


@pytest.mark.parametrize(("length", "computed", "found"), [(10, 0, 10), (10, 8, 2), (8, 0, 8), (3, 0, 3), (12, 12, 0)])
def test_the_whole_prompt_can_be_fetched(
    pair: Pair, prefilled: Prefilled, new_request: New, length: int, computed: int, found: int
) -> None:
    params = pair.prefill.keeps(prefilled(length), (1, 2, 3))
    request = new_request(length, kv_transfer_params=params)
    assert pair.decode.match(request, computed) == found


def test_a_request_with_remote_prefill_fetches_the_computed_tokens(
    pair: Pair, prefilled: Prefilled, new_request: New
) -> None:
    running = new_request(10)
    for token in (7, 8, 9):
        running.append(token)
    running.num_computed_tokens = 12
    params = pair.prefill.publish(running, (1, 2, 3, 4))
    assert pair.decode.match(new_request([*range(10), 7, 8, 9], kv_transfer_params=params), 0) == 12


@pytest.mark.parametrize(
    ("prompt", "found"),
    [([*range(9), 77], 8), ([*range(6), 77, 7, 8, 9], 4), ([77, *range(1, 10)], 0), ([*range(6)], 4), ([*range(9)], 8)],
)
def test_only_the_requests_own_tokens_are_fetched(
    pair: Pair, prefilled: Prefilled, new_request: New, prompt: list[int], found: int
) -> None:
    params = pair.prefill.keeps(prefilled(10), (1, 2, 3))
    assert pair.decode.match(new_request(prompt, kv_transfer_params=params), 0) == found


@pytest.mark.parametrize(
    "other", [{"lora": "a"}, {"cache_salt": "a"}, {"mm_inputs": [MultiModalInput("cat", 1, 1)]}], ids=str
)
def test_equal_tokens_are_not_enough(pair: Pair, prefilled: Prefilled, new_request: New, other: dict[str, Any]) -> None:
    params = pair.prefill.keeps(prefilled(3), (1,))
    assert pair.decode.match(new_request(3, kv_transfer_params=params), 0) == 3
    assert pair.decode.match(new_request(3, kv_transfer_params=params, **other), 0) == 0


def test_fetched_blocks_are_freed_once(pair: Pair, prefilled: Prefilled, new_request: New) -> None:
    params = pair.prefill.keeps(prefilled(10, request_id="x"), (1, 2, 3))
    request = new_request(10, kv_transfer_params=params)
    pair.decode.claim(request, 10)
    assert (pair.decode.match(request, 0), list(pair.prefill.finished_sending())) == (0, [])
    pair.decode.delivered(request.request_id)
    assert (list(pair.prefill.finished_sending()), list(pair.prefill.finished_sending())) == (["x"], [])


def test_a_request_that_needs_nothing_releases_the_remote_blocks(
    pair: Pair, prefilled: Prefilled, new_request: New
) -> None:
    params = pair.prefill.keeps(prefilled(10, request_id="x"), (1, 2, 3))
    pair.decode.claim(new_request(10, kv_transfer_params=params), 0)
    assert pair.prefill.finished_sending() == ["x"]


def test_a_second_request_computes_while_another_one_fetches(
    pair: Pair, prefilled: Prefilled, new_request: New
) -> None:
    params = pair.prefill.keeps(prefilled(10), (1, 2, 3))
    first, second = (new_request(10, kv_transfer_params=params) for _ in range(2))
    pair.decode.claim(first, 10)
    assert pair.decode.match(second, 0) == 0
    pair.decode.claim(second, 0)
    assert list(pair.prefill.finished_sending()) == []


def test_drafts_and_the_last_token_are_not_handed_over(pair: Pair, prefilled: Prefilled, new_request: New) -> None:
    request = prefilled(10)
    request.num_computed_tokens = 14
    params = pair.prefill.keeps(request, (1, 2, 3, 4))
    assert pair.decode.match(new_request([*range(10), 5, 6], kv_transfer_params=params), 0) == 10


def test_a_request_that_ends_before_its_turn_releases_the_remote_blocks(
    pair: Pair, prefilled: Prefilled, new_request: New
) -> None:
    params = pair.prefill.keeps(prefilled(10, request_id="x"), (1, 2, 3))
    pair.decode.release(new_request(10, kv_transfer_params=params))
    assert pair.prefill.finished_sending() == ["x"]


def test_remote_blocks_expire(pair: Pair, prefilled: Prefilled, new_request: New) -> None:
    params = pair.prefill.keeps(prefilled(10, request_id="x"), (1, 2, 3))
    pair.time = FETCH_TIMEOUT - 1
    assert list(pair.prefill.finished_sending()) == []
    pair.time = FETCH_TIMEOUT
    assert pair.prefill.finished_sending() == ["x"]
    assert pair.decode.match(new_request(10, kv_transfer_params=params), 0) == 0


def test_what_is_being_fetched_does_not_expire(pair: Pair, prefilled: Prefilled, new_request: New) -> None:
    params = pair.prefill.keeps(prefilled(10), (1, 2, 3))
    pair.decode.claim(new_request(10, kv_transfer_params=params), 10)
    pair.time = FETCH_TIMEOUT + 1
    assert list(pair.prefill.finished_sending()) == []


@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        {"do_remote_prefill": False, "remote_engine_id": "p"},
        {"do_remote_prefill": True},
        {"do_remote_prefill": True, "remote_engine_id": "unknown", "remote_request_id": "x"},
        {"do_remote_prefill": True, "remote_engine_id": ["p"], "remote_request_id": {}},
    ],
)
def test_without_remote_blocks_the_prompt_is_computed_here(
    pair: Pair, new_request: New, params: dict[str, Any] | None
) -> None:
    request = new_request(10, kv_transfer_params=params)
    assert pair.decode.match(request, 0) == 0
    pair.decode.release(request)


def test_remote_blocks_can_be_encoded_for_another_process() -> None:
    offer = RemoteBlocks(
        engine_id="p", request_id="x", num_tokens=6, block_hashes=(2**64 - 1,), beginning=5, expires_at=1.5
    )
    assert msgspec.json.decode(msgspec.json.encode(offer), type=RemoteBlocks).num_tokens == 6
