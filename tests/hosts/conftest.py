"""Real gateways that launch simulated engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from enginehouse.testing.gateway import RunningGateway


class House:
    """A gateway as its clients and operators see it."""

    def __init__(self, gateway: RunningGateway, pool: ThreadPoolExecutor, key: str) -> None:
        self.gateway = gateway
        self._pool = pool
        self.http = httpx.Client(base_url=gateway.url, headers={"x-api-key": key}, trust_env=False, timeout=30)

    def ask(self, model: str, key: str = "") -> httpx.Response:
        body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
        return self.http.post("/v1/chat/completions", json=body, headers={"x-api-key": key} if key else None)

    def asking(self, model: str, key: str = "") -> Future[httpx.Response]:
        """Ask meanwhile."""
        return self._pool.submit(self.ask, model, key)

    def operate(self, path: str) -> httpx.Response:
        return self.http.post(path)

    def running(self) -> dict[str, str]:
        """The engines that run, with their states."""
        return {each["backend"]: each["state"] for each in self.http.get("/running").json()["running"]}

    def requests(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.http.get("/api/requests").json()["requests"]
        return found

    def until_running(self, **engines: str) -> None:
        """Wait until these engines, and no others, are in these states."""
        self.gateway.until(lambda _: self.running() == engines)

    def until_waiting(self, **phases: str) -> None:
        """Wait until there is a request in the given phase for each model named."""
        self.gateway.until(
            lambda _: phases.items() <= {each["model"]: each["phase"] for each in self.requests()}.items()
        )

    def loads(self, backend: str) -> int:
        """How often an engine was started."""
        return self.gateway.log.count(f"{backend} is starting")


Open = Callable[..., House]


@pytest.fixture
def house() -> Iterator[Open]:
    """Open gateways: ``house('[models.a] ...')``."""
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(max_workers=32))

        def open_house(config: str | None = None, key: str = "", **env: str) -> House:
            home = House(stack.enter_context(RunningGateway(config, env, key=key)), pool, key)
            stack.callback(home.http.close)
            return home

        yield open_house


@pytest.fixture(scope="session")
def sim() -> Callable[..., str]:
    """The table of a simulated model that takes ``delay`` to start: ``sim("a", "1s", ttl='"10m"')``."""

    def table(name: str, delay: str = "0", **settings: str) -> str:
        more = "\n".join(f"{key} = {value}" for key, value in settings.items())
        return (
            f'[models.{name}]\ndriver = "sim"\nargs = ["--ttft", "1ms", "--tpot", "1ms", "--start-delay", "{delay}"]\n'
            f"{more}\n"
        )

    return table
