"""The kit's gateway process."""

from __future__ import annotations

import tempfile
from pathlib import Path

import psutil
import pytest

from enginehouse_kit.gateway import RunningGateway


def test_a_gateway_that_does_not_start_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def fail() -> set[psutil.Process]:
        with pytest.raises(RuntimeError, match=r"did not start:(?s:.*)routing\.nonsense"):
            RunningGateway("[routing]\nnonsense = 1\n").start()
        assert list(tmp_path.iterdir()) == []
        return set(psutil.Process().children(recursive=True))

    once = fail()  # the process that forks the gateways of all tests may be new
    assert fail() <= once
