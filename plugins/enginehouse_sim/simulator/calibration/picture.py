"""Draws a fit: predictions beside observations, and the errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from enginehouse_sim.simulator.calibration.observation import Kind, Observation
from enginehouse_sim.simulator.replay.figures.plot import plot_pairs
from enginehouse_sim.simulator.steps.profile import PassProfile

_NAMES: dict[Kind, str] = {"prompt": "Prompts alone", "decode": "Streams alone", "mixed": "Prompts beside streams"}


def draw_fit(profile: PassProfile, observations: Sequence[Observation], path: Path) -> None:
    """Draw measured and predicted milliseconds for each kind of step. Raises ``ConfigError``."""
    pairs = {
        name: [
            (each.ms, each.predicted(profile.costs, profile.outside.request_ms))
            for each in observations
            if each.kind == kind
        ]
        for kind, name in _NAMES.items()
    }
    plot_pairs({name: found for name, found in pairs.items() if found}, path)
