"""A configuration with its plugins, for commands that need no running gateway."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from enginehouse.app import build_fleet, build_planner, build_router, build_swapper
from enginehouse.app.build import build_drivers
from enginehouse.app.build_relay import drivers_by_backend
from enginehouse.app.build_router import settle
from enginehouse.app.scaling.demand import least, ranges
from enginehouse.app.scaling.scaling import decide, make_scaler
from enginehouse.cli.assumed_state import impose, read_state
from enginehouse.cli.output import warn
from enginehouse.config.load_config import load_config_or_embedded
from enginehouse.config.rescheduling_settings import ReschedulingSettings
from enginehouse.config.rules import LOCAL_HOST
from enginehouse.domain.errors import ConfigError, RequestError
from enginehouse.domain.explanation import Explanation
from enginehouse.domain.instance import ClusterView
from enginehouse.domain.migration import Migrated, Migration, Plan
from enginehouse.domain.request import Headers
from enginehouse.domain.scale_status import ScaleStatus
from enginehouse.engines.pulled_models import PulledModels
from enginehouse.interfaces.scalers import ModelLoad, ScaleView
from enginehouse.interfaces.swappers import SwapPlan
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.jobs.hand_over_rules import hand_over_rules
from enginehouse.relay.upstream.outside import Outside
from enginehouse.rescheduling.planner import Planner
from enginehouse.rescheduling.recent_moves import RecentMoves
from enginehouse.routing.body.end_user import end_user
from enginehouse.routing.body.read import read_request
from enginehouse.routing.recorder import explain_unread
from enginehouse.scheduling.explain import explain_swap
from enginehouse.scheduling.scheduling_rules import host_facts


class OfflinePlanner:
    """Plans with the policies of ``[rescheduling]``. What has just moved rests for ``rescheduling.cool_down``."""

    def __init__(self, planner: Planner, recent: RecentMoves) -> None:
        self._planner = planner
        self._recent = recent

    def plan(self, view: ClusterView) -> Plan:
        """The migrations to carry out together."""
        return self._planner.plan(view, self._recent)

    def note(self, migration: Migration, migrated: Migrated, now_ms: int) -> None:
        """Remember a migration that ended at ``now_ms``."""
        self._recent.note(migration, migrated, now_ms)


class OfflineGateway:
    """Decides as the gateway of a configuration would, and starts nothing.

    ``file``: the configuration, by default the one that ``serve`` finds. All methods raise ``ConfigError``, and
    ``PluginError`` if a plugin fails. Warnings are printed; ``quiet`` leaves out those of the configuration.
    """

    def __init__(self, file: Path | None, *, quiet: bool = False) -> None:
        loaded = load_config_or_embedded(file, os.environ)
        for warning in loaded.warnings if not quiet else ():
            warn(warning)
        self._config = loaded.config

    @property
    def rescheduling(self) -> ReschedulingSettings:
        """The table ``[rescheduling]``."""
        return self._config.rescheduling

    @cached_property
    def _registry(self) -> Registry:
        return load_plugins(self._config.plugins).registry

    def pulled_models(self) -> PulledModels:
        """The folder of downloaded models, with every source of more."""
        sources = [self._registry.create("model_source", type) for type in self._registry.types("model_source")]
        return PulledModels(self._config.pull, sources)

    def explain_route(
        self,
        path: str,
        headers: Headers,
        body: bytes,
        *,
        caller: str | None = None,
        state: tuple[bytes, str] | None = None,
        view: ClusterView | None = None,
    ) -> Explanation:
        """Which replica would serve a request. ``state``: the text and the name of a STATE.json."""
        config, warnings = settle(self._config, self._registry)
        for warning in warnings:
            warn(warning)
        router, fleet = build_router(config, self._registry), build_fleet(config)
        if view is not None:
            router.strategies.on_view(view, config.rescheduling)
        impose(read_state(*state or (b"{}", "")), fleet)
        if unknown := [backend.name for backend in fleet.backends() if not backend.models]:
            names = ", ".join(f"'{name}'" for name in unknown)
            warn(f"the models of {names} are not configured: name them in the state, or ask a gateway with --url")
        try:
            asked = read_request(path, headers, body)
            needs = router.requirements(asked)
        except RequestError as error:
            return explain_unread(error)
        needs.caller, needs.user = caller, end_user(asked.body, config.auth.hash_users)
        router.apply_rules(needs, headers, rehearsal=True)
        drivers = drivers_by_backend(config, build_drivers(config, self._registry, {}, Outside()))
        return router.explain(needs, fleet.snapshot, hand_over_rules(drivers, path))

    def explain_swap(self, target: str, running: Sequence[str]) -> SwapPlan:
        """Which of the models ``running``, the least recently used first, would stop so that ``target`` can run."""
        model = self._config.models.get(target)
        host = host_facts(self._config, model.hosts[0] if model else LOCAL_HOST)
        return explain_swap(build_swapper(self._config, self._registry, host), host, target, running)

    def explain_scale(self, assumed: Mapping[str, ModelLoad]) -> list[ScaleStatus]:
        """How many replicas the scaler wants. Models without an ``assumed`` load are idle with their fewest replicas.

        What the configuration says of a model, its limits among them, replaces those fields of the load.
        """
        found = ranges(self._config)
        for name in assumed:
            if name not in found:
                raise ConfigError(f"'{name}' has no replicas = {{ min, max }} in the configuration")
        view = ScaleView(now=0.0, models=tuple(self._load(name, assumed.get(name)) for name in found))
        scaler, plugin = make_scaler(self._config, self._registry)
        decided = decide(scaler, plugin, view) if view.models else {}
        return [
            ScaleStatus(model=each.model, replicas=each.replicas, wanted=wanted.wanted, why=wanted.why)
            for each in view.models
            for wanted in [decided[each.model]]
        ]

    def planner(self) -> OfflinePlanner:
        """A planner that remembers its own moves."""
        return OfflinePlanner(build_planner(self._config, self._registry), RecentMoves(self.rescheduling.cool_down))

    def _load(self, name: str, load: ModelLoad | None) -> ModelLoad:
        model, range = self._config.models[name], ranges(self._config)[name]
        load = load or ModelLoad(model=name, replicas=range.min, ready=range.min)
        return msgspec.structs.replace(
            load,
            least=least(model, range),
            most=range.max,
            slots=load.slots or model.concurrency,
            scale_up_wait=model.scale_up_wait,
            scale_down_idle=model.scale_down_idle,
        )
