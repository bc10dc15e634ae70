from __future__ import annotations

import pytest

from enginehouse.config.schema import PluginSettings
from enginehouse.interfaces.observers import Observer
from enginehouse.plugin_manager.discovery import collect
from enginehouse.plugin_manager.kinds import KINDS, factory_faults, faults, methods
from enginehouse_kit.checks import CHECKS
from enginehouse_kit.checks.observers import events

REGISTRY = collect(PluginSettings(enabled=[])).registry
NEEDS_PARAMETERS = {("swapper", "matrix"), ("discoverer", "static"), ("discoverer", "dns"), ("discoverer", "mdns")}
"""Their own tests check them: ``mdns`` without parameters looks at the network of this machine."""
BUNDLED = [
    (entry.kind, entry.type)
    for entry in REGISTRY.all()
    if entry.bundled and (entry.kind, entry.type) not in NEEDS_PARAMETERS
]


@pytest.mark.parametrize(("kind", "type"), BUNDLED)
def test_a_bundled_plugin_keeps_the_rules_of_its_interface(kind: str, type: str) -> None:
    CHECKS[kind](lambda: REGISTRY.create(kind, type))


def test_no_bundled_type_has_a_fault_that_a_start_would_find_in_others() -> None:
    kinds = {kind.name: kind for kind in KINDS}
    for entry in REGISTRY.all():
        assert list(factory_faults(kinds[entry.kind], entry.factory)) == [], entry
    for kind, type in BUNDLED:
        if kind not in ("routes", "command"):
            assert faults(kinds[kind].interface, REGISTRY.create(kind, type).__class__) == (), (kind, type)


def test_the_check_of_observers_has_every_event() -> None:
    assert {name for name, _ in events()} == set(methods(Observer)) - {
        "start",
        "stop",
        "at_end",
        "streams_wait",
        "with_contents",
        "use_aside",
        "use_figures",
        "status",
    }
