"""Heads of clients and of engines against h11 for ten minutes, with other examples in each round.

Every difference that a round may find is in the ``TOLERATED`` of the two modules, with its reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.support.hypothesis_profiles import LONGER
from tests.support.paths import ROOT

_SECONDS = 600
_MODULES = ("tests/gateway/http/test_requests.py", "tests/gateway/http/test_responses.py")


@pytest.mark.slow
@pytest.mark.timeout(_SECONDS * 3)
def test_heads_are_read_as_h11_reads_them_for_ten_minutes() -> None:
    end, rounds = time.monotonic() + _SECONDS, 0
    while time.monotonic() < end:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--timeout=0",
            f"--hypothesis-seed={time.time_ns()}",
            *_MODULES,
        ]
        ran = subprocess.run(
            command, cwd=ROOT, env=os.environ | {LONGER: "15"}, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout[-20_000:]
        rounds += 1
    print(f"{rounds} rounds")
    assert rounds
