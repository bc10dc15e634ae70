"""The exporter among the installed observers, and the tracer that hands requests to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

from prometheus_client.core import Metric

from enginehouse.app.plugin_instances import prepare
from enginehouse.config.schema import Config
from enginehouse.config.telemetry import TelemetrySettings
from enginehouse.domain.errors import ConfigError
from enginehouse.domain.plugin_id import PluginId
from enginehouse.interfaces.exporters import Exporter, TracedRequest
from enginehouse.interfaces.observers import Observer
from enginehouse.plugin_manager.registry import Registry
from enginehouse.telemetry.observers import Observers
from enginehouse.telemetry.plugin_failures import GuardedObject, log_plugin_failure
from enginehouse.telemetry.tracer import Tracer


class TraceTaker(Protocol):
    """Takes traced requests."""

    def admits(self) -> bool:
        """Whether a request that begins now may be traced."""

    def add(self, request: TracedRequest) -> None:
        """Send ``request`` soon."""


_OTHERWISE: Final = {"sampling": None, "parameters": b"", "admits": False, "start": None, "add": None}


class GuardedExporter(GuardedObject):
    """The ``exporter`` of a plugin, with its methods. What fails in them, but for ``prepare``, costs traces only."""

    def __init__(self, plugin: PluginId, exporter: Exporter) -> None:
        super().__init__(plugin, exporter, _OTHERWISE)

    def prepare(
        self, config: Config, registry: Registry, collect: Callable[[], Iterable[Metric]], observers: Observers
    ) -> None:
        """As in ``Exporter``. Raises ``ConfigError`` or ``PluginError``."""
        how = partial(self.own.prepare, config.telemetry, collect, observers.add)
        prepare(registry, self.plugin.kind, self.plugin.type, how)

    async def close(self) -> None:
        try:
            await self.own.close()
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            log_plugin_failure(self.plugin, "failed in close", error)


def find_exporter(
    settings: TelemetrySettings, observers: Iterable[tuple[PluginId, Observer]]
) -> GuardedExporter | None:
    """The last exporter among ``observers``. Raises ``ConfigError`` if there is none, and ``settings`` want one."""
    found = [GuardedExporter(plugin, each) for plugin, each in observers if isinstance(each, Exporter)]
    if not found and (settings.traces not in (None, "off") or settings.push_metrics or settings.genai_metrics):
        remedy = "take 'otlp' out of plugins.disabled, or export nothing"
        raise ConfigError("no plugin that exports is installed", key="telemetry", remedy=remedy)
    return found[-1] if found else None


def build_tracer(
    telemetry: TelemetrySettings, exporter: GuardedExporter | None, taker: TraceTaker | None
) -> Tracer | None:
    """The tracer, which decides which requests are traced; ``None`` if none are.

    ``taker`` takes them, by default ``exporter`` itself.
    """
    sampling = exporter.sampling(telemetry) if exporter is not None else None
    taker = taker or exporter
    if exporter is None or taker is None or sampling is None:
        return None
    ratio, follows_parent = sampling
    return Tracer(telemetry, taker.admits, taker.add, exporter.parameters, ratio=ratio, follows_parent=follows_parent)
