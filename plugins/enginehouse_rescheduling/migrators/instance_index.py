"""Finds the instances of a view by their ids."""

from __future__ import annotations

from collections.abc import Mapping

from enginehouse.rescheduling import ClusterView, InstanceView


class InstanceIndex:
    """The instances of the latest view, which all migrations of a round share: they are indexed once."""

    def __init__(self) -> None:
        self._view: ClusterView | None = None
        self._instances: Mapping[str, InstanceView] = {}

    def of(self, view: ClusterView) -> Mapping[str, InstanceView]:
        """The instances of ``view`` by id."""
        if view is not self._view:
            self._view, self._instances = view, {each.id: each for each in view.instances}
        return self._instances
