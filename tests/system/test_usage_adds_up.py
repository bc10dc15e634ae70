"""What the gateway keeps of usage is what engines say they computed, while requests move, break and are left."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.parallel import all_of
from tests.support.upgraded_gateway import UpgradedGateway

KEYS = [f"k{number}" for number in range(20)]
ADMIN = {"authorization": "Bearer ops-secret"}
PROMPTS = ["Hello, engine house! " * (1 + number) for number in range(7)]
AT_ONCE = 24
LONE_STREAMS = 8
"""Those that run while their only engine is killed."""
LEFT_AFTER = 3
"""Events that a client reads before it leaves."""


class Engines:
    """One that stays, two between which streams move and of which one is killed, one that clients leave, one alone."""

    def __init__(self) -> None:
        self.steady, self.left = SimEngine("m", tpot="1ms"), SimEngine("left", tpot="250ms")
        self.pair = [SimEngine("pair", tpot="8ms") for _ in range(2)]
        self.lone = SimEngine("lone", tpot="8ms")

    @property
    def all(self) -> dict[str, SimEngine]:
        a, b = self.pair
        return {"steady": self.steady, "left": self.left, "lone": self.lone, "a": a, "b": b}

    @contextmanager
    def running(self) -> Iterator[None]:
        with all_of(*self.all.values()):
            try:
                yield
            finally:
                self.pair[0].stop()

    def kill_one(self) -> None:
        """Kill the first of the pair; another one takes its place."""
        port = self.pair[0].port
        self.pair[0].kill()
        self.pair[0] = SimEngine("pair", tpot="8ms", port=port)
        self.pair[0].start()

    def config(self) -> str:
        keys = "".join(f'[[auth.keys]]\nname = "{key}"\nkey = "{key}-secret"\n' for key in KEYS)
        backends = "".join(
            f'[backends.{name}]\ndriver = "sim"\nurl = "{engine.url}"\nmodels = ["{engine.models[0]}"]\n'
            for name, engine in self.all.items()
        )
        checks = '[checks]\ninterval = "100ms"\ntimeout = "20s"\n[routing]\nretry_budget = 1.0\n'
        checks += '[timeouts]\nfirst_byte = "5m"\nstall = "5m"\n'
        return f'{checks}{keys}[[auth.keys]]\nname = "ops"\nkey = "ops-secret"\nadmin = true\n{backends}'


class Ledger:
    """What each key used, by what the engines told their clients."""

    def __init__(self, prompts: list[int]) -> None:
        self.prompts = prompts
        self.said: dict[str, Counter[str]] = {key: Counter() for key in KEYS}
        self.moved = 0
        self.left = 0

    def ended(self, key: str, tokens_in: int, tokens_out: int) -> None:
        self.said[key].update(requests=1, tokens_in=tokens_in, tokens_out=tokens_out)


class Load:
    """Sends requests of all kinds with the keys in turn."""

    def __init__(self, client: httpx.AsyncClient, engines: Engines, ledger: Ledger) -> None:
        self.client, self.engines, self.ledger = client, engines, ledger

    async def send(self, number: int) -> None:
        """Half of the requests are plain, the others streams: whole ones, moved ones, and some that clients leave."""
        kind, key = number // len(KEYS) % 10, KEYS[number % len(KEYS)]
        body = {"prompt": PROMPTS[number % 7], "max_tokens": 3 + number % 11, "ignore_eos": True}
        if kind < 5:
            reply = await self.client.post("/v1/completions", json={**body, "model": "m"}, headers=_caller(key))
            usage = reply.raise_for_status().json()["usage"]
            assert usage["completion_tokens"] == body["max_tokens"]
            self.ledger.ended(key, usage["prompt_tokens"], usage["completion_tokens"])
        elif kind == 5:
            await self.leave({**body, "model": "left", "max_tokens": 1500}, key)
            self.ledger.left += 1
        else:
            model, longer = ("m", 0) if kind < 9 else ("pair", 200)
            length = 3 + number % 11 + longer
            whole = {**body, "model": model, "max_tokens": length}
            if number % 2:
                whole["stream_options"] = {"include_usage": True}
            await self.stream(whole, key, f"r{number}" if model == "pair" else None)
            self.ledger.ended(key, self.ledger.prompts[number % 7], length)

    async def stream(self, body: dict[str, Any], key: str, moved: str | None) -> None:
        """Read a stream to its end; ``moved``: the id of a request that is moved while it is answered."""
        async with self.open(body, key, moved) as events:
            count, said = 0, None
            async for event in events:
                assert "error" not in event, event
                count += bool(event.get("choices"))
                said = event.get("usage") or said
                if moved is not None and count == 5:
                    await self.move(moved)
                    moved = None
        assert ("stream_options" in body) == (said is not None)
        assert said is None or said["completion_tokens"] == body["max_tokens"]

    async def move(self, id: str) -> None:
        rows = (await self.client.get("/api/requests", headers=ADMIN)).json()["requests"]
        source = next((row["replica"] for row in rows if row["id"] == id), None)
        to = {"to": "b" if source == "pair@a" else "a"}
        answer = await self.client.post(f"/api/requests/{id}/move", json=to, headers=ADMIN)
        self.ledger.moved += answer.status_code == 200

    async def leave(self, body: dict[str, Any], key: str) -> None:
        """Read the beginning of a stream."""
        async with self.open(body, key) as events:
            count = 0
            async for _ in events:
                count += 1
                if count == LEFT_AFTER:
                    return

    async def break_lone(self) -> tuple[int, int]:
        """Kill the only engine under its streams; the tokens that their clients saw, and the requests that broke."""
        seen = 0
        begun = [asyncio.Event() for _ in range(LONE_STREAMS)]

        async def read(number: int) -> str | None:
            nonlocal seen
            body = {"model": "lone", "prompt": "Hello", "max_tokens": 1500, "ignore_eos": True}
            async with self.open(body, KEYS[number]) as events:
                async for event in events:
                    if "error" in event:
                        return str(event["error"]["code"])
                    seen += 1
                    begun[number].set()
            return None

        reading = [asyncio.ensure_future(read(number)) for number in range(LONE_STREAMS)]
        await asyncio.gather(*(each.wait() for each in begun))
        await asyncio.to_thread(self.engines.lone.kill)
        codes = await asyncio.gather(*reading)
        assert set(codes) == {"upstream_error"}
        return seen, len(codes)

    @asynccontextmanager
    async def open(
        self, body: dict[str, Any], key: str, id: str | None = None
    ) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        headers = {**_caller(key), **({"x-request-id": id} if id else {})}
        body = {**body, "stream": True}
        async with self.client.stream("POST", "/v1/completions", json=body, headers=headers) as reply:
            assert reply.status_code == 200
            yield (json.loads(line[6:]) async for line in reply.aiter_lines() if line.startswith("data: {"))


def _caller(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}-secret"}


def computed(engine: SimEngine) -> tuple[int, int]:
    """The tokens of prompts and answers that the engine has counted."""
    return int(engine.metric("prompt_tokens_total")), int(engine.metric("generation_tokens_total"))


async def usage(client: httpx.AsyncClient, by: str) -> list[dict[str, Any]]:
    answer = (await client.get(f"/api/usage?by={by}", headers=ADMIN)).raise_for_status().json()
    rows: list[dict[str, Any]] = answer["rows"]
    return rows


async def prompt_tokens(engine: SimEngine) -> list[int]:
    """The tokens of each prompt, which its engine computes."""
    async with plain_httpx.AsyncClient(base_url=engine.url) as client:
        bodies = ({"model": engine.models[0], "prompt": prompt, "max_tokens": 1} for prompt in PROMPTS)
        replies = [await client.post("/v1/completions", json=body) for body in bodies]
    return [reply.json()["usage"]["prompt_tokens"] for reply in replies]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("count", "upgrades"),
    [
        (200, 0),
        pytest.param(200, 1, marks=pytest.mark.slow),
        pytest.param(10_000, 0, marks=pytest.mark.slow),
        pytest.param(10_000, 3, marks=pytest.mark.slow),
    ],
)
async def test_the_store_has_what_engines_computed(tmp_path: Path, count: int, upgrades: int) -> None:
    """With ``upgrades``, other processes take over from the gateway in between, with its kept connections."""
    engines = Engines()
    with (
        engines.running(),
        RunningGateway(engines.config(), {"ENGINEHOUSE_STATE_DIR": str(tmp_path)}, key="ops-secret") as gateway,
        upgraded(gateway) as latest,
    ):
        gateway.until_health(**dict.fromkeys(engines.all, "healthy"))
        ledger = Ledger(await prompt_tokens(engines.steady))
        before = computed(engines.steady)
        limits = httpx.Limits(max_connections=2 * AT_ONCE)
        async with plain_httpx.AsyncClient(base_url=gateway.url, timeout=120, limits=limits) as client:
            load = Load(client, engines, ledger)
            numbers = iter(range(count))
            kills = {count // 5 * each for each in range(1, 5 if count > 1000 else 2)}
            upgrade_at = {count * (1 + each) // (1 + upgrades) - 1 for each in range(upgrades)}

            async def send() -> None:
                for number in numbers:
                    if number in kills:
                        await asyncio.to_thread(engines.kill_one)
                    if number in upgrade_at:
                        await asyncio.to_thread(latest.upgrade)
                    await load.send(number)

            sending = [asyncio.ensure_future(send()) for _ in range(AT_ONCE)]
            lone = await load.break_lone()
            await asyncio.gather(*sending)
            await until_all_are_kept(client, count + LONE_STREAMS)
            await check_keys(client, ledger)
            await check_models(client, engines, ledger, before, lone)
    assert ledger.moved > count // 100


@contextmanager
def upgraded(gateway: RunningGateway) -> Iterator[UpgradedGateway]:
    """The last of the gateway's processes is stopped in the end."""
    upgraded = UpgradedGateway(gateway)
    try:
        yield upgraded
    finally:
        upgraded.stop()


