"""Sends the same traffic through the gateway and through other routers, in real time, to the same simulated engines.

``python benchmarks/beside_routers.py --folders routers/bin``: a table in Markdown. ``routers/bin`` is of an environment
with ``vllm-router`` and ``sglang-router``. ``--traces agents`` and ``--fleet V4`` take a part. With ``--figures FILE``,
later calls go on with the next rounds.

The contenders take turns, in another order in each round. All get the requests and arrivals of ``placement.py`` at the
load ``busy``, with other words in each turn, so that no cache knows them. The engines have the profile
``h100-llama3-8b``. The gateway learns from them how many slots they have, the other routers do not ask.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click
import msgspec
from contenders import free_port, running
from placement import FLEETS, LOADS, SLO
from placement_traces import trace

from enginehouse import GatewayError
from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from enginehouse_sim.simulator.calibration.streams import EngineAddress, stream
from enginehouse_sim.simulator.replay.answer import AnswerRecord
from enginehouse_sim.simulator.replay.report import Distribution, Record
from enginehouse_sim.simulator.replay.traces.reader import TraceRequest

_ROUTERS = ("vllm-router", "sglang-router")
_POLICIES = ("cache_aware", "power_of_two")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Figures(NamedTuple):
    """Times to the first token in milliseconds; shares in percent."""

    p50: float
    p99: float
    attained: float
    failed: float


@contextmanager
def contenders(engines: Sequence[SimEngine], strategies: Sequence[str], folders: str) -> Iterator[dict[str, str]]:
    """Yields the address of each: the gateway with each strategy, and each router with each policy."""
    with ExitStack() as stack:
        found = {}
        for strategy in strategies:
            lines = [f'[telemetry]\naccess_log = false\n[routing]\nstrategy = "{strategy}"']
            lines += [f'[backends.e{place}]\ndriver = "sim"\nurl = "{each.url}"' for place, each in enumerate(engines)]
            gateway = stack.enter_context(RunningGateway("\n".join(lines)))
            gateway.until_health(**{f"e{place}": "healthy" for place in range(len(engines))})
            found[f"`{strategy}`"] = gateway.url
        for router in _ROUTERS:
            program = shutil.which(router, path=folders)
            if program is None:
                raise SystemExit(f"{router} is not in {folders!r}: pip install {router}")
            for policy in _POLICIES:
                url = stack.enter_context(_router(router, program, policy, engines))
                found[f"{router} `{policy}`"] = url
        yield found


@contextmanager
def _router(name: str, program: str, policy: str, engines: Sequence[SimEngine]) -> Iterator[str]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [program, *(["launch"] if name == "sglang-router" else []), "--worker-urls", *(e.url for e in engines)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--policy", policy]
    command += ["--prometheus-port", str(free_port()), "--log-level", "error"]
    with running(command, frozenset(), f"{url}/health"):
        yield url


@lru_cache(maxsize=100_000)
def words(tokens: int, seed: str) -> str:
    """A text of so many tokens, which are also as many as four characters each would make."""
    letters = random.Random(seed).choices(_LETTERS, k=3 * tokens)
    return "".join(" " + "".join(letters[3 * place : 3 * place + 3]) for place in range(tokens))


def prompt(number: int, request: TraceRequest, turn: str) -> str:
    """The text of a prompt. The blocks that requests share are equal in one turn."""
    shared = "".join(words(request.prefix_tokens, f"{turn} {each}") for each in request.prefix_ids)
    rest = request.input_length - len(request.prefix_ids) * request.prefix_tokens
    return shared + words(rest, f"{turn} request {number}")


async def play(url: str, requests: Sequence[TraceRequest], turn: str) -> Record:
    """Send each request at its arrival."""
    record = Record(slo=SLO)
    asks = [
        {"prompt": prompt(place, each, turn), "max_tokens": each.output_length, "stream": True, "ignore_eos": True}
        for place, each in enumerate(requests)
    ]
    began = time.perf_counter()

    async def send(request: TraceRequest, ask: dict[str, object]) -> None:
        await asyncio.sleep(max(0.0, began + request.arrival - time.perf_counter()))
        try:
            timed = await stream(EngineAddress(url, "sim"), ask)
        except GatewayError as error:
            record.reject(str(error))
            return
        answer = AnswerRecord(timed.sent, request.input_length)
        answer.first_token, answer.last_token = timed.events[0], timed.events[-1]
        answer.output_tokens = request.output_length
        record.finish(answer)

    await asyncio.gather(*map(send, requests, asks))
    return record


def measured(url: str, requests: Sequence[TraceRequest], turn: str) -> Figures:
    record = asyncio.run(play(url, requests, turn))
    times, failed = Distribution.of(record.times_to_first), sum(record.rejected.values())
    for why in record.rejected:
        click.echo(f"{turn}: {why}", err=True)
    return Figures(times.p50, times.p99, 100 * record.attained / len(requests), failed)


def _row(name: str, runs: Sequence[Figures]) -> str:
    def spread(values: Sequence[float], digits: int = 0) -> str:
        return f"{median(values):.{digits}f} [{min(values):.{digits}f}-{max(values):.{digits}f}]"

    p50, p99, attained, failed = zip(*runs, strict=True)
    return f"| {name} | {spread(p50)} | {spread(p99)} | {spread(attained, 1)} | {sum(failed):.0f} |"


def _listed(_: object, __: object, text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


@click.command()
@click.option("--folders", default="", help="Where the routers' programs are.")
@click.option("--fleet", "fleet_name", type=click.Choice(["S4", "S8", "V4"]), default="S4", show_default=True)
@click.option("--traces", default="agents,chat,mixed", callback=_listed, show_default=True)
@click.option("--strategies", default="cache_aware", callback=_listed, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--requests", "number", default=80, show_default=True)
@click.option("--figures", type=click.Path(path_type=Path), help="File that keeps the figures of all rounds.")
def main(
    folders: str,
    fleet_name: str,
    traces: Sequence[str],
    strategies: Sequence[str],
    rounds: int,
    number: int,
    figures: Path | None,
) -> None:
    """Print the medians of the rounds, with the lowest and the highest."""
    fleet = FLEETS[fleet_name]
    slots = fleet.engines * fleet.slots * fleet.traffic
    flags: dict[str, str | int | bool] = {
        "profile": "h100-llama3-8b",
        "num_gpu_blocks": 6000,
        "max_num_seqs": fleet.slots,
        "max_model_len": 131072,
    }
    found: dict[str, dict[str, list[Figures]]] = {}
    if figures is not None and figures.exists():
        found = msgspec.json.decode(figures.read_bytes(), type=dict[str, dict[str, list[Figures]]])
    with ExitStack() as stack:
        engines = [stack.enter_context(SimEngine("sim", **flags)) for _ in range(fleet.engines)]
        urls = stack.enter_context(contenders(engines, strategies, folders))
        for name in traces:
            runs = found.setdefault(f"{fleet_name} {name}", {})
            begin = len(next(iter(runs.values()), ()))
            for round in range(begin, begin + rounds):
                requests = trace(name, LOADS["busy"], slots, number, 31 + round)
                for each in random.Random(round).sample([*urls], len(urls)):
                    runs.setdefault(each, []).append(measured(urls[each], requests, f"{name} {round} {each}"))
            if figures is not None:
                figures.write_bytes(msgspec.json.encode(found))
            click.echo(f"\n**{fleet_name} {name}**, {begin + rounds} rounds\n")
            click.echo("| router | TTFT p50, ms | p99 | objectives, % | failed |\n|---|---|---|---|---|")
            for each in urls:
                click.echo(_row(each, runs[each]))


if __name__ == "__main__":
    main()
