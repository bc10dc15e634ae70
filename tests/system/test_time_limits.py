"""One test that takes too long must not end the run of all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SLOW_REPORTS = """\
import time

def pytest_runtest_makereport(item, call):
    if call.excinfo is not None:
        time.sleep(0.8)
"""
TESTS = """\
import signal
import pytest

@pytest.mark.timeout(0.5)
def test_fails():
    assert False

@pytest.mark.timeout(0.5)
def test_hangs():
    signal.pause()

def test_passes():
    pass
"""


def test_the_run_goes_on_after_a_time_limit(tmp_path: Path) -> None:
    """Also if the time is over while pytest writes the report of a failure, as on a busy machine."""
    (tmp_path / "conftest.py").write_text(SLOW_REPORTS)
    (tmp_path / "test_slow.py").write_text(TESTS)
    config = ("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), "-p", "no:cacheprovider")
    command = (sys.executable, "-m", "pytest", *config, str(tmp_path))
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert "2 failed, 1 passed" in run.stdout, run.stdout


def test_tests_with_processes_have_more_time(request: pytest.FixtureRequest) -> None:
    limit = request.node.get_closest_marker("timeout")
    assert limit is not None
    assert limit.args[0] > float(request.config.getini("timeout"))
