from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from enginehouse_kit.block_events import BlocksRemoved, BlocksStored, CacheCleared, CacheEvent
from enginehouse_kit.cache_events import CacheEvents, Message, decode_batch, read_message


def batch(*events: object) -> bytes:
    return msgspec.msgpack.encode([1.0, list(events), 0])


def stored(number: int) -> Message:
    """A message that stores the block with its number."""
    return number, decode_batch(batch(["BlockStored", [number], None, [1, 2], 2, None]))


def numbers(events: Sequence[CacheEvent]) -> list[object]:
    """The blocks that events store; other events by their names."""
    return [each.hashes[0] if isinstance(each, BlocksStored) else type(each).__name__ for each in events]


@pytest.mark.parametrize("as_map", [False, True])
def test_events_of_both_forms_are_read(as_map: bool) -> None:
    names = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name")
    values = ([7, b"\x08"], 6, [1, 2, 3, 4], 2, 1, "GPU", "sql")
    one = {"type": "BlockStored", **dict(zip(names, values, strict=True))} if as_map else ["BlockStored", *values]
    gone = {"type": "BlockRemoved", "block_hashes": [5]} if as_map else ["BlockRemoved", [5]]
    cleared = {"type": "AllBlocksCleared"} if as_map else ["AllBlocksCleared"]
    assert decode_batch(batch(one, gone, ["New", 1], cleared)) == [
        BlocksStored([7, b"\x08"], 6, [1, 2, 3, 4], 2, "sql"),
        BlocksRemoved([5]),
        CacheCleared(),
    ]


def test_blocks_outside_the_gpu_are_none_that_save_a_prefill() -> None:
    assert not decode_batch(batch(["BlockStored", [1], None, [1], 1, None, "CPU"], ["BlockRemoved", [1], "CPU"]))


def test_blocks_with_images_or_salts_are_left_out_with_all_after_them() -> None:
    extra = [["sql"], None, [["image", 3]], None]
    event = {"block_hashes": [1, 2, 3, 4], "token_ids": [*range(8)], "block_size": 2, "lora_name": "sql"}
    [found] = decode_batch(batch({"type": "BlockStored", **event, "extra_keys": extra}))
    assert isinstance(found, BlocksStored)
    assert found.hashes == [1, 2]


def test_a_group_of_layers_evicts_for_itself() -> None:
    event = {"type": "BlockStored", "token_ids": [1, 2], "block_size": 2}
    groups: list[Any] = [None, 0, 1]
    stored = [{**event, "block_hashes": [b"h"], "parent_block_hash": b"p", "group_idx": each} for each in groups]
    removed = [{"type": "BlockRemoved", "block_hashes": [b"h"], "group_idx": each} for each in groups]
    [*found] = decode_batch(batch(*stored, *removed))
    names = [found[place] for place in (0, 1, 2)]
    assert [each.hashes for each in names if isinstance(each, BlocksStored)] == [[b"h"], [b"h"], [b"1/b'h'"]]
    assert [each.parent for each in names if isinstance(each, BlocksStored)] == [b"p", b"p", b"1/b'p'"]
    assert found[3:] == [BlocksRemoved([b"h"]), BlocksRemoved([b"h"]), BlocksRemoved([b"1/b'h'"])]


@pytest.mark.parametrize(
    "payload",
    [b"", b"\xc1", msgspec.msgpack.encode({}), batch(["BlockStored", 3]), batch(5), batch({"block_hashes": [1]})],
)
def test_a_message_that_is_no_batch_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match="no batch"):
        decode_batch(payload)


def followed() -> CacheEvents:
    """A stream whose engine has sent nothing so far."""
    stream = CacheEvents()
    assert numbers(stream.replayed([])) == ["CacheCleared"]
    assert stream.exact
    return stream


def test_messages_in_order_are_passed_on_at_once() -> None:
    stream = followed()
    assert [numbers(stream.received(stored(n))) for n in range(3)] == [[0], [1], [2]]
    assert stream.exact


def test_what_came_before_is_asked_for_and_what_comes_meanwhile_is_held_back() -> None:
    stream = CacheEvents()
    assert stream.wanted == 0
    assert not stream.received(stored(2))
    assert numbers(stream.replayed([stored(0), stored(1), stored(2)])) == ["CacheCleared", 0, 1, 2]
    assert stream.exact
    assert numbers(stream.received(stored(3))) == [3]


def test_a_gap_is_noticed_and_filled() -> None:
    stream = followed()
    stream.received(stored(0))
    assert not stream.received(stored(3))
    assert stream.wanted == 1
    assert not stream.received(stored(4))
    assert numbers(stream.replayed([stored(1), stored(2), stored(3)])) == [1, 2, 3, 4]
    assert (stream.exact, stream.filled, stream.lost) == (True, 1, 0)


@pytest.mark.parametrize("replayed", [[], [stored(2), stored(3)]])
def test_a_gap_that_cannot_be_filled_is_told_until_the_cache_is_cleared(replayed: list[Message]) -> None:
    stream = followed()
    stream.received(stored(0))
    stream.received(stored(3))
    told = numbers(stream.replayed(replayed))
    assert told[0] == "EventsLost"
    assert told[-1] == 3
    assert (stream.exact, stream.lost) == (False, 1)
    assert numbers(stream.received((4, [CacheCleared()]))) == ["CacheCleared"]
    assert stream.exact


def test_an_engine_that_begins_anew_has_an_empty_cache() -> None:
    stream = followed()
    for n in range(5):
        stream.received(stored(n))
    assert numbers(stream.received(stored(0))) == ["CacheCleared", 0]
    assert numbers(stream.received(stored(1))) == [1]
    assert stream.exact


def test_an_engine_that_begins_anew_unnoticed_is_asked_for_its_beginning() -> None:
    stream = followed()
    for n in range(5):
        stream.received(stored(n))
    assert not stream.received(stored(2))
    assert stream.wanted == 0
    assert numbers(stream.replayed([stored(0), stored(1), stored(2)])) == ["CacheCleared", 0, 1, 2]
    assert stream.exact


def test_a_connection_that_breaks_leaves_doubt_until_all_is_known_again() -> None:
    stream = followed()
    stream.received(stored(0))
    assert numbers(stream.broke()) == ["EventsLost"]
    assert not stream.exact
    stream.restart()
    assert not stream.received(stored(2))
    assert numbers(stream.replayed([stored(0), stored(1)])) == ["CacheCleared", 0, 1, 2]
    assert stream.exact


def test_a_message_that_cannot_be_read_is_a_loss() -> None:
    stream = followed()
    assert numbers(stream.received(read_message(bytes(8), b"\xc1"))) == ["EventsLost"]
    assert (stream.exact, stream.lost) == (False, 1)


def test_an_engine_that_does_not_answer_may_have_anything() -> None:
    stream = CacheEvents()
    assert not stream.replayed(None)
    assert not stream.exact
    stream.restart()
    assert not stream.received(stored(1))
    assert numbers(stream.replayed(None)) == ["CacheCleared", "EventsLost", 1]
    assert not stream.exact


def test_nothing_is_certain_while_all_is_asked_for_again() -> None:
    stream = followed()
    stream.restart()
    assert not stream.exact
