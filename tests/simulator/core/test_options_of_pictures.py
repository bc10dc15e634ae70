from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from enginehouse_sim.commands import sim


def test_a_picture_that_cannot_be_drawn_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.chdir(tmp_path)

    result = CliRunner().invoke(sim, ["replay", "missing.csv", "--plot", "out.svg"])

    assert "needs matplotlib" in f"{result.output}{result.exception}"
    assert not list(tmp_path.iterdir())
