"""A gateway that is replaced by new processes while clients use it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import psutil

from enginehouse_kit.gateway import RunningGateway

_LIMIT_S, _PAUSE_S = 60.0, 0.02
_FEW = 20
_TAKEN_OVER = re.compile(r"Process (\d+) has taken over")
_SERVES = "This gateway has taken over from process %d"


class UpgradedGateway:
    """The processes that take over from ``first``, one after the other. ``pid``: the one that serves."""

    def __init__(self, first: RunningGateway) -> None:
        self.pid = first.pid
        self._first = first

    def upgrade(self) -> None:
        """Replace the process that serves, and wait until another one does."""
        before = self.pid
        os.kill(before, signal.SIGUSR2)
        until_now(  # each of the two processes writes a line, in any order
            lambda: _SERVES % before in self._first.log and self._latest() != before, lambda: self._first.log
        )
        self.pid = self._latest()

    def until_alone(self, pid: int) -> None:
        """Wait until the process ``pid`` has drained and ended."""
        until_now(lambda: not _runs(pid), lambda: self._first.log)

    def stop(self) -> None:
        """Stop the process that serves, and wait for its end."""
        os.kill(self._latest(), signal.SIGTERM)
        self.until_alone(self._latest())

    def _latest(self) -> int:
        found = _TAKEN_OVER.findall(self._first.log)
        return int(found[-1]) if found else self._first.pid


class Traffic:
    """What clients of the gateway at ``url`` got: an outcome for each request. ``ok`` is the good one."""

    def __init__(self, url: str, model: str) -> None:
        self.outcomes: dict[str, list[str]] = {}
        self._clients: dict[str, int] = {}
        self._address = urlsplit(url).netloc
        self._model = model
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._kept: list[http.client.HTTPConnection] = []

    def failed(self) -> dict[str, list[str]]:
        """The outcomes that are not good, by kind of client."""
        bad = {kind: [each for each in outcomes if each != "ok"] for kind, outcomes in self.outcomes.items()}
        return {kind: outcomes for kind, outcomes in bad.items() if outcomes}

    @contextmanager
    def flowing(self, streams: int, tokens: int = 40, *, plain: int = 2, short: int = 0) -> Iterator[None]:
        """``plain`` clients with a new connection for each request, as many that keep theirs, and those of streams.

        Of these, ``streams`` ask for ``tokens``, and ``short`` for a few.
        """
        self._begin("fresh", plain, lambda: lambda: self._ask(self._connection(), {"connection": "close"}))
        self._begin("kept", plain, self._keeping)
        self._begin("stream", streams, lambda: lambda: self._stream(tokens))
        self._begin("short", short, lambda: lambda: self._stream(_FEW))
        try:
            yield
        finally:
            self._over.set()
            for each in self._threads:
                each.join()
            for kept in self._kept:
                kept.close()

    def until_each_had(self, count: int) -> None:
        """Wait until clients of each kind have had ``count`` more outcomes."""
        goals = {kind: len(self.outcomes[kind]) + count for kind, clients in self._clients.items() if clients}
        until_now(lambda: all(len(self.outcomes[kind]) >= goal for kind, goal in goals.items()))

    def _begin(self, kind: str, clients: int, client: Callable[[], Callable[[], str]]) -> None:
        outcomes = self.outcomes[kind] = []
        self._clients[kind] = clients

        def run() -> None:
            ask = client()
            while not self._over.is_set():
                try:
                    outcomes.append(ask())
                except (OSError, http.client.HTTPException) as error:  # noqa: PERF203 - the next request is another one
                    outcomes.append(repr(error))
                    ask = client()

        self._threads += [threading.Thread(target=run) for _ in range(clients)]
        for each in self._threads[len(self._threads) - clients :]:
            each.start()

    def _keeping(self) -> Callable[[], str]:
        connection = self._connection()
        self._kept.append(connection)
        return lambda: self._ask(connection, {})

    def _ask(self, connection: http.client.HTTPConnection, headers: dict[str, str]) -> str:
        """Send a request, on a new connection only if the last answer said that the old one is closed."""
        body = json.dumps(self._body(2))
        connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json", **headers})
        answer = connection.getresponse()
        text = answer.read().decode()
        return "ok" if answer.status == 200 and json.loads(text)["choices"] else f"{answer.status} {text}"

    def _stream(self, tokens: int) -> str:
        connection = self._connection()
        connection.request("POST", "/v1/chat/completions", json.dumps({**self._body(tokens), "stream": True}))
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return "ok" if text.endswith("data: [DONE]\n\n") and "event: error" not in text else f"{answer.status} {text}"

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._address, timeout=60)

    def _body(self, tokens: int) -> dict[str, Any]:
        messages = [{"role": "user", "content": "Hello"}]
        return {"model": self._model, "messages": messages, "max_tokens": tokens, "ignore_eos": True}


def until_now(holds: Callable[[], object], explain: Callable[[], str] = str) -> None:
    """Poll until ``holds()``. Raises ``TimeoutError`` with an explanation if that takes too long."""
    end = time.monotonic() + _LIMIT_S
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(explain())
        time.sleep(_PAUSE_S)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
