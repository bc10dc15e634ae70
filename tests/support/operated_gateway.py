"""A running gateway, with what its clients and operators do."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, TypedDict, TypeVar

import httpx
import psutil

from enginehouse_kit.gateway import RunningGateway, Status
from tests.support import plain_httpx
from tests.support.paths import SUPPORT

MARK = "STARTED_BY_TEST"
"""An environment variable that gateways hand on to their engines, so that these are found wherever they end up."""
ADMIN_KEY = "k-admin"
"""What the operator of each gateway sends, whether its configuration has keys or not."""


_LONGEST_ANSWER_S = 120
"""Answers of requests that wait until the test goes on may take as long as several of its steps on a busy machine."""


class RequestRow(TypedDict):
    """A live request, as ``/api/requests`` shows it."""

    id: str
    path: str
    model: str
    phase: str
    position: int | None
    replica: str | None
    moves: int
    output_tokens: int | None
    stays: str | None
    age_ms: float


class OperatedGateway:
    """A gateway process, asked and operated over HTTP.

    ``log``, ``history``, ``starts`` and ``loads`` begin where ``reconfigure`` was called last.
    """

    def __init__(self, process: RunningGateway, pool: ThreadPoolExecutor, mark: str = "") -> None:
        self.process = process
        self._pool = pool
        self._mark = mark
        self._read = 0
        headers = {"x-api-key": ADMIN_KEY}
        self.http = plain_httpx.Client(base_url=process.url, headers=headers, timeout=_LONGEST_ANSWER_S)
        self.until_health = process.until_health

    def __enter__(self) -> OperatedGateway:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.http.close()

    @property
    def log(self) -> str:
        """What the gateway has logged."""
        return self.process.log[self._read :]

    def until(self, holds: Callable[[Status], bool], timeout: float = _LONGEST_ANSWER_S) -> Status:
        """Poll the status until ``holds`` is true for it."""
        return self.process.until(holds, timeout)

    def ask(self, model: str, key: str = "", **more: object) -> httpx.Response:
        """Send a short chat request."""
        body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2, **more}
        return self.http.post("/v1/chat/completions", json=body, headers={"x-api-key": key} if key else None)

    def went_to(self, model: str, **more: object) -> str:
        """The backend that served such a request."""
        answer = self.ask(model, "", **more)
        assert answer.status_code == 200, answer.text
        return str(answer.headers["x-enginehouse-backend"])

    def asking(self, model: str, key: str = "", **more: object) -> Future[httpx.Response]:
        """Send one in another thread."""
        return self._pool.submit(self.ask, model, key, **more)

    @contextmanager
    def impatient_client(self, model: str, path: str = "/v1/chat/completions") -> Iterator[None]:
        """A client that sends a chat request and leaves at the end of the block, without an answer."""
        url, body = httpx.URL(self.process.url), json.dumps({"model": model, "messages": []})
        head = (
            f"POST {path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {ADMIN_KEY}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection((url.host, url.port or 80)) as client:
            client.sendall((head + body).encode())
            yield

    def operate(self, path: str) -> httpx.Response:
        return self.http.post(path)

    def operating(self, path: str) -> Future[httpx.Response]:
        """``operate`` in another thread."""
        return self._pool.submit(self.operate, path)

    def reconfigure(self, config: str) -> None:
        """Have the gateway take another configuration. Raises ``ValueError`` when it does not take all of it."""
        self._read = len(self.process.log)
        self._configure(config)

    def clear(self) -> None:
        """Give it an empty configuration. Returns when requests and engines are gone and it has logged their ends."""
        self._configure("")
        self.until(lambda status: status["requests"] == 0 and not engines_of(self.process.pid) and self._is_at_rest())

    def _configure(self, config: str) -> None:
        self.process.write_config(config)
        answer = self.operate("/api/reload")
        if answer.status_code != 200 or answer.json()["changes"]["needs_restart"]:
            raise ValueError(f"the gateway needs a process of its own for this configuration: {answer.text}")

    def running(self) -> dict[str, str]:
        """The engines that run, with their states."""
        return {each["backend"]: each["state"] for each in self.http.get("/running").json()["running"]}

    def requests(self) -> list[RequestRow]:
        """The live requests."""
        found: list[RequestRow] = self.http.get("/api/requests").json()["requests"]
        return found

    def until_running(self, **engines: str) -> None:
        """Wait until these engines, and no others, are in these states."""
        self.until(lambda _: self.running() == engines)

    def until_waiting(self, **phases: str) -> None:
        """Wait until there is a request in the given phase for each model named."""
        self.until(lambda _: phases.items() <= {each["model"]: each["phase"] for each in self.requests()}.items())

    def until_asked(self, count: int) -> None:
        """Wait until there are so many live requests."""
        self.until(lambda status: status["requests"] == count)

    def loads(self, backend: str) -> int:
        """How often an engine was started."""
        return self.starts().count(backend)

    def starts(self) -> list[str]:
        """The engines that were started, in order."""
        return [change.removesuffix(" starting") for change in self.history() if change.endswith(" starting")]

    def history(self) -> list[str]:
        """The states of engines so far, in order: ``["a starting", "a ready", "a stopping", ...]``."""
        return [" ".join(change) for change in re.findall(r"engines\.engine: (\S+) is (\w+)", self.log)]

    def _is_at_rest(self) -> bool:
        states = dict(change.split() for change in self.history())
        return {*states.values()} <= {"stopped", "failed"}

    def engines(self) -> dict[str, int]:
        """The process of each engine, by its model, whichever process is its parent."""
        return {command[command.index("--model") + 1]: pid for pid, command in started_by(self._mark).items()}

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        lines = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", self.http.get("/metrics").text, re.MULTILINE)
        return sum(map(float, lines))


GatewayT = TypeVar("GatewayT", bound=OperatedGateway)


@contextmanager
def reconfigured(gateway: GatewayT) -> Iterator[Callable[[str], GatewayT]]:
    """Gives a gateway another configuration at each call; at the end an empty one, and then no engine may be left."""

    def reconfigure(config: str) -> GatewayT:
        gateway.reconfigure(config)
        return gateway

    with gateway:
        yield reconfigure
        gateway.clear()


class Serve(Protocol):
    """Serves a configuration for the rest of a test."""

    def __call__(self, config: str, /) -> OperatedGateway: ...


class ServeAlone(Protocol):
    """Serves a configuration, or none, in a new process with ``env`` in its environment."""

    def __call__(self, config: str | None, **env: str) -> OperatedGateway: ...


def engines_of(pid: int) -> list[psutil.Process]:
    """What the gateway with this ``pid`` has launched and not yet collected; its workers are none of it."""
    gateway = psutil.Process(pid)
    own = gateway.cmdline()
    return [child for child in gateway.children() if command_of(child) != own]


def command_of(process: psutil.Process) -> list[str]:
    """Its command line; empty once it has ended."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:  # or a zombie
        return []


