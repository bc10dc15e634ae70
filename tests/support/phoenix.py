"""Arize Phoenix as a collector: a real store of traces, which is asked for the spans that it keeps."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

import httpx

from tests.support import plain_httpx
from tests.support.otlp_collector import CollectedSpan, SpanCollector

_MOST_SPANS = 1000
_START_TIMEOUT_S = 200


class Phoenix(SpanCollector):
    """Phoenix in a process of its own. Use it as a context manager. It keeps neither kinds of spans nor resources."""

    def __init__(self, program: Path) -> None:
        super().__init__()
        self._program = program
        self._folder = TemporaryDirectory()

    def __enter__(self) -> Phoenix:
        with socket.create_server(("127.0.0.1", 0)) as http, socket.create_server(("127.0.0.1", 0)) as grpc:
            port, grpc_port = http.getsockname()[1], grpc.getsockname()[1]
        own = {"HOST": "127.0.0.1", "PORT": str(port), "GRPC_PORT": str(grpc_port), "WORKING_DIR": self._folder.name}
        environment = {**os.environ, **{f"PHOENIX_{name}": value for name, value in own.items()}}
        environment["PHOENIX_TELEMETRY_ENABLED"] = "false"
        self.url = f"http://127.0.0.1:{port}"
        with Path(self._folder.name, "log").open("wb") as log:
            self._process = subprocess.Popen([self._program, "serve"], env=environment, stdout=log, stderr=log)
        end = time.monotonic() + _START_TIMEOUT_S
        while not self._answers():
            if time.monotonic() > end or self._process.poll() is not None:
                raise RuntimeError(Path(self._folder.name, "log").read_text())
            time.sleep(0.2)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def read(self) -> list[CollectedSpan]:
        url = f"{self.url}/v1/projects/default/spans/otlpv1"
        answer = plain_httpx.get(url, params={"limit": _MOST_SPANS}, timeout=30)
        found = answer.json()["data"] if answer.status_code == 200 else []  # 404: there is no span yet
        self.spans = [_span(each) for each in found]
        return self.spans

    def _answers(self) -> bool:
        try:
            return plain_httpx.get(f"{self.url}/healthz", timeout=5).status_code == 200
        except httpx.TransportError:
            return False


def _span(told: Mapping[str, Any]) -> CollectedSpan:
    return CollectedSpan(
        name=told["name"],
        trace_id=told["trace_id"],
        span_id=told["span_id"],
        parent_id=told["parent_span_id"] or "",
        kind="",
        attributes={pair["key"]: _value(pair["value"]) for pair in told["attributes"]},
        failed=told["status"]["code"] == 2,
        message=told["status"]["message"] or "",
        links=(),
        state="",
        began=told["start_time_unix_nano"],
        ended=told["end_time_unix_nano"],
        resource={},
    )


def _value(told: Mapping[str, Any]) -> Any:
    """The one of the kinds of a value that is set."""
    kind, value = next(pair for pair in told.items() if pair[1] is not None)
    return [_value(each) for each in value["values"]] if kind == "array_value" else value
