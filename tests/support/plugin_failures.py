"""The log of failing plugins, for tests that look for a line."""

from __future__ import annotations

import pytest

from enginehouse.telemetry import plugin_failures


@pytest.fixture
def every_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log every failure of a plugin, however many there are in a second."""
    monkeypatch.setattr(plugin_failures, "_limit", plugin_failures.RateLimit(0))
