"""Plays an agent's day on two real llama-servers, of which one fits into memory: with what helps agents off, then on.

``make engines && python benchmarks/agents_day.py``: an agent of 40 turns with the model ``coder``, a second one with
``chat`` that works now and then, titles that ask for ``chat``, clients that give up and send again, and a batch of 200
lines. It prints rows of a table in Markdown.

*Off*: no cache outlives a swap, no interceptors, and the lines of the batch are sent four at a time. *On*:
``keep_cache``, ``join_duplicates``, ``small_tasks`` and ``[services.batches]``.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import click
import httpx

sys.path.insert(0, str(Path(__file__).parent.parent))  # for the support of the tests

from enginehouse_kit.gateway import RunningGateway
from tests.support.real_engines import RealEngine
from tests.support.real_gateways import gateway_for, llama_server, llama_table

_TITLE = "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.\n"
_WORDS = ["bell", "shop", "oil", "rail", "glow", "stone", "river", "lamp", "fork", "cloud", "paper", "wheel"]
_SWAPS = re.compile(r'^enginehouse_swap_duration_seconds_count\{.*outcome="ready".*\} (\S+)$', re.MULTILINE)
_PATIENCE_S = 0.3
"""After which an impatient client sends its request again."""
_UNNOTICED_S = 0.2
"""Until the gateway notices that the client has left: proxies between them take a moment."""


class Size(NamedTuple):
    """How long the day is. ``first``: words of an agent's first prompt; ``more``: of what a turn adds."""

    turns: int
    lines: int
    first: int
    more: int
    pause: float


class Day(NamedTuple):
    """What came of it. ``read``: tokens that engines read, ``agents`` of them for agents.

    ``twice``: turns of agents that were computed again, because a client sent them again.
    """

    read: int
    agents: int
    swaps: int
    first_tokens: Sequence[float]
    twice: int
    lines: int
    seconds: float


class Client:
    """Talks to the gateway, and measures what agents wait for."""

    def __init__(self, gateway: RunningGateway, http: httpx.AsyncClient) -> None:
        self._url = gateway.url
        self._http = http
        self.first_tokens: list[float] = []

    async def turn(self, model: str, said: list[dict[str, str]], *, impatient: bool) -> str:
        """An agent's turn. An impatient client leaves and sends it again."""
        body = {"model": model, "messages": said, "max_tokens": 12, "temperature": 0, "stream": True}
        began = time.perf_counter()
        leaving = asyncio.ensure_future(self._streamed(body, began)) if impatient else None
        if leaving is not None:
            done, _ = await asyncio.wait([leaving], timeout=_PATIENCE_S)
            if not done:
                again = asyncio.ensure_future(self._streamed(body, began))
                await asyncio.sleep(_UNNOTICED_S)
                leaving.cancel()
                return await again
            return leaving.result()
        return await self._streamed(body, began)

    async def _streamed(self, body: dict[str, Any], began: float) -> str:
        text, first = "", None
        async with self._http.stream("POST", f"{self._url}/v1/chat/completions", json=body) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                for choice in json.loads(line[6:]).get("choices", ()):
                    piece = choice["delta"].get("content") or ""
                    first = first or (time.perf_counter() if piece else None)
                    text += piece
        self.first_tokens.append((first or time.perf_counter()) - began)
        return text

    async def post(self, path: str, body: object) -> dict[str, Any]:
        answer: dict[str, Any] = (await self._http.post(f"{self._url}{path}", json=body)).raise_for_status().json()
        return answer

    async def get(self, path: str) -> httpx.Response:
        return (await self._http.get(f"{self._url}{path}")).raise_for_status()

    async def upload(self, content: bytes) -> str:
        form = {"file": ("lines.jsonl", content)}
        answer = await self._http.post(f"{self._url}/v1/files", files=form, data={"purpose": "batch"})
        return str(answer.raise_for_status().json()["id"])


async def agent(client: Client, model: str, size: Size, turns: int, pause: float, seed: int) -> None:
    """An agent whose prompt grows with each turn; its client gives up at every tenth one."""
    chance = random.Random(seed)
    said = [{"role": "system", "content": _text(chance, size.first)}]
    for turn in range(1, turns + 1):
        said.append({"role": "user", "content": _text(chance, size.more)})
        said.append({"role": "assistant", "content": await client.turn(model, said, impatient=turn % 10 == 0)})
        await asyncio.sleep(chance.uniform(0.5, 1.5) * pause)


async def titles(client: Client, number: int, pause: float) -> None:
    """Titles, which the client asks ``chat`` for."""
    for title in range(number):
        await asyncio.sleep(pause)
        said = [{"role": "user", "content": f"{_TITLE}Conversation {title}"}]
        await client.post("/v1/chat/completions", {"model": "chat", "messages": said, "max_tokens": 8})


