"""Replays one trace with the mock engines of NVIDIA Dynamo and with ours, in turns, and compares the processor time.

``python benchmarks/beside_dynamo.py --python VENV/bin/python``, where VENV has ``ai-dynamo-runtime``.

Both read the trace from a file, and have the same number of engines, blocks of 64 tokens, and the same step model (our
profile ``polynomial`` is Dynamo's default). Three comparisons, which count more and more:

- the replay: requests go to the engines in turn, and neither the start of the process nor imports count.
- the process: the same, from its start to its end.
- the command: ``enginehouse sim replay``, whose gateway decides by its default strategy, beside Dynamo's process.

The start is the same for every trace, so its share is smaller the longer the trace is.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import NamedTuple

import click
import msgspec

from enginehouse_sim.simulator.replay.traces.workload import Workload, write

_BLOCK = 64
_THEIRS = """
import json, sys, time
from dynamo._core import run_mocker_trace_replay
began = time.process_time()
found = run_mocker_trace_replay([sys.argv[1]], num_workers=int(sys.argv[2]), trace_block_size=64)
print(json.dumps([time.process_time() - began, found.summary["completed_requests"]]))
"""
_OURS = """
import json, sys, time
from pathlib import Path
from enginehouse_sim.virtual import VirtualSettings
from enginehouse_sim.options import CoreSettings
from enginehouse_sim.options import SchedulerConstants
from enginehouse_sim.simulator.replay.gateway_replay import GatewayReplay, Setting
from enginehouse_sim.simulator.replay.variants import TraceFile
core = CoreSettings(profile="polynomial", constants=SchedulerConstants(block_size=64, max_model_len=1 << 20))
setting = Setting(
    gateway=VirtualSettings(instances=int(sys.argv[2]), values=(("routing.strategy", "round_robin"),)), core=core
)
def replayed(limit=None):
    return GatewayReplay(TraceFile(path=Path(sys.argv[1]), limit=limit).open(), setting).run()
replayed(1)  # imports the gateway's plugins
began = time.process_time()
record = replayed()
print(json.dumps([time.process_time() - began, record.requests]))
"""


def write_traces(workload: Workload, number: int, ours: Path, theirs: Path) -> None:
    """Write the same requests in our format and in that of Mooncake, with an id for each block."""
    requests = list(workload.requests(number))
    with ours.open("wb") as file:
        write(requests, file)
    with theirs.open("wb") as file:
        for index, request in enumerate(requests):
            blocks = -(-request.input_length // _BLOCK)
            own = (1 << 40) + (index << 20)
            ids = [*request.prefix_ids, *range(own, own + blocks - len(request.prefix_ids))]
            row = {
                "timestamp": round(request.arrival * 1000),
                "input_length": request.input_length,
                "output_length": request.output_length,
                "hash_ids": ids,
            }
            file.write(msgspec.json.encode(row) + b"\n")


class Used(NamedTuple):
    """Seconds of processor time: of the replay alone, and of its whole process."""

    replay: float
    process: float


def used(python: str, code: str, trace: Path, engines: int, requests: int) -> Used:
    """The time of one replay in a process of its own, which must answer all ``requests``."""
    printed, process = _run([python, "-c", code, str(trace), str(engines)])
    replay, answered = json.loads(printed.splitlines()[-1])
    assert answered == requests, f"{answered} of {requests} requests were answered"
    return Used(replay, process)


def used_by_command(trace: Path, engines: int, requests: int) -> float:
    """The time of ``enginehouse sim replay``."""
    limits = ["--profile", "polynomial", "--block-size", str(_BLOCK), "--max-model-len", str(1 << 20)]
    line = ["-m", "enginehouse", "sim", "replay", str(trace), "--instances", str(engines), *limits, "--json"]
    printed, process = _run([sys.executable, *line])
    found = json.loads(printed)["variants"][0]["requests"]
    assert found == requests, f"{found} of {requests} requests were answered"
    return process


def _run(line: list[str]) -> tuple[str, float]:
    """What a process prints, and its processor time."""
    before = getrusage(RUSAGE_CHILDREN)
    printed = subprocess.run(line, check=True, capture_output=True, text=True, timeout=600).stdout
    after = getrusage(RUSAGE_CHILDREN)
    return printed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@click.command(context_settings={"show_default": True})
@click.option("--python", required=True, help="The interpreter that has ai-dynamo-runtime.")
@click.option("--requests", default=5000)
@click.option("--engines", default=16)
@click.option("--rate", default=60.0, help="Requests in a virtual second.")
@click.option("--lengths", default="azure-conversation")
@click.option("--prefix-sharing", default=0.5)
@click.option("--rounds", default=5)
def main(
    python: str, requests: int, engines: int, rate: float, lengths: str, prefix_sharing: float, rounds: int
) -> None:
    """Print the processor time of both in each round, and the ratios of the fastest ones."""
    workload = Workload(rate=rate, lengths=lengths, prefix_sharing=prefix_sharing)
    ours: list[Used] = []
    theirs: list[Used] = []
    commands: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        our_trace, their_trace = Path(folder) / "ours.jsonl", Path(folder) / "theirs.jsonl"
        write_traces(workload, requests, our_trace, their_trace)
        for _ in range(rounds):
            ours.append(used(sys.executable, _OURS, our_trace, engines, requests))
            theirs.append(used(python, _THEIRS, their_trace, engines, requests))
            commands.append(used_by_command(our_trace, engines, requests))
            click.echo(f"ours {ours[-1]}, Dynamo {theirs[-1]}, our command {commands[-1]:.2f} s")
    _compare("the replay", min(each.replay for each in ours), min(each.replay for each in theirs))
    _compare("the process", min(each.process for each in ours), min(each.process for each in theirs))
    _compare("the command", min(commands), min(each.process for each in theirs))


def _compare(what: str, ours: float, theirs: float) -> None:
    click.echo(f"{what}: ours {ours:.2f} s, Dynamo {theirs:.2f} s, {ours / theirs:.1f} times as long")


if __name__ == "__main__":
    main()
