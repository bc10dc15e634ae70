"""The conformance check of every kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from enginehouse_kit import checks
from enginehouse_kit.plugin_manager import KINDS, create

CHECKS: Mapping[str, Callable[[Callable[[], Any]], None]] = {
    kind.name: getattr(checks, f"check_{kind.name}") for kind in KINDS
}
"""The check of each kind, by name, in the order of the hooks."""

_WITH_EFFECTS = {kind.name for kind in KINDS if kind.acts}


def check_type(kind: str, type: str, parameters: Mapping[str, Any] | None = None) -> None:
    """Run the conformance check of its kind on a registered type: ``check_type("scorer", "my_scorer")``.

    Raises ``AssertionError`` with the rule that the plugin breaks.
    """
    CHECKS[kind](partial(create, kind, type, parameters))


def check_without_effects(kind: str, factory: Callable[[], Any]) -> None:
    """Run the check of ``kind``, unless it starts processes, reaches other machines, or lets an observer write."""
    if kind not in _WITH_EFFECTS:
        CHECKS[kind](factory)
