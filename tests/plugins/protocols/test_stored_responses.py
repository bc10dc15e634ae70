from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enginehouse import InvalidRequest
from enginehouse.errors import NotFound
from enginehouse_protocols.responses.stored import StoredResponses
from tests.support.waiting import until

HELLO = msgspec.Raw(b'{"role":"user","content":"hi"}')


def response(id: str, text: str = "ho") -> dict[str, Any]:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return {"id": id, "output": [said]}


async def written(*stored: StoredResponses) -> None:
    await until(lambda: not any(each._unwritten or each._used or each._again for each in stored))


def files(folder: Path) -> list[tuple[int, int]]:
    """The mode and the size of each file."""
    return [(each.stat().st_mode, each.stat().st_size) for each in folder.iterdir()]


def on_disk(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in sorted(folder.iterdir()))


async def test_a_conversation_ends_with_the_response() -> None:
    stored = StoredResponses(10_000)
    stored.keep(response("a"), [HELLO])
    asked, said = map(msgspec.json.decode, await stored.conversation("a"))
    assert (asked["role"], asked["content"], said["role"]) == ("user", "hi", "assistant")
    assert json.loads(await stored.response("a")) == response("a")


async def test_the_least_recently_used_one_goes_first() -> None:
    stored = StoredResponses(1500)
    for id in "abc":
        stored.keep(response(id, "x" * 100), [])
        await written(stored)
    await stored.conversation("a")
    stored.keep(response("d", "x" * 100), [])
    await written(stored)
    assert await stored.conversation("a")
    with pytest.raises(InvalidRequest, match="any more"):
        await stored.conversation("b")


async def test_what_is_larger_than_all_room_is_not_kept_and_what_is_deleted_makes_room() -> None:
    stored = StoredResponses(1000)
    stored.keep(response("a", "x" * 2000), [])
    with pytest.raises(NotFound):
        await stored.response("a")
    stored.keep(response("b", "x" * 200), [])
    await stored.delete("b")
    with pytest.raises(NotFound):
        await stored.delete("b")
    stored.keep(response("c", "x" * 200), [])
    assert await stored.response("c")


async def test_what_is_too_large_takes_nothing_else_with_it() -> None:
    stored = StoredResponses(1000)
    stored.keep(response("a"), [])
    stored.keep(response("b"), [])
    stored.keep(response("c", "x" * 2000), [])
    assert list(stored._unwritten) == ["a", "b"]


async def test_all_processes_of_a_gateway_find_them_and_the_next_gateway_too(tmp_path: Path) -> None:
    one, two = StoredResponses(10_000), StoredResponses(10_000)
    for each in (one, two):
        each.open(tmp_path)
    one.keep(response("a"), [HELLO])
    await written(one)
    found = [msgspec.json.decode(item)["role"] for item in await two.conversation("a")]
    assert found == ["user", "assistant"]
    await two.delete("a")
    with pytest.raises(NotFound):
        await one.response("a")
    two.keep(response("b"), [])
    await written(two)
    later = StoredResponses(10_000)
    later.open(tmp_path)
    assert await later.response("b")
    assert not any(mode & 0o077 for mode, _ in files(tmp_path))


async def test_in_a_folder_that_cannot_be_used_they_are_kept_in_memory(tmp_path: Path) -> None:
    stored = StoredResponses(10_000)
    stored.open(tmp_path / "none")
    stored.keep(response("a"), [])
    assert await stored.response("a")


async def test_without_room_the_error_says_how_to_get_it() -> None:
    with pytest.raises(InvalidRequest, match=r"plugins\.responses\.stored"):
        await StoredResponses(0).conversation("a")


