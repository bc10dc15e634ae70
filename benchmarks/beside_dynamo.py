"""Replays one trace with the mock engines of NVIDIA Dynamo and with ours, in turns, and compares the processor time.

``python benchmarks/beside_dynamo.py --python VENV/bin/python``, where VENV has ``ai-dynamo-runtime``.

Both read the trace from a file, and have the same number of engines, blocks of 64 tokens, the same step model (our
profile ``polynomial`` is Dynamo's default), and requests in turn at each engine. Imports are not counted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

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
from enginehouse import VirtualSettings
from enginehouse_sim.simulator.domain.constants import CoreSettings
from enginehouse_sim.simulator.domain.constants import SchedulerConstants
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


def seconds(python: str, code: str, trace: Path, engines: int) -> tuple[float, int]:
    """The processor time of one replay in a process of its own, and the number of its requests."""
    result = subprocess.run(
        [python, "-c", code, str(trace), str(engines)], check=True, capture_output=True, text=True, timeout=600
    )
    used, requests = json.loads(result.stdout.splitlines()[-1])
    return used, requests


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
    """Print the processor time of both in each round, and the ratio of the fastest ones."""
    workload = Workload(rate=rate, lengths=lengths, prefix_sharing=prefix_sharing)
    found: dict[str, list[float]] = {"ours": [], "Dynamo": []}
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder) / "ours.jsonl", Path(folder) / "theirs.jsonl"
        write_traces(workload, requests, ours, theirs)
        for _ in range(rounds):
            for name, interpreter, code, trace in (
                ("ours", sys.executable, _OURS, ours),
                ("Dynamo", python, _THEIRS, theirs),
            ):
                used, answered = seconds(interpreter, code, trace, engines)
                found[name].append(used)
                click.echo(f"{name}: {used:.3f} s, {answered:,} requests answered")
    click.echo(f"fastest: ours {min(found['ours']):.3f} s, Dynamo {min(found['Dynamo']):.3f} s")
    click.echo(f"ours takes {min(found['ours']) / min(found['Dynamo']):.1f} times as long")


if __name__ == "__main__":
    main()