async def until_all_are_kept(client: httpx.AsyncClient, count: int) -> None:
    async def all_are_kept() -> bool:
        kept: int = sum(row["requests"] for row in await usage(client, "model"))
        return kept == count

    while not await all_are_kept():  # noqa: ASYNC110 - it is written every second
        await asyncio.sleep(0.05)


async def check_keys(client: httpx.AsyncClient, ledger: Ledger) -> None:
    """What has ended is kept exactly, however often it moved, and if its engine was killed."""
    kept: dict[str, Counter[str]] = {key: Counter() for key in KEYS}
    for row in await usage(client, "key,model"):
        if row["model"] in ("m", "pair"):
            kept[row["key"]].update({name: row[name] for name in ("requests", "tokens_in", "tokens_out")})
            assert row["failed"] == 0
    assert kept == ledger.said


async def check_models(
    client: httpx.AsyncClient, engines: Engines, ledger: Ledger, before: tuple[int, int], lone: tuple[int, int]
) -> None:
    """What broke is kept within an event of each request."""
    rows = {row["model"]: row for row in await usage(client, "model")}
    after = computed(engines.steady)
    assert (rows["m"]["tokens_in"], rows["m"]["tokens_out"]) == (after[0] - before[0], after[1] - before[1])
    assert (rows["left"]["requests"], rows["left"]["failed"]) == (ledger.left, ledger.left)
    assert abs(rows["left"]["tokens_out"] - computed(engines.left)[1]) <= ledger.left
    seen, broken = lone
    assert (rows["lone"]["requests"], rows["lone"]["failed"]) == (broken, broken)
    assert abs(rows["lone"]["tokens_out"] - seen) <= broken
