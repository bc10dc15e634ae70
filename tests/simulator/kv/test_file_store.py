"""A store in a file, as several processes see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from enginehouse import ConfigError
from enginehouse_sim.simulator.kv.file_store import FileStore

HIGH = 2**64 - 1


def test_what_one_process_stores_another_finds(tmp_path: Path) -> None:
    one, other = (FileStore(tmp_path / "store", 10, "a") for _ in range(2))
    one.put([1, HIGH, 3])
    assert [other.count_leading(hashes) for hashes in ([1, HIGH, 3, 4], [4, 1], [])] == [3, 0, 0]
    assert FileStore(tmp_path / "store", 10, "b").count_leading([1]) == 0


def test_the_least_recently_used_block_of_a_file_goes_first(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store", 4, "a")
    store.put([1, 2])
    store.put([3, 4])
    store.use([1, 9])
    store.put([5])
    assert [store.count_leading([content]) for content in (1, 2, 3, 4, 5, 9)] == [1, 0, 1, 1, 1, 0]


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store").write_bytes(b"no database" * 100)
    with pytest.raises(ConfigError, match="cannot be used as a store of blocks"):
        FileStore(tmp_path / "store", 10, "a")
