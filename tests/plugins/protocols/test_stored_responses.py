from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from enginehouse import InvalidRequest, NotFound
from enginehouse_protocols.responses import stored as module
from enginehouse_protocols.responses.request import Item
from enginehouse_protocols.responses.stored import StoredResponses


def response(id: str, text: str = "ho") -> dict[str, Any]:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return {"id": id, "output": [said]}


def test_a_conversation_ends_with_the_response() -> None:
    stored = StoredResponses(10_000)
    stored.keep(response("a"), [Item(content="hi")])
    asked, said = stored.conversation("a")
    assert (asked.role, asked.content, said.role) == ("user", "hi", "assistant")
    assert json.loads(stored.response("a")) == response("a")


def test_the_least_recently_used_one_goes_first() -> None:
    stored = StoredResponses(1500)
    for id in "abc":
        stored.keep(response(id, "x" * 100), [])
    stored.conversation("a")
    stored.keep(response("d", "x" * 100), [])
    assert stored.conversation("a")
    with pytest.raises(InvalidRequest, match="any more"):
        stored.conversation("b")


def test_what_is_larger_than_all_room_is_not_kept_and_what_is_deleted_makes_room() -> None:
    stored = StoredResponses(1000)
    stored.keep(response("a", "x" * 2000), [])
    with pytest.raises(NotFound):
        stored.response("a")
    stored.keep(response("b", "x" * 200), [])
    stored.delete("b")
    with pytest.raises(NotFound):
        stored.delete("b")
    stored.keep(response("c", "x" * 200), [])
    assert stored.response("c")


def test_all_processes_of_a_gateway_find_them_and_the_next_gateway_too(tmp_path: Path) -> None:
    one, two = StoredResponses(10_000), StoredResponses(10_000)
    for each in (one, two):
        each.open(tmp_path)
    one.keep(response("a"), [Item(content="hi")])
    assert [item.role for item in two.conversation("a")] == ["user", "assistant"]
    two.delete("a")
    with pytest.raises(NotFound):
        one.response("a")
    two.keep(response("b"), [])
    later = StoredResponses(10_000)
    later.open(tmp_path)
    assert later.response("b")
    assert {each.stat().st_mode & 0o077 for each in tmp_path.iterdir()} == {0}


def test_in_a_folder_that_cannot_be_used_they_are_kept_in_memory(tmp_path: Path) -> None:
    stored = StoredResponses(10_000)
    stored.open(tmp_path / "none")
    stored.keep(response("a"), [])
    assert stored.response("a")


def test_without_room_the_error_says_how_to_get_it() -> None:
    with pytest.raises(InvalidRequest, match=r"plugins\.responses\.stored"):
        StoredResponses(0).conversation("a")


def test_a_file_of_an_earlier_version_keeps_its_size(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "responses.sqlite")) as database, database:
        database.execute("CREATE TABLE responses (id PRIMARY KEY, used REAL, size INTEGER, response, conversation)")
        database.execute("CREATE INDEX responses_size ON responses (size)")
        database.execute("INSERT INTO responses VALUES ('old', 0, 900, x'7b7d', x'5b5d')")
    stored = StoredResponses(1000)
    stored.open(tmp_path)
    assert stored.response("old") == b"{}"
    stored.keep(response("new"), [])
    assert stored.response("new")
    with pytest.raises(NotFound):
        stored.response("old")


def test_a_file_that_is_opened_again_has_one_total(tmp_path: Path) -> None:
    for place in range(3):
        stored = StoredResponses(1000)
        stored.open(tmp_path)
        stored.keep(response(str(place)), [])
    with closing(sqlite3.connect(tmp_path / "responses.sqlite")) as database:
        assert (
            database.execute("SELECT size FROM total").fetchall()
            == database.execute("SELECT sum(size) FROM responses").fetchall()
        )


class AtOnce:
    """A thread that has ended when it has been started."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...], daemon: bool) -> None:
        self.start = partial(target, *args)


def test_the_log_of_a_file_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Thread", AtOnce)
    stored = StoredResponses(2_000_000)
    stored.open(tmp_path)
    for place in range(12):
        stored.keep(response(str(place), "x" * 500_000), [])
    stored.keep(response("small"), [])
    for _ in range(1500):
        assert stored.conversation("small")
    assert stored.response("11")
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) < 12_000_000
