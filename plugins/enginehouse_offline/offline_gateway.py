"""A configuration with its plugins, for commands that need no running gateway."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from enginehouse import Headers, RequestError
from enginehouse.app.build import build_drivers, build_fleet, build_swapper
from enginehouse.app.build_relay import drivers_by_backend
from enginehouse.app.build_router import build_router
from enginehouse.app.plan import settle
from enginehouse.app.plugin_instances import ConfiguredPlugins
from enginehouse.commands import warn
from enginehouse.config.load_config import load_config_or_embedded
from enginehouse.config.routing import Aliases
from enginehouse.config.rules import LOCAL_HOST
from enginehouse.model_sources import PulledModels
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.relay.upstream.outside import Outside
from enginehouse.routing.body.read import end_user, read_request
from enginehouse.routing_facts import Explanation
from enginehouse.scheduling.scheduling_rules import facts_of_hosts
from enginehouse.tickets import SwapPlan
from enginehouse_kit.rescheduling import ClusterView
from enginehouse_kit.swap_plans import explain_swap
from enginehouse_offline.advice import warnings
from enginehouse_offline.fleet_state import impose, read_state


class OfflineGateway(ConfiguredPlugins):
    """A ``Configured`` that decides as the gateway of a configuration would, and starts nothing.

    ``file``: the configuration, by default the one that ``serve`` finds. Making one and all methods raise
    ``ConfigError``, and ``PluginError`` if a plugin fails. Warnings are printed; ``quiet`` leaves out those of the
    configuration.
    """

    def __init__(self, file: Path | None, *, quiet: bool = False) -> None:
        loaded = load_config_or_embedded(file, os.environ)
        super().__init__(lambda: loaded.config, load_plugins(loaded.config.plugins).registry)
        for warning in (*loaded.warnings, *warnings(self)) if not quiet else ():
            warn(warning)

    def pulled_models(self) -> PulledModels:
        """The folder of downloaded models, with every source of more."""
        sources = [self._registry.create("model_source", type) for type in self._registry.types("model_source")]
        return PulledModels(self._config().pull, sources)

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
        config, replaced = settle(self._config(), self._registry)
        for warning in replaced:
            warn(warning)
        router, fleet = build_router(config, self._registry), build_fleet(config)
        if view is not None:
            router.strategies.on_view(view, config.rescheduling)
        listed = {each.id: each.models for each in view.instances} if view is not None else {}
        impose(read_state(*state or (b"{}", "")), fleet, listed)
        if unknown := [backend.name for backend in fleet.backends() if not backend.models]:
            names = ", ".join(f"'{name}'" for name in unknown)
            warn(f"the models of {names} are not configured: name them in the state, or ask a gateway with --url")
        try:
            asked = read_request(path, headers, body)
            needs = router.requirements(asked)
        except RequestError as error:
            return _explain_unread(error)
        needs.caller, needs.user = caller, end_user(asked.body, config.auth.hash_users)
        router.apply_rules(needs, headers, rehearsal=True)
        drivers = drivers_by_backend(config, build_drivers(config, self._registry, {}, Outside()))
        return router.explain(needs, fleet.snapshot, drivers)

    def explain_swap(self, target: str, running: Sequence[str]) -> SwapPlan:
        """Which of the models ``running``, the least recently used first, would stop so that ``target`` can run.

        ``target`` may be an alias.
        """
        models, aliases = self._config().models, Aliases(self._config().routing.aliases)
        target = next((name for name in (target, *aliases.targets(target)) if name in models), target)
        model = models.get(target)
        host = facts_of_hosts(self._config())(model.hosts[0] if model else LOCAL_HOST)
        return explain_swap(build_swapper(self._config(), self._registry, host), host, target, running)


def _explain_unread(error: RequestError) -> Explanation:
    """The explanation of a request that was refused before routing began."""
    return Explanation(
        requested="",
        resolved=None,
        reason=None,
        attempted=[],
        requirements={},
        candidates=[],
        chosen=None,
        error=error.envelope()["error"],
    )
