"""Engines and gateways that are killed at any moment leave no cache with which an engine answers wrongly."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import httpx
import psutil
import pytest

from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.operated_gateway import engines_of
from tests.support.real_gateways import llama_server, llama_table

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(3600)]

SWAPS = 200
_BEGINNING = " ".join(f"word{number}" for number in range(200))
PROMPTS = [f"{_BEGINNING} {' '.join(f'{name}{number}' for number in range(60))}" for name in ("one", "two", "three")]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[RunningGateway]:
    """A gateway that runs either ``a`` or ``b``, or ``cold``, whose cache is not kept."""
    engine = llama_server()
    keys = {"keep_cache_wait": '"60s"', "start_timeout": '"60s"'}
    tables = [llama_table(name, engine, "-c", "8192", "-np", "2", **keys) for name in "ab"]
    config = "".join([*tables, llama_table("cold", engine, "-c", "8192", "-np", "2", keep_cache="0")])
    path = f"{engine.program.parent}{os.pathsep}{os.environ['PATH']}"
    with RunningGateway(config, {"PATH": path, "ENGINEHOUSE_STATE_DIR": str(tmp_path)}) as running:
        yield running


class Swaps:
    """Asks one model after the other, and kills what it finds."""

    def __init__(self, gateway: RunningGateway) -> None:
        self.gateway = gateway
        self.chance = Random(48)
        self.engines_killed = self.gateways_killed = self.refused = 0

    def ask(self, model: str, prompt: str, **more: object) -> tuple[str, float]:
        """The text, and the share of the prompt that was cached. Asks again where a kill ends the request."""
        body = {"model": model, "prompt": prompt, "max_tokens": 8, "temperature": 0, **more}
        while (answer := self._answer(body)) is None:
            self.refused += 1
            Event().wait(0.05)
        usage = answer["usage"]
        return answer["choices"][0]["text"], usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"]

    def _answer(self, body: object) -> dict[str, Any] | None:
        with suppress(httpx.RequestError):
            answer = plain_httpx.post(f"{self.gateway.url}/v1/completions", json=body, timeout=120)
            return answer.json() if answer.status_code == 200 else None
        return None

    def kill(self) -> None:
        """Kill the gateway or one of its engines: while one saves, stops, starts, restores or answers."""
        Event().wait(self.chance.uniform(0, 0.5))
        engines = engines_of(self.gateway.pid)
        if engines and self.chance.random() < 0.85:
            try:
                self.chance.choice(engines).kill()
            except psutil.NoSuchProcess:
                return
            self.engines_killed += 1
        else:
            self.gateway.kill()
            self.gateways_killed += 1
            self.gateway.start()


def test_answers_are_right_after_any_kill(gateway: RunningGateway) -> None:
    swaps = Swaps(gateway)
    right = [swaps.ask("cold", prompt, cache_prompt=False)[0] for prompt in PROMPTS]
    shares: list[float] = []
    with ThreadPoolExecutor(1) as thread:
        for number in range(SWAPS):
            prompt = swaps.chance.randrange(len(PROMPTS))
            asked: Future[tuple[str, float]] = thread.submit(swaps.ask, "ab"[number % 2], PROMPTS[prompt])
            if swaps.chance.random() < 0.5:
                swaps.kill()
            text, share = asked.result()
            assert text == right[prompt], f"swap {number}"
            shares.append(share)
    print(f"{swaps.engines_killed} engines and {swaps.gateways_killed} gateways killed, {swaps.refused} asked again,")
    print(f"{sum(share > 0.5 for share in shares)} of {SWAPS} prompts cached")
    assert swaps.engines_killed > SWAPS / 4
    assert swaps.gateways_killed > SWAPS / 50
    assert sum(share > 0.5 for share in shares) > SWAPS / 4, "caches are kept beside all of that"
