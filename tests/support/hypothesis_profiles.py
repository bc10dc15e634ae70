"""Hypothesis profiles whose results do not depend on how busy the machine is."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

LONGER = "ENGINEHOUSE_FUZZ"
"""The environment variable by which ``always_alike`` multiplies its examples, which are random then."""
TIMING_CHECKS = (HealthCheck.too_slow, HealthCheck.data_too_large)
"""Health checks that a slow machine or an unlucky draw can fail. Repeat them where a test suppresses others."""


def load_profile() -> None:
    """Load ``ci`` where the environment has ``CI``, else ``local``.

    ``ci`` always draws the same examples, so that a result depends on the commit alone. Half of Hypothesis' examples
    are enough: each local run draws others.
    """
    settings.register_profile("local", deadline=None, max_examples=50, suppress_health_check=TIMING_CHECKS)
    settings.register_profile("ci", settings.get_profile("local"), derandomize=True, database=None, print_blob=True)
    settings.load_profile("ci" if os.environ.get("CI") else "local")


def always_alike(examples: int) -> settings:
    """As many examples, and always the same ones; ``LONGER`` makes them more, and others each time."""
    factor = int(os.environ.get(LONGER, "1"))
    return settings(max_examples=examples * factor, derandomize=factor == 1, database=None)
