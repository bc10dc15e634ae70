"""Plays an agent's day on two real llama-servers, of which one fits into memory: with what helps agents off, then on.

``make engines && python benchmarks/agents_day.py``: an agent of 40 turns with the model ``coder``, whose prompt grows
to seven times its first length, a second one with ``chat`` after every fourth turn, titles that ask for ``chat`` after
every fifth, clients that give up and send again, and a batch of 200 lines. It prints rows of a table in Markdown.

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
_SECOND, _TITLE_AFTER = 4, 5
"""Turns of the first agent from one of the second to the next, and from one title to the next."""
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
    """What came of it.

    - ``read``: the tokens that engines read; ``agents``: those of them that were in prompts of agents.
    - ``new``: the tokens that no engine had read before, so that one has to read them in any case.
    - ``first_tokens``: the seconds until the first token of each turn; ``later``: without the first turn of each agent.
    - ``twice``: the turns of agents that engines computed twice, because a client sent them again.
    """

    read: int
    agents: int
    new: int
    swaps: int
    first_tokens: Sequence[float]
    later: Sequence[float]
    twice: int
    lines: int
    seconds: float


class Client:
    """Talks to the gateway, and measures what agents wait for."""

    def __init__(self, gateway: RunningGateway, http: httpx.AsyncClient) -> None:
        self._url = gateway.url
        self._http = http
        self.first_tokens: list[tuple[bool, float]] = []
        """Whether a turn was not the first one of its agent, and its seconds."""

    async def turn(self, model: str, said: list[dict[str, str]], *, impatient: bool) -> str:
        """An agent's turn. An impatient client leaves and sends it again."""
        body: dict[str, Any] = {"model": model, "messages": said}
        body |= {"max_tokens": 12, "temperature": 0, "stream": True}
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
        self.first_tokens.append((len(body["messages"]) > 2, (first or time.perf_counter()) - began))
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


class Agent:
    """An agent whose prompt grows with each turn; its client gives up at every tenth one."""

    def __init__(self, client: Client, model: str, size: Size, seed: int) -> None:
        self._client = client
        self._model = model
        self._size = size
        self._chance = random.Random(seed)
        self._said = [{"role": "system", "content": _text(self._chance, size.first)}]
        self._turns = 0
        self._answered = asyncio.Lock()

    async def turn(self) -> None:
        """Say more once the turn before has ended, hear the answer, and pause as for a tool."""
        async with self._answered:
            self._turns += 1
            self._said.append({"role": "user", "content": _text(self._chance, self._size.more)})
            heard = await self._client.turn(self._model, self._said, impatient=self._turns % 10 == 0)
            self._said.append({"role": "assistant", "content": heard})
            await asyncio.sleep(self._chance.uniform(0.5, 1.5) * self._size.pause)


async def agents(client: Client, size: Size) -> None:
    """The turns of the first agent, and what begins beside them."""
    first, second = Agent(client, "coder", size, 1), Agent(client, "chat", size, 2)
    beside: list[asyncio.Future[None]] = []
    for turn in range(1, size.turns + 1):
        if turn % _SECOND == 0:
            beside.append(asyncio.ensure_future(second.turn()))
        if turn % _TITLE_AFTER == 0:
            beside.append(asyncio.ensure_future(title(client, turn)))
        await first.turn()
    await asyncio.gather(*beside)


async def title(client: Client, number: int) -> None:
    """A title, which the client asks ``chat`` for."""
    said = [{"role": "user", "content": f"{_TITLE}Conversation {number}"}]
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
        _, lines = await asyncio.gather(agents(client, size), work)
        records = (await client.get("/api/history?limit=1000")).json()["requests"]
        swaps = sum(map(float, _SWAPS.findall((await client.get("/metrics")).text)))
    sent = [record for record in records if record["attempts"]]
    streams = [record for record in sent if record["stream"]]
    twice = len(streams) - size.turns - size.turns // _SECOND
    first_tokens = [seconds for _, seconds in client.first_tokens]
    later = [seconds for is_later, seconds in client.first_tokens if is_later]
    return Day(
        read=_read(sent),
        agents=_read(streams),
        new=_new(sent),
        swaps=int(swaps),
        first_tokens=first_tokens,
        later=later,
        twice=twice,
        lines=lines,
        seconds=time.perf_counter() - began,
    )


def _new(records: Sequence[Mapping[str, Any]]) -> int:
    """The tokens of all prompts, each once: the last prompt of an agent contains its earlier ones."""
    last = {record["model"]: record["tokens_in"] or 0 for record in reversed(records) if record["stream"]}
    return sum(last.values()) + sum(record["tokens_in"] or 0 for record in records if not record["stream"])


def _read(records: Sequence[Mapping[str, Any]]) -> int:
    """The tokens of prompts that were not cached."""
    return sum((record["tokens_in"] or 0) - (record["tokens_cached"] or 0) for record in records)


def config(engine: RealEngine, folder: str, *, on: bool) -> str:
    """Two models of which one runs at a time."""
    long = ("--override-kv", "llama.context_length=int:16384")  # of each slot
    keys = {"context_length": "65536", "keep_cache": '"2GiB"' if on else '"0"', "keep_cache_wait": '"10s"'}
    models = "".join(llama_table(name, engine, "-np", "4", *long, **keys) for name in ("coder", "chat"))
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
@click.option("--more", default=100, show_default=True, help="Words that each turn adds.")
@click.option("--pause", default=0.5, show_default=True, help="Mean seconds between two turns.")
def main(rounds: int, turns: int, lines: int, first: int, more: int, pause: float) -> None:
    """Print what the day took, off and on."""
    size, engine = Size(turns, lines, first, more, pause), llama_server()
    click.echo(
        "| | tokens read | of agents | new | swaps | first token p50, s | p99 | p99 without first turns "
        "| computed twice | lines | took, s |"
    )
    click.echo(f"|{'---|' * 11}")
    for _ in range(rounds):
        for on in (False, True):
            with TemporaryDirectory() as folder, gateway_for(engine, config(engine, folder, on=on)) as gateway:
                day = asyncio.run(play(gateway, size, on=on))
            shares, later = (quantiles(each, n=100, method="inclusive") for each in (day.first_tokens, day.later))
            click.echo(
                f"| {'on' if on else 'off'} | {day.read} | {day.agents} | {day.new} | {day.swaps} | {shares[49]:.2f} "
                f"| {shares[98]:.2f} | {later[98]:.2f} | {day.twice} | {day.lines} | {day.seconds:.0f} |"
            )


if __name__ == "__main__":
    main()
