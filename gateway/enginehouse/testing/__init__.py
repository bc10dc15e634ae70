"""The kit for plugin authors: makers, conformance checks, and the installed plugins as people see them.

::

    from enginehouse.testing import candidate, check_scorer, create, requirements

    def test_it_keeps_the_rules_of_a_scorer() -> None:
        check_scorer(lambda: create("scorer", "my_scorer"))

    def test_an_idle_backend_is_better() -> None:
        scorer = create("scorer", "my_scorer")
        idle, busy = scorer.score(requirements(), [candidate("a"), candidate("b", pending=9)])
        assert idle > busy
"""

from __future__ import annotations

from enginehouse.testing.conformance import check_extractor, check_filter, check_scorer, check_strategy
from enginehouse.testing.fake_effects import AtMost, FakeEffects, FakeSwap, OneAtATime
from enginehouse.testing.installed import create, installed_plugins
from enginehouse.testing.make import candidate, request, requirements
from enginehouse.testing.schedulers import check_scheduler
from enginehouse.testing.swappers import check_swapper

__all__ = [
    "AtMost",
    "FakeEffects",
    "FakeSwap",
    "OneAtATime",
    "candidate",
    "check_extractor",
    "check_filter",
    "check_scheduler",
    "check_scorer",
    "check_strategy",
    "check_swapper",
    "create",
    "installed_plugins",
    "request",
    "requirements",
]
