from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from enginehouse import ReplicaState
from enginehouse.engines.state_file import EngineRecord, StateFile, state_folder

RECORD = EngineRecord(host="local", port=4711, fingerprint="f", handle={"pid": 1})


def test_a_later_gateway_finds_what_is_written_down(tmp_path: Path) -> None:
    first = StateFile(tmp_path / "state")
    first.put("a", RECORD)
    first.put("b", RECORD)
    first.remove("b", first.records["b"])
    first.close()
    second = StateFile(tmp_path / "state")
    assert second.records == {"a": RECORD}
    second.close()


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "state")
    state.put("a", RECORD)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [state.folder, state.folder / "engines.json"]}
    assert modes == {"state": 0o700, "engines.json": 0o600}
    state.close()


def test_a_record_that_was_replaced_is_not_removed_with_the_old_one(tmp_path: Path) -> None:
    state = StateFile(tmp_path)
    old, new = (EngineRecord(host="local", port=port, fingerprint="f", handle={}) for port in (1, 2))
    state.put("a", old)
    state.put("a", new)
    state.remove("a", old)
    assert state.records == {"a": new}
    state.close()


def test_two_gateways_do_not_share_a_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = StateFile(tmp_path)
    first.put("a", RECORD)
    second = StateFile(tmp_path)
    assert f"Another gateway of this name uses {tmp_path}" in caplog.text
    assert second.records == {}
    second.put("b", RECORD)
    second.close()
    assert not second.folder.exists()
    first.close()
    third = StateFile(tmp_path)
    assert third.folder == tmp_path
    assert third.records == {"a": RECORD}
    third.close()


def test_a_folder_that_cannot_be_made_is_told_and_done_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    state = StateFile(tmp_path / "file" / "state")
    assert "The next gateway will not adopt the engines" in caplog.text
    assert state.logs.is_dir()
    state.close()


@pytest.mark.parametrize("torn", [b'{"a": {"pid": ', b'{"\xff": {}}'])
def test_a_file_that_cannot_be_read_is_told_and_begun_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, torn: bytes
) -> None:
    (tmp_path / "engines.json").write_bytes(torn)
    state = StateFile(tmp_path)
    assert "cannot be read" in caplog.text
    assert state.records == {}
    state.close()


def test_each_name_has_a_folder_of_its_own_whatever_the_port(tmp_path: Path) -> None:
    environ = {"ENGINEHOUSE_STATE_DIR": str(tmp_path)}
    assert state_folder("default", environ) == tmp_path / "default"
    assert state_folder("../two", environ) == tmp_path / "%2E%2E%2Ftwo"
    assert state_folder("default", {}).parent.name == "enginehouse"


def test_the_lock_passes_to_another_gateway_without_a_gap(tmp_path: Path) -> None:
    first = StateFile(tmp_path)
    first.put("a", RECORD)
    assert first.lock is not None
    first.leave()
    second = StateFile(tmp_path, os.dup(first.lock))
    first.remove("a", first.records["a"])  # of no effect: the folder is the other one's
    first.close()
    third = StateFile(tmp_path)
    assert third.lock is None
    assert second.records == {"a": RECORD}
    second.close()
    third.close()


def test_what_happened_meanwhile_is_written_when_the_files_are_taken_back(tmp_path: Path) -> None:
    state = StateFile(tmp_path)
    state.put("a", RECORD)
    state.leave()
    state.remove("a", state.records["a"])
    state.footprints.put("m", 1)
    state.sleepers.follow("a", ReplicaState.STOPPING, may_sleep=True)
    assert not (tmp_path / "footprints.json").exists()
    state.take_back()
    state.close()
    again = StateFile(tmp_path)
    assert again.records == {}
    assert again.footprints.known == {"m": 1}
    assert "a" in again.sleepers.names
    again.close()


def test_the_list_of_engines_is_right_again_after_another_gateway_had_it(tmp_path: Path) -> None:
    state = StateFile(tmp_path)
    state.put("a", RECORD)
    assert state.lock is not None
    state.leave()
    other = StateFile(tmp_path, os.dup(state.lock))
    other.remove("a", other.records["a"])
    other.close()
    state.take_back()
    state.close()
    again = StateFile(tmp_path)
    assert again.records == {"a": RECORD}
    again.close()


def test_an_engine_that_the_other_gateway_has_launched_is_recorded_on(tmp_path: Path) -> None:
    state = StateFile(tmp_path)
    state.put("a", RECORD)
    state.put("ends", RECORD)
    assert state.lock is not None
    state.leave()
    other = StateFile(tmp_path, os.dup(state.lock))
    other.put("b", RECORD)
    other.close()
    state.remove("ends", state.records["ends"])
    assert list(state.take_back().launched) == ["b"]
    state.close()
    again = StateFile(tmp_path)
    assert again.records == {"a": RECORD, "b": RECORD}
    again.close()
