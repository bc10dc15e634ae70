"""Scalers: decide how many replicas each model shall have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec

__all__ = ["ModelLoad", "ScaleView", "Scaler", "WantedReplicas"]


class ModelLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The load of one model whose replicas may become more or fewer."""

    model: str
    replicas: int
    """The replicas that it has: those that run, start or wait for a place."""
    ready: int = 0
    """Those of them that can serve now."""
    least: int = 0
    """The fewest that the configuration allows; 1 at least for a pinned model."""
    most: int = 1
    """The most that the configuration allows."""
    slots: int = 0
    """The requests that one replica serves at once; 0 if that is unknown."""
    serving: int = 0
    """Requests at its engines."""
    waiting: int = 0
    """Requests that wait for it, in the gateway or inside its engines."""
    expected_wait_s: float = 0.0
    """The seconds that a request which comes now will probably wait, with the replicas that are ready."""
    spare_s: float = 0.0
    """The seconds for which one replica fewer could have served all requests."""
    scale_up_wait: float = 2.0
    """``models.*.scale_up_wait``, in seconds."""
    scale_down_idle: float = 300.0
    """``models.*.scale_down_idle``, in seconds."""


class ScaleView(msgspec.Struct, frozen=True, kw_only=True):
    """All models that may be scaled. ``now``: seconds on the gateway's clock."""

    now: float
    models: tuple[ModelLoad, ...]


class WantedReplicas(msgspec.Struct, frozen=True, kw_only=True):
    """How many replicas of ``model`` are wanted, and the reason for people."""

    model: str
    wanted: int
    why: str


class Scaler(ABC):
    """Decides how many replicas are wanted. Asked every second; a decision is carried out before the next one."""

    @abstractmethod
    def plan(self, view: ScaleView) -> Sequence[WantedReplicas]:
        """Return the wanted replicas of each model of ``view``, in their order.

        Pure: the same view gets the same answer. The gateway keeps the figures between ``least`` and ``most``.
        """
