"""Asks the configured scaler."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse import Scaler
from enginehouse.backends import ModelLoad, ScaleView, WantedReplicas
from enginehouse.runtime import PluginId, plugin_errors, wrong_result
from enginehouse.services import Configured


def make_scaler(gateway: Configured) -> tuple[PluginId, Scaler]:
    """The configured scaler. Raises ``ConfigError`` or ``PluginError``."""
    made: tuple[PluginId, Scaler] = gateway.plugin("scaler", gateway.table("scheduling").scaler, "scheduling.scaler")
    return made


def decide(plugin: PluginId, scaler: Scaler, view: ScaleView) -> dict[str, WantedReplicas]:
    """What ``scaler`` wants of each model, within its limits. Raises ``PluginFailed`` for any other answer."""
    with plugin_errors(plugin):
        plan = scaler.plan(view)
    if not isinstance(plan, Sequence) or not all(isinstance(each, WantedReplicas) for each in plan):
        raise wrong_result(plugin, f"returned an object of type {type(plan).__name__} instead of WantedReplicas")
    loads = {each.model: each for each in view.models}
    if [each.model for each in plan] != list(loads) or not all(type(each.wanted) is int for each in plan):
        raise wrong_result(plugin, "must return a whole number for each model of the view, in their order")
    return {each.model: _limited(each, loads[each.model]) for each in plan}


def _limited(decided: WantedReplicas, load: ModelLoad) -> WantedReplicas:
    wanted = min(max(decided.wanted, load.least), load.most)
    if wanted == decided.wanted:
        return decided
    limit = "at least" if wanted > decided.wanted else "at most"
    return WantedReplicas(model=load.model, wanted=wanted, why=f"{decided.why}; {limit} {wanted} are allowed")
