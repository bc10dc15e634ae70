"""Runs simulated engines as real processes, for tests."""

from __future__ import annotations

import re
import signal
import sys
from base64 import b64decode
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import msgspec

from enginehouse_kit.process import ServerProcess, fetch

_ADDRESSES = re.compile(r"listening on (http://[^\s,]+), control on (http://[^\s,]+)(?:, llumlet on (\S+))?")
_METRIC = re.compile(r"vllm:(\w+)\{(.*)\} (\S+)")


class SeenRequest(msgspec.Struct, kw_only=True):
    """A request as the engine received it."""

    path: str
    """The path with the query."""
    headers: list[tuple[str, str]]
    """The header fields in the order received, names in lower case."""
    status: str
    """``running``, ``done`` or ``aborted``."""
    fault: str | None = None
    """The kind of the fault that the engine applied, if any."""
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
    """A simulated engine in a process of its own. Use it as a context manager.

    ``flags`` are the options of ``python -m enginehouse_sim``: ``SimEngine("llama3:8b", tpot="10ms", vision=False)``.
    By default the engine answers without delay. ``url`` is its address; ``llumlet`` is the address for migration
    commands, set if the engine has a ``llumlet_port``. Every method raises ``OSError`` after the engine has exited.
    """

    def __init__(self, *models: str, **flags: str | int | bool) -> None:
        self.models = models or ("sim",)
        self.url = ""
        self.llumlet = ""
        self._flags = {"port": 0, "control_port": 0, "ttft": "0", "tpot": "0", **flags}
        self._control = ""
        self._process: ServerProcess | None = None

    def __enter__(self) -> SimEngine:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the process and wait until it listens: on the same port, if it has run before.

        Raises ``RuntimeError`` if it does not.
        """
        self._process = ServerProcess([sys.executable, "-m", "enginehouse_sim", *self._arguments()])
        try:
            found = self._process.wait_for(_ADDRESSES)
            if found is None:
                printed = self._process.printed
                raise RuntimeError(f"The simulated engine did not start: it printed {printed!r}; see standard error")
            self.url, self._control, self.llumlet = found[1], found[2], found[3] or ""
            self._flags["port"] = self.port
        except BaseException:
            self.kill()
            raise

    @property
    def port(self) -> int:
        """The port that the engine listens on."""
        port = urlsplit(self.url).port
        assert port is not None
        return port

    @property
    def pid(self) -> int:
        """The process id. ``start`` after ``kill`` makes a new one."""
        assert self._process is not None
        return self._process.pid

    def requests(self) -> list[SeenRequest]:
        """The POST requests so far, oldest first."""
        return msgspec.json.decode(self._ask("GET", "/sim/requests"), type=list[SeenRequest])

    def clear_requests(self) -> None:
        """Empty the list of requests."""
        self._ask("DELETE", "/sim/requests")

    def fault(self, kind: str, **parameters: Any) -> None:
        """Set a fault: ``engine.fault("error", status=500, count=2)``. Raises ``ValueError`` for an invalid one."""
        self._ask("POST", "/sim/faults", msgspec.json.encode({"kind": kind, **parameters}))

    def clear(self) -> None:
        """Clear all faults and the list of requests."""
        self._ask("DELETE", "/sim/faults")
        self.clear_requests()

    def metric(self, name: str, **labels: str) -> float:
        """The value of the metric ``vllm:name`` that has ``labels``. Raises ``KeyError`` if there is none."""
        wanted = {f'{label}="{value}"' for label, value in labels.items()}
        for line in self._ask("GET", "/metrics").decode().splitlines():
            if (found := _METRIC.fullmatch(line)) and found[1] == name and wanted <= set(found[2].split(",")):
                return float(found[3])
        raise KeyError(name)

    def running(self) -> int:
        """The number of running and waiting requests."""
        return int(self.metric("num_requests_running") + self.metric("num_requests_waiting"))

    def stop(self) -> int:
        """Send SIGTERM, wait until the process exits, and return its exit status."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """Send SIGKILL, as a crash would, and return the exit status."""
        return self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> int:
        return 0 if self._process is None else self._process.end(number)

    def _arguments(self) -> list[str]:
        arguments = [argument for model in self.models for argument in ("--model", model)]
        for name, value in self._flags.items():
            flag = name.replace("_", "-")
            if isinstance(value, bool):
                arguments.append(f"--{flag}" if value else f"--no-{flag}")
            else:
                arguments += [f"--{flag}", str(value)]
        return arguments

    def _ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        return fetch(self._control + path, method, body)
