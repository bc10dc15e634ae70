"""What it costs to keep the streams of an engine movable: tokens per second of one stream at a time.

``python benchmarks/continuation_cost.py [--rounds N] [--tokens N] [--vocabulary N]`` needs ``make engines``. It starts
a llama-server whose tiny model has a large vocabulary: the time of a token is that of its sampling. Each round asks for
the same greedy chat in all ways, another one first each time: at the engine; there with one log-probability for each
token, as the gateway once asked, and with one probability after sampling; and through gateways with two backends, whose
streams are movable, movable with ``[plugins.llamacpp] token_ids``, and not (``broken_stream = "error"``).

``--url URL --driver DRIVER --model NAME`` measures an engine that runs already, in the ways that its driver has.

The program prints medians and quartiles, also of the ratios to the engine itself within a round; the bytes that the
client gets for a token; and the processor time of the engine and of the gateway for a token. On a busy machine, the
time between two tokens of the fastest tenth tells more than the rate: nothing else ran meanwhile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import urlopen

from contenders import free_port
from rich.console import Console
from rich.progress import track
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))

from enginehouse_bench.contenders import Contender
from enginehouse_kit.gateway import RunningGateway
from tests.support.real_engines import find_llama_server
from tests.support.tiny_gguf import write_tiny_gguf

ENGINE = "engine"
PROBABILITY = {"logprobs": True, "top_logprobs": 1}
MOVABLE = {"gateway, movable": "", "gateway, not movable": '[routing]\nbroken_stream = "error"\n'}
REPORTING = {"gateway, movable with token_ids": "[plugins.llamacpp]\ntoken_ids = true\n"}


class Engine(NamedTuple):
    """An engine that runs; ``pid`` is 0 if it runs elsewhere."""

    url: str
    driver: str = "llamacpp"
    model: str = "tiny"
    pid: int = 0


class Way(NamedTuple):
    """A way to ask. ``asked``: fields of the request. ``pid``: of the gateway; 0 without one."""

    name: str
    url: str
    asked: dict[str, Any]
    pid: int = 0


class Stream(NamedTuple):
    """One answer: the seconds between its events, and what each token cost, in µs of processor time."""

    tokens: int
    gaps: Sequence[float]
    bytes: float
    engine_us: float
    gateway_us: float


@contextmanager
def large_engine(program: Path, vocabulary: int) -> Iterator[Engine]:
    """A llama-server whose model has ``vocabulary`` tokens."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "large.gguf")
        write_tiny_gguf(model, vocabulary=vocabulary)
        port = free_port()
        where = ["--host", "127.0.0.1", "--port", str(port), "--alias", "tiny", "--offline", "--no-ui"]
        command = [str(program), "-m", str(model), *where, "-c", "4096", "-np", "2", "-t", "1", "--no-warmup"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            url = f"http://127.0.0.1:{port}"
            until(lambda: is_healthy(url))
            yield Engine(url, pid=process.pid)
        finally:
            process.terminate()
            process.wait()


def is_healthy(url: str) -> bool:
    try:
        with urlopen(f"{url}/health", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def until(holds: Callable[[], bool]) -> None:
    began = perf_counter()
    while not holds():
        if perf_counter() - began > 60:
            raise SystemExit("an engine or a gateway does not become ready")


def started(stack: ExitStack, engine: Engine, settings: str) -> RunningGateway:
    """A gateway for which the engine is two backends, so that it could continue a stream."""
    keys = f'driver = "{engine.driver}"\nurl = "{engine.url}"\nmodels = ["{engine.model}"]\n'
    backends = "".join(f"[backends.{name}]\n{keys}" for name in ("a", "b"))
    gateway = stack.enter_context(RunningGateway(f"{settings}\n{backends}"))
    gateway.until_health(a="healthy", b="healthy")
    return gateway


def read(way: Way, engine: Engine, tokens: int) -> Stream:
    """Ask for a chat of ``tokens`` tokens and read it."""
    where = urlsplit(way.url)
    connection = HTTPConnection(where.hostname or "", where.port, timeout=60)
    chat = {"model": engine.model, "messages": [{"role": "user", "content": "hello world"}], "temperature": 0}
    body = json.dumps({**chat, "max_tokens": tokens, "stream": True, **way.asked})
    before = (cpu_time(engine.pid), cpu_time(way.pid))
    connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
    times, size = [], 0
    for line in connection.getresponse():
        size += len(line)
        if b'"content":"' in line and b'"content":""' not in line:
            times.append(perf_counter())
        if way.pid and (b'"logprobs":{' in line or b'token_ids":[' in line):
            raise SystemExit(f"{way.name}: the client got what it had not asked for")
    connection.close()
    if len(times) < tokens / 2:  # vLLM sends tokens together if the reader is slow
        raise SystemExit(f"{way.name}: {len(times)} events with text for {tokens} tokens")
    used = [(cpu_time(pid) - so_far) * 1e6 / tokens for pid, so_far in zip((engine.pid, way.pid), before, strict=True)]
    return Stream(tokens, [later - sooner for sooner, later in pairwise(times)], size / tokens, *used)


def cpu_time(pid: int) -> float:
    """Of the process and its children, in seconds; 0 without a process."""
    used = Contender("", "", pid or None).cpu_time()
    return 0.0 if used is None else used.total


def speed(stream: Stream) -> float:
    """In tokens per second, from the first to the last."""
    return (stream.tokens - 1) / sum(stream.gaps)


def spread(values: Sequence[float], form: str) -> str:
    low, _, high = quantiles(values, n=4)
    return f"{median(values):{form}} [{low:{form}}-{high:{form}}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--vocabulary", type=int, default=152_000)
    parser.add_argument("--url")
    parser.add_argument("--driver", default="llamacpp")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--pid", type=int, default=0, help="of the engine at --url, for its processor time")
    arguments = parser.parse_args()
    streams: dict[str, list[Stream]] = defaultdict(list)
    with ExitStack() as stack:
        if arguments.url:
            engine = Engine(arguments.url, arguments.driver, arguments.model, arguments.pid)
        else:
            engine = stack.enter_context(large_engine(installed(), arguments.vocabulary))
        ways = list(ways_to_ask(stack, engine))
        for way in ways:
            read(way, engine, arguments.tokens)
        for n in track(range(arguments.rounds), "rounds"):
            first = n % len(ways)
            for way in ways[first:] + ways[:first]:
                streams[way.name].append(read(way, engine, arguments.tokens))
    Console(width=120).print(figures(streams))


def installed() -> Path:
    found = find_llama_server()
    if found is None:
        raise SystemExit("no llama-server is installed: run `make engines`")
    return found.program


def ways_to_ask(stack: ExitStack, engine: Engine) -> Iterator[Way]:
    yield Way(ENGINE, engine.url, {})
    gateways = MOVABLE
    if engine.driver == "llamacpp":
        yield Way("engine, log-probability", engine.url, PROBABILITY)
        yield Way("engine, after sampling", engine.url, {**PROBABILITY, "post_sampling_probs": True})
        gateways = MOVABLE | REPORTING
    for name, settings in gateways.items():
        gateway = started(stack, engine, settings)
        yield Way(name, gateway.url, {}, gateway.pid)


def figures(streams: dict[str, list[Stream]]) -> Table:
    costs = ("bytes/token", "fastest tenth, ms", "engine, ms/token", "gateway, µs/token")
    table = Table("", "tokens/s", "ratio to the engine", *costs)
    for name, each in streams.items():
        ratios = [speed(mine) / speed(own) for mine, own in zip(each, streams[ENGINE], strict=True)]
        tenth_ms = quantiles([gap for stream in each for gap in stream.gaps], n=10)[0] * 1000
        engine_ms = sum(stream.engine_us for stream in each) / len(each) / 1000
        gateway_us = sum(stream.gateway_us for stream in each) / len(each)
        costs = (f"{each[0].bytes:.0f}", f"{tenth_ms:.2f}", f"{engine_ms:.2f}", f"{gateway_us:.0f}")
        table.add_row(name, spread([speed(stream) for stream in each], ".0f"), spread(ratios, ".3f"), *costs)
    return table


if __name__ == "__main__":
    main()
