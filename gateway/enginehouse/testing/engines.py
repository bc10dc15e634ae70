"""Simulated engines as real processes, for tests."""

from __future__ import annotations

import http.client
import re
import select
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import msgspec

_ADDRESSES = re.compile(r"listening on (http://[^\s,]+), control on (http://[^\s,]+)(?:, llumlet on (\S+))?")
_METRIC = re.compile(r"vllm:(\w+)\{(.*)\} (\S+)")
_START_TIMEOUT = 30.0
_STOP_TIMEOUT = 10.0


class SeenRequest(msgspec.Struct, kw_only=True):
    """A request as it reached the engine.

    ``path`` includes the query, header names are in lower case, ``status`` is ``running``, ``done`` or ``aborted``,
    and ``fault`` is the kind of the fault that hit it.
    """

    path: str
    headers: list[tuple[str, str]]
    status: str
    fault: str | None = None
    body: str = ""
    body_base64: str | None = None

    @property
    def raw(self) -> bytes:
        """The body, byte for byte."""
        return self.body.encode() if self.body_base64 is None else b64decode(self.body_base64)

    def header(self, name: str) -> str | None:
        """The first value of the header ``name`` (lower case), or ``None``."""
        return next((value for key, value in self.headers if key == name), None)


class SimEngine:
    """A simulated engine in a process of its own, which runs inside a ``with`` block.

    ``flags`` are those of ``python -m enginehouse_sim``: ``SimEngine("llama3:8b", tpot="10ms", vision=False)``.
    ``llumlet`` is where it takes commands to move requests, if it was started with a ``llumlet_port``. Unless told
    otherwise, it answers as fast as it can. Every method raises ``OSError`` once the engine is gone.
    """

    def __init__(self, *models: str, **flags: str | int | bool) -> None:
        self.models = models or ("sim",)
        self.url = ""
        self.llumlet = ""
        self._flags = {"port": 0, "control_port": 0, "ttft": "0", "tpot": "0", **flags}
        self._control = ""
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> SimEngine:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the process and wait until it listens. Raises ``RuntimeError`` when it does not."""
        command = [sys.executable, "-m", "enginehouse_sim", *self._arguments()]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            self.url, self._control, self.llumlet = self._addresses()
        except BaseException:
            self.kill()
            raise

    @property
    def port(self) -> int:
        """The port that it listens on."""
        port = urlsplit(self.url).port
        assert port is not None
        return port

    def requests(self) -> list[SeenRequest]:
        """The POST requests that reached it, oldest first."""
        return msgspec.json.decode(self._ask("GET", "/sim/requests"), type=list[SeenRequest])

    def forget_requests(self) -> None:
        """Forget the requests so far."""
        self._ask("DELETE", "/sim/requests")

    def fault(self, kind: str, **parameters: Any) -> None:
        """Set a fault: ``engine.fault("error", status=500, count=2)``. Raises ``ValueError`` if it cannot be set."""
        self._ask("POST", "/sim/faults", msgspec.json.encode({"kind": kind, **parameters}))

    def clear(self) -> None:
        """Clear all faults and forget the requests so far."""
        self._ask("DELETE", "/sim/faults")
        self.forget_requests()

    def metric(self, name: str, **labels: str) -> float:
        """The figure of ``/metrics`` named ``vllm:`` and this that has ``labels``. Raises ``KeyError`` without one."""
        wanted = {f'{label}="{value}"' for label, value in labels.items()}
        for line in self._ask("GET", "/metrics").decode().splitlines():
            if (found := _METRIC.fullmatch(line)) and found[1] == name and wanted <= set(found[2].split(",")):
                return float(found[3])
        raise KeyError(name)

    def running(self) -> int:
        """The number of requests that run or wait."""
        return int(self.metric("num_requests_running") + self.metric("num_requests_waiting"))

    def stop(self) -> int:
        """Ask it to stop, and wait until it has; its exit status."""
        return self._end(subprocess.Popen.terminate)

    def kill(self) -> int:
        """Make it go at once, as a crash does; its exit status."""
        return self._end(subprocess.Popen.kill)

    def _arguments(self) -> list[str]:
        arguments = [argument for model in self.models for argument in ("--model", model)]
        for name, value in self._flags.items():
            flag = name.replace("_", "-")
            if isinstance(value, bool):
                arguments.append(f"--{flag}" if value else f"--no-{flag}")
            else:
                arguments += [f"--{flag}", str(value)]
        return arguments

    def _addresses(self) -> tuple[str, str, str]:
        assert self._process is not None
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], _START_TIMEOUT)
        line = self._process.stdout.readline() if readable else ""
        if (found := _ADDRESSES.match(line)) is None:
            raise RuntimeError(f"The simulated engine did not start: it printed {line!r}, its errors are on stderr")
        return found[1], found[2], found[3] or ""

    def _end(self, how: Callable[[subprocess.Popen[str]], None]) -> int:
        if self._process is None:
            return 0
        how(self._process)
        try:
            status = self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        finally:
            assert self._process.stdout is not None
            self._process.stdout.close()
        return status

    def _ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        address = urlsplit(self._control)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_STOP_TIMEOUT)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            answer = response.read()
        finally:
            connection.close()
        if response.status != 200:
            raise ValueError(f"{method} {path} answered {response.status}: {answer.decode(errors='replace')}")
        return answer
