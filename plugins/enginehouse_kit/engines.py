"""Runs simulated engines as real processes, for tests."""

from __future__ import annotations

import re
import sys
from base64 import b64decode
from typing import Any, ClassVar
from urllib.parse import urlsplit

import msgspec

from enginehouse_kit.process import RunningServer, ServerProcess, fetch

__all__ = ["SeenRequest", "SimEngine"]

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


class SimEngine(RunningServer):
    """A simulated engine in a process of its own. Use it as a context manager.

    ``flags`` are the options of ``python -m enginehouse_sim``: ``SimEngine("llama3:8b", tpot="10ms", vision=False)``.
    By default the engine answers without delay. It starts again on the same port. ``url`` is its address; ``llumlet``
    is the address for migration commands, set if the engine has a ``llumlet_port``. Every method raises ``OSError``
    after the engine has exited.
    """

    greets: ClassVar[re.Pattern[str]] = re.compile(
        r"listening on (http://[^\s,]+), control on (http://[^\s,]+)(?:, llumlet on (\S+))?"
    )

    def __init__(self, *models: str, **flags: str | int | bool) -> None:
        super().__init__()
        self.models = models or ("sim",)
        self.llumlet = ""
        self._flags = {"port": 0, "control_port": 0, "ttft": "0", "tpot": "0", **flags}
        self._control = ""

    def _launch(self) -> ServerProcess:
        return ServerProcess([sys.executable, "-m", "enginehouse_sim", *self._arguments()])

    def _greeted(self, found: re.Match[str] | None, printed: str) -> None:
        if found is None:
            raise RuntimeError(f"The simulated engine did not start: it printed {printed!r}; see standard error")
        self.url, self._control, self.llumlet = found[1], found[2], found[3] or ""
        self._flags["port"] = self.port

    @property
    def port(self) -> int:
        """The port that the engine listens on."""
        port = urlsplit(self.url).port
        assert port is not None
        return port

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
