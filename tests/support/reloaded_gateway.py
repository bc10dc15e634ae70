"""A running gateway whose configuration changes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

import httpx

from tests.support.operated_gateway import OperatedGateway, started_by


class Stream:
    """A long answer that another thread reads."""

    def __init__(self, answer: Future[tuple[int, list[str]]], began: Callable[[], bool]) -> None:
        self._answer = answer
        self.began = began

    @property
    def over(self) -> bool:
        return self._answer.done()

    def is_whole(self) -> bool:
        """Wait for the end; whether nothing was cut off."""
        status, events = self._answer.result(30)
        return status == 200 and events[-1] == "data: [DONE]" and not any("error" in event for event in events)


class ReloadedGateway(OperatedGateway):
    """A gateway process that reloads its configuration."""

    def __enter__(self) -> ReloadedGateway:
        return self

    def try_reload(self, config: str, **query: str) -> httpx.Response:
        self.process.write_config(config)
        return self.http.post("/api/reload", params=query)

    def reload(self, config: str, **query: str) -> dict[str, Any]:
        """Reload ``config`` and return the changes."""
        answer = self.try_reload(config, **query)
        assert answer.status_code == 200, answer.text
        changes: dict[str, Any] = answer.json()["changes"]
        return changes

    def stream(self, model: str, tokens: int) -> Stream:
        """Begin to read an answer of ``tokens`` tokens in another thread."""
        events: list[str] = []

        def read() -> tuple[int, list[str]]:
            body = {"model": model, "messages": [], "max_tokens": tokens, "stream": True, "ignore_eos": True}
            with self.http.stream("POST", "/v1/chat/completions", json=body) as response:
                events.extend(line for line in response.iter_lines() if line)
                return response.status_code, events

        stream = Stream(self._pool.submit(read), lambda: bool(events))
        self.until(lambda _: stream.began() or stream.over)
        return stream

    def phases(self) -> dict[str, str]:
        """The phase of a live request of each model."""
        return {each["model"]: each["phase"] for each in self.requests()}

    def pids(self) -> dict[str, int]:
        """The process of each engine, by its model, of which there must be one. Waits until there is any."""
        self.until(lambda _: self.engines() != {})
        engines = self.engines()
        assert len(engines) == len(started_by(self._mark)), "two engines of one model"
        return engines


class OpenShared(Protocol):
    """Gives the shared gateway a configuration for the rest of a test."""

    def __call__(self, config: str, /) -> ReloadedGateway: ...


class OpenAlone(Protocol):
    """Starts a gateway with a configuration, or none. ``key`` is sent with each request."""

    def __call__(self, config: str | None, key: str = ...) -> ReloadedGateway: ...
