"""Guards the placements of third-party strategies."""

from __future__ import annotations

from collections.abc import Callable

from enginehouse.domain.plugin_id import PluginId
from enginehouse.interfaces.strategies import Placement
from enginehouse.telemetry.plugin_failures import log_plugin_failure


class GuardedPlacement(Placement):
    """Logs the exceptions of a placement and drops them: the request goes on."""

    def __init__(self, plugin: PluginId, placement: Placement) -> None:
        self._plugin = plugin
        self._placement = placement

    def queued(self) -> None:
        self._call(self._placement.queued)

    def granted(self) -> None:
        self._call(self._placement.granted)

    def first_byte(self) -> None:
        self._call(self._placement.first_byte)

    def ended(self) -> None:
        self._call(self._placement.ended)

    def _call(self, method: Callable[[], None]) -> None:
        try:
            method()
        except Exception as error:
            log_plugin_failure(self._plugin, "failed to follow a request", error)
