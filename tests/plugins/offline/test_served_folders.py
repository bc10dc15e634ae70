"""Whether the files of folders were changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from enginehouse_offline.served_folders import watch_folders


def test_a_folder_has_changed_once_its_files_have_come_to_rest(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a").write_text("1")
    watch = watch_folders(lambda: [tmp_path, *(each for each in tmp_path.iterdir() if each.is_dir())])
    assert not watch.changed()
    (tmp_path / "b").write_text("1")
    assert not watch.changed(), "it may still be written"
    (tmp_path / "b").write_text("12")
    assert not watch.changed()
    assert watch.changed()
    assert not watch.changed()
    (tmp_path / "below" / "a").unlink()
    assert [watch.changed(), watch.changed(), watch.changed()] == [False, True, False]


def test_files_that_cannot_be_looked_at_end_no_watch_of_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = Path.stat

    def refuse(path: Path, **how: bool) -> os.stat_result:
        if path.parent == tmp_path:
            raise PermissionError(path)
        return stat(path, **how)

    (tmp_path / "a").write_text("1")
    monkeypatch.setattr(Path, "stat", refuse)  # as in a folder that may be listed, but not searched
    watch = watch_folders(lambda: [tmp_path])
    assert not watch.changed()
    (tmp_path / "b").write_text("1")
    assert [watch.changed(), watch.changed(), watch.changed()] == [False, True, False]
