"""The folders for the prefix caches of launched engines."""

from __future__ import annotations

from pathlib import Path

from enginehouse.engines.cache_folders import CacheFolders, make_folder


def test_what_no_backend_needs_any_more_is_removed(tmp_path: Path) -> None:
    folders = CacheFolders(tmp_path)
    for name in ("a", "tiny:1m", "b"):
        folders.folder_of(name).mkdir(parents=True)
        (folders.folder_of(name) / "slot-0").write_bytes(b"1")
    folders.remove_others(["a", "tiny:1m"])
    assert {each.name for each in folders.folder_of("a").parent.iterdir()} == {"a", "tiny%3A1m"}
    CacheFolders(tmp_path / "none").remove_others([])


def test_what_nothing_keeps_track_of_is_not_left_to_another_engine(tmp_path: Path) -> None:
    folder = tmp_path / "kept_caches" / "a"
    make_folder(folder, empty=True)
    (folder / "slot-0").write_bytes(b"1")
    make_folder(folder, empty=False)
    assert (folder / "slot-0").exists()
    make_folder(folder, empty=True)
    assert [*folder.iterdir()] == []
