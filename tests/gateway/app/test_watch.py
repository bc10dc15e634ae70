"""Whether a file was changed."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from enginehouse.app.reload import ChangeWatch, stamp


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "enginehouse.toml"
    file.write_text("a")
    return file


def watching(file: Path) -> ChangeWatch:
    return ChangeWatch(partial(stamp, file))


def looks(watch: ChangeWatch, times: int = 3) -> list[bool]:
    return [watch.changed() for _ in range(times)]


def test_a_file_that_is_as_it_was_is_no_news(file: Path) -> None:
    assert looks(watching(file)) == [False] * 3


def test_a_change_is_told_once_when_the_file_rests(file: Path) -> None:
    watch = watching(file)
    file.write_text("bb")
    assert looks(watch) == [False, True, False]


def test_a_file_that_is_still_being_written_is_not_told(file: Path) -> None:
    watch = watching(file)
    for size in range(2, 6):
        file.write_text("b" * size)
        assert not watch.changed()
    assert looks(watch) == [True, False, False]


def test_a_time_alone_is_a_change(file: Path) -> None:
    watch = watching(file)
    os.utime(file, (1, 1))
    assert looks(watch) == [False, True, False]


def test_a_file_of_the_same_size_and_time_in_its_place_is_a_change(file: Path) -> None:
    watch = watching(file)
    before = file.stat()
    other = file.with_name("other")
    other.write_text("b")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(file)
    assert looks(watch) == [False, True, False]


def test_a_missing_file_is_no_news_and_one_that_comes_is(file: Path) -> None:
    watch = watching(file)
    file.rename(file.with_name("away"))
    assert looks(watch) == [False] * 3
    file.write_text("b")
    assert looks(watch) == [False, True, False]


def test_a_file_that_was_away_and_is_as_it_was_is_no_news(file: Path) -> None:
    watch = watching(file)
    file.rename(file.with_name("away"))
    assert not watch.changed()
    file.with_name("away").rename(file)
    assert looks(watch) == [False] * 3


def test_a_file_that_was_not_there_at_first_is_news_when_it_comes(tmp_path: Path) -> None:
    watch = watching(tmp_path / "enginehouse.toml")
    assert looks(watch) == [False] * 3
    (tmp_path / "enginehouse.toml").write_text("a")
    assert looks(watch) == [False, True, False]


def test_links_that_are_exchanged_are_a_change(tmp_path: Path) -> None:
    """As Kubernetes mounts a ConfigMap: file -> ..data/file, ..data -> a folder that is exchanged."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "enginehouse.toml").write_text("a")
        os.utime(tmp_path / folder / "enginehouse.toml", (1, 1))
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "enginehouse.toml").symlink_to("..data/enginehouse.toml")
    watch = watching(tmp_path / "enginehouse.toml")
    assert looks(watch) == [False] * 3
    (tmp_path / "..new").symlink_to("two")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert looks(watch) == [False, True, False]


def test_a_file_that_cannot_be_looked_at_is_no_news(file: Path) -> None:
    assert looks(watching(file / "below")) == [False] * 3
