from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from tests.support.llumlet import Open, Start, expected, until


def test_a_stream_migrates_without_a_trace_for_its_client(instance: Start, stream: Open) -> None:
    source, destination, last = instance(slow=True), instance(slow=True), instance()
    reader = stream(source, 120)
    reader.until(pieces=3)
    response = source.migrate(destination)
    assert (response.success, response.message) == (True, "Migrate requests from here to there.")
    assert source.status()["num_running_requests"] == 0
    assert destination.status()["num_running_requests"] == 1
    assert destination.migrate(last).success
    assert reader.finish() == expected(120)
    assert reader.ended == "done"
    until(lambda: last.engine.running() == 0)
    assert [each.status()["num_used_gpu_tokens"] for each in (source, destination, last)] == [0, 0, 0]


def test_copied_tokens_are_not_recomputed(instance: Start, stream: Open) -> None:
    source, destination = instance(slow=True), instance()
    reader = stream(source, 60)
    reader.until(pieces=3)
    before = destination.computed_tokens()
    assert source.migrate(destination).success
    reader.finish()
    assert destination.computed_tokens() - before <= 60, "no more than the tokens that were still to come"


def test_a_stream_goes_back_and_forth(instance: Start, stream: Open) -> None:
    here, there, last = instance(slow=True), instance(slow=True), instance()
    reader = stream(here, 300)
    for number in range(12):
        reader.until(pieces=1 + number)
        assert here.migrate(there).success
        here, there = there, here
    assert here.migrate(last).success
    assert reader.finish() == expected(300)
    assert reader.ended == "done"


@pytest.mark.parametrize(
    ("rule", "order", "value", "moved"),
    [
        ("NUM_REQ", "LCR", {"num_reqs": 2}, 2),
        ("TOKEN", "SR", {"num_tokens": 200}, 2),
        ("RATIO", "LR", {"kv_cache_usage_ratio": 0.0001}, 0),
        ("NUM_REQ", "FCWSR", {"num_reqs": -1}, 3),
    ],
)
def test_rules_and_orders(
    instance: Start, stream: Open, rule: str, order: str, value: dict[str, Any], moved: int
) -> None:
    source, destination = instance(slow=True), instance(slow=True)
    readers = [stream(source, 300, name) for name in "abc"]
    for reader in readers:
        reader.until(pieces=2)
    assert source.migrate(destination, rule, order, **value).success == (moved > 0)
    until(lambda: destination.status()["num_running_requests"] == moved)
    for reader in readers:
        reader.leave()


def test_a_waiting_request_moves_without_keys_and_values(instance: Start, stream: Open) -> None:
    source, destination = instance(slow=True, max_num_seqs=1), instance()
    running = stream(source, 300, "a")
    running.until(pieces=2)
    waiting = stream(source, 20, "b")
    until(lambda: source.status()["num_waiting_requests"] == 1)
    assert source.migrate(destination, order="FCW").success
    assert len(waiting.finish().split()) == 20
    running.leave()


def test_a_full_destination_refuses_and_the_request_continues(instance: Start, stream: Open) -> None:
    source, destination = instance(), instance(num_gpu_blocks=8)
    reader = stream(source, 60)
    reader.until(pieces=5)
    response = source.migrate(destination)
    assert (response.success, response.message) == (False, "No request could be moved.")
    assert reader.finish() == expected(60)


def test_a_destination_that_is_not_there(instance: Start, stream: Open) -> None:
    source, destination = instance(), instance(own=True)
    destination.engine.kill()
    reader = stream(source, 60)
    reader.until(pieces=5)
    assert not source.migrate(destination).success
    assert reader.finish() == expected(60)


def test_a_closed_connection_aborts_the_request_at_the_destination(instance: Start, stream: Open) -> None:
    source, destination = instance(), instance()
    reader = stream(source, 4000)
    reader.until(pieces=5)
    assert source.migrate(destination).success
    reader.until(pieces=10)
    reader.leave()
    until(lambda: destination.engine.running() == 0)


