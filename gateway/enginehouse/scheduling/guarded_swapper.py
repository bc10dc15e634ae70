"""A swapper whose answers a scheduler need not check."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any

from enginehouse.domain.errors import LoadFailed, RequestError
from enginehouse.domain.plugin_id import PluginId
from enginehouse.interfaces.swappers import HostedReplica, HostFacts, Swapper, SwapPlan
from enginehouse.telemetry.plugin_failures import plugin_failed, wrong_result
from enginehouse.telemetry.plugin_times import SampledCall


class GuardedSwapper(Swapper):
    """Runs another swapper and checks its answers.

    An answer that names a replica which does not run, or the target, becomes ``PluginFailed``, which names the
    swapper's type and plugin. So does any exception other than a ``RequestError``. An eviction of a pinned replica
    becomes ``LoadFailed``.
    """

    def __init__(self, swapper: Swapper, *, type: str, plugin: str) -> None:
        self._swapper = swapper
        self._plugin = PluginId("swapper", type, plugin)
        self._host = HostFacts(name="")
        self._notes_starts = swapper.__class__.on_swap_start is not Swapper.on_swap_start
        self.sampled = SampledCall(self._plugin, swapper.eviction_for)

    def prepare(self, host: HostFacts) -> None:
        self._host = host
        self._swapper.prepare(host)

    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        return self._evictions("eviction_for", target, self._ask(self.sampled.call, target, running), running)

    def dispensable(self, target: str, running: Sequence[str]) -> Sequence[str]:
        """The swapper's answer without pinned replicas and without those of the target's own model."""
        names = self._checked("dispensable", self._ask(self._swapper.dispensable, target, running), {*running})
        model = self._hosted(target).model
        return [each.replica for each in map(self._hosted, names) if not each.pin and each.model != model]

    def on_swap_start(self, target: str, running: Sequence[str]) -> None:
        if self._notes_starts:
            self._ask(self._swapper.on_swap_start, target, running)

    def explain(self, target: str, running: Sequence[str]) -> SwapPlan:
        plan = self._ask(self._swapper.explain, target, running)
        if not isinstance(plan, SwapPlan):
            returned = f"returned an object of type {type(plan).__name__}"
            raise wrong_result(self._plugin, f"{returned} from explain instead of a SwapPlan")
        self._evictions("explain", target, plan.evict, running)
        self._checked("explain", plan.set, {*running, target})
        return plan

    def _ask(self, method: Callable[..., Any], *arguments: object) -> Any:
        try:
            return method(*arguments)
        except RequestError:
            raise
        except BaseException as error:
            raise plugin_failed(self._plugin, error) from error

    def _evictions(self, method: str, target: str, answer: Sequence[str], running: Sequence[str]) -> tuple[str, ...]:
        names = self._checked(method, answer, {*running} - {target})
        for hosted in map(self._hosted, names):
            if hosted.pin:
                model = self._hosted(target).model
                raise LoadFailed(
                    f"Model '{model}' cannot be loaded: it needs '{hosted.model}' evicted, which is pinned",
                    details={"model": model, "pinned": hosted.model},
                )
        return names

    def _checked(self, method: str, answer: Sequence[str], allowed: Set[str]) -> tuple[str, ...]:
        plain = type(answer) in (tuple, list, str)  # else its iteration may fail
        names: tuple[str, ...] = tuple(answer) if plain else self._ask(tuple, answer)
        if isinstance(answer, str) or not {*map(type, names)} <= {str}:
            returned = f"an object of type {type(answer).__name__}"
            raise wrong_result(self._plugin, f"returned {returned} from {method} instead of a list of replicas")
        if not {*names} <= allowed:
            raise wrong_result(
                self._plugin, f"returned {list(names)} from {method}, which may only name {sorted(allowed)}"
            )
        return names

    def _hosted(self, replica: str) -> HostedReplica:
        return self._host.replicas.get(replica) or HostedReplica(replica=replica, model=replica)
