"""Real gateways whose configuration changes while they run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from enginehouse.testing.gateway import RunningGateway


class Stream:
    """A long answer that is being read."""

    def __init__(self, answer: Future[tuple[int, list[str]]], began: Callable[[], bool]) -> None:
        self._answer = answer
        self.began = began

    @property
    def over(self) -> bool:
        return self._answer.done()

    def is_whole(self) -> bool:
        """Wait for the end of it; whether nothing was cut off."""
        status, events = self._answer.result(30)
        return status == 200 and events[-1] == "data: [DONE]" and not any("error" in event for event in events)


class House:
    """A gateway as its clients and operators see it."""

    def __init__(self, gateway: RunningGateway, state: Path, pool: ThreadPoolExecutor, key: str) -> None:
        self.gateway = gateway
        self.state = state
        self._pool = pool
        self.http = httpx.Client(base_url=gateway.url, headers={"x-api-key": key}, trust_env=False, timeout=30)

    def try_reload(self, config: str, **query: str) -> httpx.Response:
        self.gateway.rewrite(config)
        return self.http.post("/api/reload", params=query)

    def reload(self, config: str, **query: str) -> Any:
        """Have the configuration loaded that this is; what changed."""
        answer = self.try_reload(config, **query)
        assert answer.status_code == 200, answer.text
        return answer.json()["changes"]

    def ask(self, model: str, key: str = "") -> httpx.Response:
        body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
        return self.http.post("/v1/chat/completions", json=body, headers={"x-api-key": key} if key else None)

    def asking(self, model: str) -> Future[httpx.Response]:
        return self._pool.submit(self.ask, model)

    def stream(self, model: str, tokens: int) -> Stream:
        """Read an answer of ``tokens`` tokens meanwhile; returns when it has begun."""
        events: list[str] = []

        def read() -> tuple[int, list[str]]:
            body = {"model": model, "messages": [], "max_tokens": tokens, "stream": True, "ignore_eos": True}
            with self.http.stream("POST", "/v1/chat/completions", json=body) as response:
                events.extend(line for line in response.iter_lines() if line)
                return response.status_code, events

        stream = Stream(self._pool.submit(read), lambda: bool(events))
        self.gateway.until(lambda _: stream.began() or stream.over)
        return stream

    def running(self) -> dict[str, str]:
        """The engines that run, with their states."""
        return {each["backend"]: each["state"] for each in self.http.get("/running").json()["running"]}

    def until_running(self, **engines: str) -> None:
        self.gateway.until(lambda _: self.running() == engines)

    def until_waiting(self, **phases: str) -> None:
        self.gateway.until(lambda _: phases.items() <= self.phases().items())

    def phases(self) -> dict[str, str]:
        return {each["model"]: each["phase"] for each in self.http.get("/api/requests").json()["requests"]}

    def pids(self) -> dict[str, int]:
        """The processes of the engines, as the next gateway would find them; waits until each has been launched."""
        self.gateway.until(
            lambda _: all("pid" in handle for handle in self._handles().values()) and self._handles() != {}
        )
        return {name: handle["pid"] for name, handle in self._handles().items()}

    def _handles(self) -> dict[str, dict[str, Any]]:
        records = [json.loads(file.read_bytes()) for file in self.state.glob("*/engines.json")]
        return {name: record["handle"] for each in records for name, record in each.items()}

    def loads(self, backend: str) -> int:
        """How often an engine was started."""
        return self.gateway.log.count(f"{backend} is starting")


Open = Callable[..., House]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Open]:
    """Open gateways: ``house('[models.a] ...')``."""
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(max_workers=32))

        def open_house(config: str, key: str = "", **env: str) -> House:
            gateway = RunningGateway(config, {"ENGINEHOUSE_STATE_DIR": str(tmp_path), **env}, key=key)
            home = House(stack.enter_context(gateway), tmp_path, pool, key)
            stack.callback(home.http.close)
            return home

        yield open_house


@pytest.fixture(scope="session")
def sim() -> Callable[..., str]:
    """The table of a simulated model, with settings in TOML: ``sim("a", delay="1s", tpot="20ms", ttl='"10m"')``."""

    def table(name: str, delay: str = "0", tpot: str = "1ms", **settings: Any) -> str:
        more = "\n".join(f"{key} = {value}" for key, value in settings.items())
        arguments = json.dumps(["--ttft", "1ms", "--tpot", tpot, "--start-delay", delay])
        return f'[models.{name}]\ndriver = "sim"\nargs = {arguments}\n{more}\n'

    return table