def _text(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(_WORDS, k=words))


def _line(number: int) -> dict[str, Any]:
    return {"model": "coder", "prompt": f"{_text(random.Random(number), 40)} {number}", "max_tokens": 8}


async def sent_lines(client: Client, number: int) -> int:
    """The lines of the batch as a script sends them. Returns how many were done."""
    room, done = asyncio.Semaphore(4), 0

    async def send(line: int) -> None:
        nonlocal done
        async with room:
            await client.post("/v1/completions", _line(line))
            done += 1

    await asyncio.gather(*[send(line) for line in range(number)])
    return done


async def batch(client: Client, number: int) -> int:
    """The lines as a batch. Returns how many were done."""
    rows = [
        {"custom_id": str(line), "method": "POST", "url": "/v1/completions", "body": _line(line)}
        for line in range(number)
    ]
    file = await client.upload("".join(json.dumps(row) + "\n" for row in rows).encode())
    asked = {"input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h"}
    id = (await client.post("/v1/batches", asked))["id"]
    while (found := (await client.get(f"/v1/batches/{id}")).json())["status"] != "completed":  # noqa: ASYNC110
        await asyncio.sleep(0.2)
    return int(found["request_counts"]["completed"])


async def play(gateway: RunningGateway, size: Size, *, on: bool) -> Day:
    """A day in front of a gateway that has loaded nothing."""
    began = time.perf_counter()
    async with httpx.AsyncClient(trust_env=False, timeout=None) as http:
        client = Client(gateway, http)
        work = batch(client, size.lines) if on else sent_lines(client, size.lines)
        *_, lines = await asyncio.gather(
            agent(client, "coder", size, size.turns, size.pause, 1),
            agent(client, "chat", size, size.turns // 8, 6 * size.pause, 2),
            titles(client, size.turns // 5, 4 * size.pause),
            work,
        )
        records = (await client.get("/api/history?limit=1000")).json()["requests"]
        swaps = sum(map(float, _SWAPS.findall((await client.get("/metrics")).text)))
    sent = [record for record in records if record["attempts"]]
    streams = [record for record in sent if record["stream"]]
    twice = len(streams) - size.turns - size.turns // 8
    seconds = time.perf_counter() - began
    return Day(_read(sent), _read(streams), int(swaps), client.first_tokens, twice, lines, seconds)


def _read(records: Sequence[Mapping[str, Any]]) -> int:
    """The tokens of prompts that were not cached."""
    return sum((record["tokens_in"] or 0) - (record["tokens_cached"] or 0) for record in records)


def config(engine: RealEngine, folder: str, *, on: bool) -> str:
    """Two models of which one runs at a time."""
    keys = {"context_length": "65536", "keep_cache": '"2GiB"' if on else '"0"', "keep_cache_wait": '"10s"'}
    models = "".join(llama_table(name, engine, "-np", "4", **keys) for name in ("coder", "chat"))
    if not on:
        return models
    return f"""interceptors = ["join_duplicates", "small_tasks"]
{models}
[routing.aliases]
small = {{ to = ["chat", "coder"], prefer = "loaded" }}
[plugins.small_tasks]
model = "small"
[services.batches]
folder = "{folder}"
"""


@click.command()
@click.option("--rounds", default=1, show_default=True)
@click.option("--turns", default=40, show_default=True, help="Of the first agent.")
@click.option("--lines", default=200, show_default=True, help="Of the batch.")
@click.option("--first", default=600, show_default=True, help="Words of an agent's first prompt.")
@click.option("--more", default=15, show_default=True, help="Words that each turn adds.")
@click.option("--pause", default=0.5, show_default=True, help="Mean seconds between two turns.")
def main(rounds: int, turns: int, lines: int, first: int, more: int, pause: float) -> None:
    """Print what the day took, off and on."""
    size, engine = Size(turns, lines, first, more, pause), llama_server()
    click.echo("| | tokens read | of agents | swaps | first token p50, s | p99 | computed twice | lines | took, s |")
    click.echo("|---|---|---|---|---|---|---|---|---|")
    for _ in range(rounds):
        for on in (False, True):
            with TemporaryDirectory() as folder, gateway_for(engine, config(engine, folder, on=on)) as gateway:
                day = asyncio.run(play(gateway, size, on=on))
            shares = quantiles(day.first_tokens, n=100)
            click.echo(
                f"| {'on' if on else 'off'} | {day.read} | {day.agents} | {day.swaps} | {shares[49]:.2f} "
                f"| {shares[98]:.2f} | {day.twice} | {day.lines} | {day.seconds:.0f} |"
            )


if __name__ == "__main__":
    main()