def test_a_closed_connection_aborts_a_request_that_migrated_twice(instance: Start, stream: Open) -> None:
    first, second, third = instance(), instance(), instance()
    reader = stream(first, 4000)
    reader.until(pieces=5)
    assert first.migrate(second).success
    reader.until(pieces=10)
    assert second.migrate(third).success
    reader.until(pieces=15)
    reader.leave()
    until(lambda: third.engine.running() == 0)


def test_a_destination_that_dies_breaks_the_stream_and_says_so(instance: Start, stream: Open) -> None:
    source, destination = instance(), instance(own=True)
    reader = stream(source, 4000)
    reader.until(pieces=5)
    assert source.migrate(destination).success
    reader.until(pieces=10)
    destination.engine.kill()
    reader.finish()
    assert reader.ended.startswith("error The request migrated, and could not continue")


def test_a_source_that_dies_frees_the_destination(instance: Start, stream: Open) -> None:
    source, destination = instance(own=True), instance()
    reader = stream(source, 4000)
    reader.until(pieces=5)
    assert source.migrate(destination).success
    source.engine.kill()
    until(lambda: destination.engine.running() == 0)
    reader.finish()
    assert reader.ended.startswith("broken")


@pytest.mark.parametrize(
    ("rule", "order", "value"),
    [
        ("REQUESTS", "FCR", {"num_reqs": 1}),
        ("TOKEN", "FCR", {"num_reqs": 1}),
        ("NUM_REQ", "ABC", {"num_reqs": 1}),
    ],
)
def test_a_command_that_makes_no_sense(instance: Start, rule: str, order: str, value: dict[str, Any]) -> None:
    source = instance()
    with pytest.raises(grpc.RpcError) as error:
        source.migrate(source, rule, order, **value)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_one_command_at_a_time(instance: Start, stream: Open) -> None:
    """The second one comes while the first one copies a cache over a slow link."""
    source, destination = instance(slow=True, kv_bandwidth=1e5), instance()
    reader = stream(source, 2000)
    reader.until(pieces=2)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(source.migrate, destination)
        until(lambda: source.status()["num_migrate_out_reqs"] == 1)
        second = source.migrate(destination)
        assert (second.success, second.message) == (False, "Another migration is under way.")
        source.engine.kill()
        assert first.exception() is not None


def test_nothing_to_move(instance: Start) -> None:
    source = instance()
    assert not source.migrate(instance()).success


def test_the_status_has_places_for_requests_that_move(instance: Start) -> None:
    status = instance().status()
    assert status["num_available_migrate_in_slots"] == status["num_available_migrate_out_slots"] == 4
    assert status["num_available_migrate_in_tokens"] == status["num_total_gpu_tokens"]


def test_everything_moves_although_only_four_move_at_once(instance: Start, stream: Open) -> None:
    source, destination = instance(slow=True, max_num_seqs=64), instance(max_num_seqs=64)
    readers = [stream(source, 200, f"r{number}") for number in range(14)]
    for reader in readers:
        reader.until(pieces=2)
    response = source.migrate(destination, num_reqs=-1)
    assert sorted(response.request_ids) == sorted(f"cmpl-r{number}" for number in range(14))
    assert source.status()["num_running_requests"] == 0
    assert [reader.finish() for reader in readers] == [expected(200)] * 14


def test_named_requests_move_whatever_the_rule(instance: Start, stream: Open) -> None:
    source, destination = instance(slow=True), instance()
    readers = [stream(source, 300, name) for name in "abc"]
    for reader in readers:
        reader.until(pieces=2)
    response = source.migrate(destination, num_reqs=1, request_ids=["b", "cmpl-c", "unknown"])
    assert sorted(response.request_ids) == ["cmpl-b", "cmpl-c"]
    assert source.migrate(destination, num_reqs=1).success
    assert [reader.finish() for reader in readers] == [expected(300)] * 3
