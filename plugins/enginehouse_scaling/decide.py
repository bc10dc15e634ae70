"""The bundled scaler, and what the configured one decides."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from enginehouse import format_duration
from enginehouse.runtime import PluginId, plugin_errors, wrong_result
from enginehouse.services import Configured
from enginehouse_kit.scalers import ModelLoad, Scaler, ScaleView, WantedReplicas


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


class ExpectedWait(Scaler):
    """Changes each model by one replica at a time. Replicas that still load count as if they served already."""

    def plan(self, view: ScaleView) -> Sequence[WantedReplicas]:
        return [_wanted(load) for load in view.models]


def _wanted(load: ModelLoad) -> WantedReplicas:
    wanted, why = _decision(load)
    return WantedReplicas(model=load.model, wanted=min(max(wanted, load.least), load.most), why=why)


def _decision(load: ModelLoad) -> tuple[int, str]:
    limit, coming = format_duration(load.scale_up_wait), load.replicas - load.ready
    if not load.replicas and (load.waiting or load.serving):
        return 1, "a request waits, and no replica runs"
    wait = load.expected_wait_s * load.ready / load.replicas if load.ready else load.expected_wait_s
    served = f" when {coming} more can serve" if coming else ""
    if load.waiting and wait > load.scale_up_wait and not _is_enough(load):
        if load.replicas >= load.most:
            return load.replicas, f"requests wait {wait:.1f} s{served}, and {load.most} replicas are the most"
        return load.replicas + 1, f"requests wait {wait:.1f} s{served}, more than {limit}"
    if load.replicas > load.least and load.spare_s >= load.scale_down_idle and not coming:
        return load.replicas - 1, f"one replica was not needed for {load.spare_s:.0f} s"
    if load.replicas < load.least:
        return load.least, f"{load.least} replicas are the fewest"
    if not load.waiting:
        return load.replicas, f"no request waits, {load.serving} are served"
    return load.replicas, f"requests wait {wait:.1f} s{served}, no more than {limit}"


def _is_enough(load: ModelLoad) -> bool:
    """Whether the replicas that still load have slots for all requests that wait, one at least where none is known."""
    return 0 < load.waiting <= (load.replicas - load.ready) * max(1, load.slots)


class ScaleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One model: the replicas that run or start, those that are wanted, and why."""

    model: str
    replicas: int
    wanted: int
    why: str
