"""Tables of the configuration that plugins read, and how they speak about its keys."""

from __future__ import annotations

from enginehouse.config.rules import is_base_url
from enginehouse.config.scheduling import GroupSettings, MatrixSettings
from enginehouse.config.shape import dotted
from enginehouse.domain.names import did_you_mean
from enginehouse.interfaces.misspelt import misspelt

__all__ = [
    "GroupSettings",
    "MatrixSettings",
    "did_you_mean",
    "dotted",
    "is_base_url",
    "misspelt",
]
