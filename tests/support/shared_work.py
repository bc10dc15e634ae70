"""How the processes of ``make test`` share its work."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest

from tests.support.paths import ROOT

_COUNT = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_NUMBER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_ENDS_AT = 0.85
_LONGEST = tuple(ROOT / "tests" / folder for folder in ("chaos", "simulator"))
"""Folders of files that compute for up to 20 seconds each: none is begun when the others are about to end."""


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Have each process begin each folder at a place of its own.

    In a fresh clone each then compiles a share of the files, and finds the others compiled.
    """
    report = yield
    if isinstance(collector, pytest.Directory) and report.result:
        first = len(report.result) * _NUMBER // _COUNT
        report.result = [*report.result[first:], *report.result[:first]]
    return report


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mix the files whose tests wait for processes with those that compute, so that the cores are never idle."""
    if _COUNT > 1:
        places = _places({item.path for item in items})
        items.sort(key=lambda item: places[item.path])


def _places(files: Iterable[Path]) -> dict[Path, tuple[float, Path]]:
    """Where in the run each file comes: its place, from 0 to 1, among those of its kind.

    Those that wait end a little before, since the processes do not end together.
    """
    waiting = sorted(file for file in files if file.is_relative_to(ROOT / "tests" / "system"))
    computing = sorted(set(files).difference(waiting), key=lambda file: (not _is_long(file), file))
    kinds = ((waiting, _ENDS_AT), (computing, 1.0))
    return {file: (end * place / len(kind), file) for kind, end in kinds for place, file in enumerate(kind)}


def _is_long(file: Path) -> bool:
    return any(file.is_relative_to(folder) for folder in _LONGEST)
