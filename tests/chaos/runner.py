"""Runs many seeds, in several processes, and says what they found."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from time import perf_counter

from tests.chaos.runs import run_seed
from tests.chaos.schedule import make_schedule
from tests.chaos.world import Outcome

SEED = "ENGINEHOUSE_CHAOS_SEED"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--step", type=int, default=1, help="run every STEP-th of them")
    parser.add_argument("--only", type=int, nargs="+", metavar="SEED", help="run these seeds instead")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes share them")
    parser.add_argument("--workers", type=int, default=1, help="how many workers each gateway has")
    parser.add_argument("--digests", action="store_true", help="print the checksum of every run")
    arguments = parser.parse_args()
    if arguments.jobs > 1:
        sys.exit(_share(arguments.first, arguments.seeds, arguments.jobs, arguments.workers))
    alone = os.environ.get(SEED)
    range_of_seeds = range(arguments.first, arguments.first + arguments.seeds, arguments.step)
    seeds = [int(alone)] if alone else arguments.only or range_of_seeds
    sys.exit(run(seeds, arguments.workers, in_full=bool(alone), digests=arguments.digests))


def run(seeds: Iterable[int], workers: int, *, in_full: bool, digests: bool) -> bool:
    """Run ``seeds`` in this process; whether one failed."""
    logging.getLogger().setLevel(logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    gc.disable()  # there is a collection after each run
    count = requests = failed = 0
    began = reported = perf_counter()
    with tempfile.TemporaryDirectory(prefix="enginehouse-chaos-", dir=_memory()) as folder:
        os.environ["ENGINEHOUSE_STATE_DIR"] = folder
        for count, seed in enumerate(seeds, 1):
            outcome = run_seed(seed, workers)
            if count == 1:
                gc.freeze()  # everything is imported
            requests += outcome.requests
            failed += bool(outcome.violations)
            if digests:
                print(seed, outcome.story.digest(), flush=True)
            if outcome.violations or in_full:
                report(outcome, in_full)
            if perf_counter() - reported > 60:
                reported = perf_counter()
                print(f"... {count} seeds, {failed} failed, {reported - began:.0f} s", file=sys.stderr)
    print(f"{count} seeds, {requests} requests, {failed} failed, {perf_counter() - began:.1f} s", flush=True)
    return failed > 0


def report(outcome: Outcome, in_full: bool) -> None:
    """Say what went wrong, how to see it again and, ``in_full``, everything that happened."""
    if in_full:
        print("\n".join([*make_schedule(outcome.seed).lines(), "", *outcome.story.lines(), ""]))
    for violation in outcome.violations:
        print(f"seed {outcome.seed}: {violation}")
    if outcome.violations and not in_full:
        arguments = " ".join(["-m tests.chaos", *sys.argv[1:]])
        print(f"  replay it: {SEED}={outcome.seed} python {arguments}", flush=True)


def _share(first: int, seeds: int, jobs: int, workers: int) -> bool:
    command = [sys.executable, "-m", "tests.chaos", f"--step={jobs}", f"--workers={workers}"]
    running = [subprocess.Popen([*command, f"--first={first + n}", f"--seeds={seeds - n}"]) for n in range(jobs)]
    return max(process.wait() for process in running) > 0


def _memory() -> str | None:
    """A folder in memory, where there is one: gateways write down which engines run."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
