"""What takes the place of parts of the gateway that would read the machine or cost much time."""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable
from functools import cache
from typing import Any

from tests.chaos import worker_processes


def replace(access_log: Callable[[bytes], None]) -> None:
    """Replace them in this process. ``access_log`` gets what would go to standard error."""
    server = _module("enginehouse.processes.gateway_server")
    accepting = _module("enginehouse.processes.accepting")  # frozen, nothing of a run would ever be collected
    accepting.gc = types.SimpleNamespace(collect=lambda: 0, freeze=lambda: None, set_threshold=lambda *_: None)
    server.click = types.SimpleNamespace(echo=lambda _: None)
    server.Replacement = lambda *_, **__: types.SimpleNamespace(
        open=_nothing, close=_nothing, start=_nothing, replace=_nothing
    )
    gateway = _module("enginehouse.app.gateway")
    row = gateway.worker_row
    gateway.worker_row = lambda _, requests, version, __: row(7, requests, version, 0.0)  # this process's own figures
    _module("enginehouse_access_log.access_log")._to_standard_error = access_log
    _module("enginehouse.app.request_path").configure_logs = lambda *_: None  # the taps would no longer see the log
    _module("enginehouse.engines.launches")._is_free = lambda _: True  # whatever else runs on this machine
    _module("enginehouse_local.launcher").groups_with = lambda _: {}  # all processes of this machine
    machine = types.SimpleNamespace(collect=list)  # without figures
    gateway.ProcessCollector = lambda **_: machine
    for module in ("email.utils", "uvicorn.server"):  # the headers ``Date`` of libraries, which no clock is handed to
        _module(module).formatdate = lambda *_, **__: "Tue, 14 Nov 2023 22:13:20 GMT"
    worker_processes.replace()
    routing = _module("starlette.routing")
    routing.compile_path = cache(routing.compile_path)


def forget_failures(now: Callable[[], float]) -> None:
    """Log failures of plugins as a process does that has logged none yet."""
    failures = _module("enginehouse.telemetry.plugin_failures")
    failures._limit = failures.RateLimit(failures._LOG_EVERY_S, now)


def _nothing(*_: object) -> None: ...


def _module(name: str) -> Any:
    return importlib.import_module(name)
