"""Launchers: where an engine's process lives, what it needs, and how it ends."""

from __future__ import annotations

from enginehouse.domain.gpu import Gpu as Gpu
from enginehouse.interfaces.launchers import EngineOutput as EngineOutput
from enginehouse.interfaces.launchers import EngineProcess as EngineProcess
from enginehouse.interfaces.launchers import Exit as Exit
from enginehouse.interfaces.launchers import LaunchLine as LaunchLine
from enginehouse.interfaces.places import EngineNeeds as EngineNeeds
from enginehouse.interfaces.places import Place as Place
from enginehouse.interfaces.places import PlacementOptions as PlacementOptions
