from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

_SEEDS = 2000
_PARTS = 8
pytestmark = pytest.mark.timeout(300)  # 10 s alone, more beside others


def chaos(*arguments: str) -> str:
    """The output of ``python -m tests.chaos``. It needs a process of its own, in which no clock is real.

    It exits with 1 if a run has a violation.
    """
    command = [sys.executable, "-m", "tests.chaos", *arguments]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{ran.stdout[-20_000:]}\n{ran.stderr[-5_000:]}"
    return ran.stdout


@pytest.mark.parametrize("part", range(_PARTS))
def test_nothing_is_lost_whatever_goes_wrong(part: int) -> None:
    count = _SEEDS // _PARTS
    said = chaos(f"--first={part * count}", f"--seeds={count}", "--jobs=2")
    ran = [int(seeds) for seeds in re.findall(r"^(\d+) seeds, \d+ requests, 0 failed", said, re.MULTILINE)]
    assert ran == [count // 2] * 2


def test_a_seed_replays_byte_for_byte() -> None:
    seeds = ("--first=50", "--seeds=30", "--digests")
    once, again = (chaos(*seeds).splitlines()[:-1] for _ in range(2))
    assert len(once) == 30
    assert once == again
    alone = chaos("--first=75", "--seeds=1", "--digests").splitlines()[0]
    assert alone in once
