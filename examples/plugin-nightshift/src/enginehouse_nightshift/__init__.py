"""Enginehouse at night: few backends work, and those are kept busy so that the others can sleep."""

from __future__ import annotations

from enginehouse import Filter, Register, Scorer, Strategy, hookimpl
from enginehouse_nightshift.backend_names import BackendNames
from enginehouse_nightshift.backend_preference import BackendPreference
from enginehouse_nightshift.packed import Packed


@hookimpl
def register_filters(register: Register[Filter]) -> None:
    """Offer the filter."""
    register("backend_names", BackendNames)


@hookimpl
def register_scorers(register: Register[Scorer]) -> None:
    """Offer the scorer."""
    register("backend_preference", BackendPreference)


@hookimpl
def register_strategies(register: Register[Strategy]) -> None:
    """Offer the strategy."""
    register("packed", Packed)
