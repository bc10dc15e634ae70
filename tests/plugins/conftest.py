from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a Python process that can import from ``site``."""

    def run(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
        return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=tmp_path)

    return run
