"""Runs seeds: ``python -m tests.chaos --seeds 1000``, or ``ENGINEHOUSE_CHAOS_SEED=7 python -m tests.chaos``."""

from __future__ import annotations

import os
import sys

if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets of strings is part of a run
    os.execve(
        sys.executable, [sys.executable, "-m", "tests.chaos", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"}
    )

from tests.chaos import chance

chance.install()

from tests.chaos.runner import main  # noqa: E402

main()
