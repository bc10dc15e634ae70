"""Model sources: downloads, and the models that were downloaded."""

from __future__ import annotations

from enginehouse.config.schema import PullSettings
from enginehouse.engines.pulled_models import Download, PulledModels, PulledNote
from enginehouse.interfaces.model_sources import PulledFile, PulledModel, PullProgress

__all__ = [
    "Download",
    "PullProgress",
    "PullSettings",
    "PulledFile",
    "PulledModel",
    "PulledModels",
    "PulledNote",
]
