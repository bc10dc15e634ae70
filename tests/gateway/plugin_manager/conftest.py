from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.plugins import RunPython, RunTests


@pytest.fixture
def run_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RunPython:
    def run(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
        return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=tmp_path)

    return run


@pytest.fixture
def run_tests(run_python: RunPython, monkeypatch: pytest.MonkeyPatch) -> RunTests:
    def run(site: Path, project: Path) -> subprocess.CompletedProcess[str]:
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        own = ("-c", str(project / "pyproject.toml"), str(project / "tests"))
        return run_python(site, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", *own)

    return run