async def test_a_file_of_an_earlier_version_keeps_its_size(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "responses.sqlite")) as database, database:
        database.execute("CREATE TABLE responses (id PRIMARY KEY, used REAL, size INTEGER, response, conversation)")
        database.execute("CREATE INDEX responses_size ON responses (size)")
        database.execute("INSERT INTO responses VALUES ('old', 0, 900, x'7b7d', x'5b5d')")
    stored = StoredResponses(1000)
    stored.open(tmp_path)
    assert await stored.response("old") == b"{}"
    stored.keep(response("new"), [])
    await written(stored)
    assert await stored.response("new")
    with pytest.raises(NotFound):
        await stored.response("old")


async def test_a_file_that_is_opened_again_has_one_total(tmp_path: Path) -> None:
    for place in range(3):
        stored = StoredResponses(1000)
        stored.open(tmp_path)
        stored.keep(response(str(place)), [])
        await written(stored)
    with closing(sqlite3.connect(tmp_path / "responses.sqlite")) as database:
        assert (
            database.execute("SELECT size FROM total").fetchall()
            == database.execute("SELECT sum(size) FROM responses").fetchall()
        )


async def test_a_foreign_lock_stops_neither_what_is_kept_nor_what_is_read(tmp_path: Path) -> None:
    stored, other = StoredResponses(100_000), StoredResponses(100_000)
    for each in (stored, other):
        each.open(tmp_path)
    stored.keep(response("before"), [])
    await written(stored)
    with closing(sqlite3.connect(tmp_path / "responses.sqlite", isolation_level=None)) as foreign:
        foreign.execute("BEGIN IMMEDIATE")
        began = time.thread_time()
        for place in range(50):
            stored.keep(response(str(place)), [])
        assert await stored.response("before")
        assert await stored.conversation("49")
        assert time.thread_time() - began < 1
        foreign.execute("ROLLBACK")
    await written(stored)
    assert await other.response("0")


async def test_what_waits_for_a_lock_has_a_bound(tmp_path: Path) -> None:
    stored = StoredResponses(2000)
    stored.open(tmp_path)
    stored.keep(response("before"), [])
    await written(stored)
    with closing(sqlite3.connect(tmp_path / "responses.sqlite", isolation_level=None)) as foreign:
        foreign.execute("BEGIN IMMEDIATE")
        for place in range(100):
            stored.keep(response(str(place), "x" * 100), [])
        assert sum(each.size for each in stored._unwritten.values()) <= 2000
        foreign.execute("ROLLBACK")
    await written(stored)
    assert await stored.response("99")


async def test_a_response_is_its_owners(tmp_path: Path) -> None:
    stored = StoredResponses(10_000)
    stored.open(tmp_path)
    stored.keep(response("a"), [], "ann")
    for _ in range(2):  # while it waits, and once it is written
        for owner in ("ben", ""):
            with pytest.raises(NotFound):
                await stored.response("a", owner)
            with pytest.raises(NotFound):
                await stored.delete("a", owner)
            with pytest.raises(InvalidRequest):
                await stored.conversation("a", owner)
        assert await stored.response("a", "ann")
        await written(stored)


async def test_the_text_of_a_deleted_response_is_gone_from_disk(tmp_path: Path) -> None:
    stored = StoredResponses(1_000_000)
    stored.open(tmp_path)
    for place in range(20):
        stored.keep(response(str(place), f"other {place}" * 1000), [])
    stored.keep(response("a", "a secret of Ann's " * 1000), [msgspec.Raw(b'{"content":"what she asked"}')])
    await written(stored)
    assert b"secret of Ann" in on_disk(tmp_path)
    await stored.delete("a")
    await written(stored)
    assert b"secret of Ann" not in on_disk(tmp_path)
    assert b"what she asked" not in on_disk(tmp_path)
    assert await stored.response("7")


async def test_neither_the_file_nor_its_log_grows_for_ever(tmp_path: Path) -> None:
    stored = StoredResponses(2_000_000)
    stored.open(tmp_path)
    for place in range(40):
        stored.keep(response(str(place), f"{place} " + "x" * 500_000), [])
        await written(stored)
    for _ in range(100):
        assert await stored.conversation("39")
    await written(stored)
    assert sum(size for _, size in files(tmp_path)) < 12_000_000