def started_by(mark: str) -> dict[int, list[str]]:
    """The engines that gateways of a test have started and that still run, with their command lines."""
    found = {}
    for process in psutil.process_iter(["environ", "cmdline"]):
        environment, command = process.info["environ"] or {}, process.info["cmdline"] or []
        if environment.get(MARK) == mark and "--model" in command:
            found[process.pid] = command
    return found


def kill_engines(mark: str) -> None:
    """Kill the engines that a test has left running because it failed."""
    for pid in started_by(mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def table(name: str, delay: str = "0", ttft: str = "1ms", tpot: str = "1ms", **settings: str) -> str:
    """The table of a model whose engine takes ``delay`` to start: ``table("a", "1s", ttl='"10m"')``."""
    flags = ["--model", "${model}", "--port", "${port}", "--tpot", tpot, "--ttft", ttft, "--start-delay", delay]
    return _stub_table(name, flags, settings)


def simulated_table(name: str, ttft: str = "1ms", **settings: str) -> str:
    """The table of a model with a simulated engine, which takes longer to start and can do more."""
    lines = {"args": str(["--ttft", ttft, "--tpot", "1ms"]), **settings}
    return f'[models.{name}]\ndriver = "sim"\n' + _lines(lines)


class Stage:
    """Engines that load when they are told to, and may find too little memory for that.

    ``curtain``: the file that is locked until they are told.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mute, self._stall, self.curtain = (folder / name for name in ("mute", "stall", "curtain"))
        self._mute.touch()
        self._stall.touch()
        self._closed = _locked(self.curtain)

    def table(self, name: str, ttft: str = "1ms", **settings: str) -> str:
        """The table of such a model."""
        flags = ["--model", "${model}", "--port", "${port}", "--tpot", "1ms", "--ttft", ttft]
        return _stub_table(name, [*flags, "--stage", str(self._folder)], settings)

    def open(self) -> None:
        """Let engines load from now on."""
        self._closed.close()

    @contextmanager
    def mute(self) -> Iterator[None]:
        """Within the block, loaded engines answer no request."""
        with _locked(self._mute):
            yield

    @contextmanager
    def stall(self) -> Iterator[None]:
        """Within the block, streams of loaded engines stand still after their first token."""
        with _locked(self._stall):
            yield

    def limit(self, room: int) -> None:
        """There is memory for so many engines."""
        (self._folder / "room").write_text(str(room))


def _locked(path: Path) -> BinaryIO:
    """A file that is locked until it is closed."""
    file = path.open("wb")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def _stub_table(name: str, flags: list[str], settings: dict[str, str]) -> str:
    command = shlex.join([sys.executable, "-S", "-E", str(SUPPORT / "stub_engine.py")])
    words = f"{command} {' '.join(flags)}"
    return f'[models.{name}]\ndriver = "sim"\ncommand = """{words}"""\n' + _lines(settings)


def _lines(settings: dict[str, str]) -> str:
    return "".join(f"{key} = {value}\n" for key, value in settings.items())
