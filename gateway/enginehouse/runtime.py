"""Running beside requests: clocks, tasks, time limits, files, and calls of other plugins."""

from __future__ import annotations

from enginehouse.aio.clock import Clock as Clock
from enginehouse.aio.serving import SERVING as SERVING
from enginehouse.aio.slow_work import run_slowly as run_slowly
from enginehouse.aio.tasks import BackgroundTasks as BackgroundTasks
from enginehouse.aio.timeouts import run_within as run_within
from enginehouse.aio.timeouts import wait_within as wait_within
from enginehouse.domain.plugin_id import PluginId as PluginId
from enginehouse.engines.state_file import replace_file as replace_file
from enginehouse.telemetry.plugin_failures import await_plugin as await_plugin
from enginehouse.telemetry.plugin_failures import log_plugin_failure as log_plugin_failure
from enginehouse.telemetry.plugin_failures import plugin_errors as plugin_errors
from enginehouse.telemetry.plugin_failures import plugin_failed as plugin_failed
from enginehouse.telemetry.plugin_failures import wrong_result as wrong_result
