"""Runs of the bench in a process of their own, in which no clock is real."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.support.paths import ROOT


def chaos(*arguments: str) -> str:
    """The output of ``python -m tests.chaos``, which exits with 1 if a run has a violation."""
    command = [sys.executable, "-m", "tests.chaos", *arguments]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{ran.stdout[-20_000:]}\n{ran.stderr[-5_000:]}"
    assert "enginehouse" not in ran.stderr  # else a part of the gateway writes past its log
    return ran.stdout


def check_seeds(first: int, count: int, workers: int = 1) -> None:
    """No run of ``count`` seeds has a violation."""
    said = chaos(f"--first={first}", f"--seeds={count}", f"--workers={workers}")
    assert re.search(rf"^{count} seeds, \d+ requests, 0 failed", said, re.MULTILINE)
