"""Running beside requests: clocks, tasks, time limits, files, and calls of other plugins."""

from __future__ import annotations

from enginehouse.aio.clock import Clock
from enginehouse.aio.slow_work import run_slowly
from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.aio.timeouts import run_within, wait_within
from enginehouse.domain.plugin_id import PluginId
from enginehouse.engines.state_file import replace_file
from enginehouse.telemetry.plugin_failures import (
    await_plugin,
    log_plugin_failure,
    plugin_errors,
    plugin_failed,
    wrong_result,
)

__all__ = [
    "BackgroundTasks",
    "Clock",
    "PluginId",
    "await_plugin",
    "log_plugin_failure",
    "plugin_errors",
    "plugin_failed",
    "replace_file",
    "run_slowly",
    "run_within",
    "wait_within",
    "wrong_result",
]
