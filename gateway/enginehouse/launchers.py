"""Launchers: where an engine's process lives, what it needs, and how it ends."""

from __future__ import annotations

from enginehouse.domain.gpu import Gpu
from enginehouse.interfaces.launchers import EngineOutput, EngineProcess, Exit, LaunchLine
from enginehouse.interfaces.places import EngineNeeds, Place, PlacementOptions

__all__ = [
    "EngineNeeds",
    "EngineOutput",
    "EngineProcess",
    "Exit",
    "Gpu",
    "LaunchLine",
    "Place",
    "PlacementOptions",
]
