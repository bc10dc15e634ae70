"""Routing at night: few backends work, and they are kept busy, so that the others can sleep."""

from __future__ import annotations

from enginehouse import Filter, Register, Scorer, Strategy, hookimpl
from enginehouse_nightshift.backend_names import BackendNamesFilter
from enginehouse_nightshift.backend_preference import BackendPreferenceScorer
from enginehouse_nightshift.packed import PackedStrategy


@hookimpl
def register_filters(register: Register[Filter]) -> None:
    register("backend_names", BackendNamesFilter)


@hookimpl
def register_scorers(register: Register[Scorer]) -> None:
    register("backend_preference", BackendPreferenceScorer)


@hookimpl
def register_strategies(register: Register[Strategy]) -> None:
    register("packed", PackedStrategy)
