"""A configuration as a gateway uses it, checked: for its start, a rehearsal of that, and every change."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, partial

import msgspec

from enginehouse.aio.slow_work import run_slowly
from enginehouse.aio.timeouts import run_within
from enginehouse.app.build import build_driver, build_launcher, build_sources, build_swapper, driver_types
from enginehouse.app.build_router import make_strategy
from enginehouse.app.findings import Findings
from enginehouse.app.needs import roles_of
from enginehouse.app.plugin_instances import check_parameters, create, prepare
from enginehouse.config.schema import Config, HostSettings, ModelSettings
from enginehouse.config.shape import dotted
from enginehouse.domain.errors import ConfigError, PluginError, PullFailed
from enginehouse.domain.foreign import describe
from enginehouse.domain.names import did_you_mean
from enginehouse.domain.replica import Role
from enginehouse.engines.guards import unguarded
from enginehouse.engines.host_context import HostContext, check_placement
from enginehouse.engines.launch_line import fingerprint, launch_line, launch_spec
from enginehouse.engines.pulled_models import PulledModels
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.launchers import Launcher, LaunchLine
from enginehouse.interfaces.strategies import Strategy
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.upstream.outside import Outside
from enginehouse.scheduling.scheduling_rules import check_preloads, facts_of_hosts, host_names

_log = logging.getLogger(__name__)
LONGEST_S = 60.0
"""For which a change of the configuration waits for drivers: one that hangs must not hold up all later changes."""
_OTHER = {Role.PREFILL: Role.DECODE, Role.DECODE: Role.PREFILL}


class GatewayPlan:
    """A configuration, checked, and what it uses of plugins. It starts nothing.

    ``config``: settled. ``drivers``: those that it uses, by type; those of ``before`` stay in use. ``warnings``: what
    services say of it, and of replaced strategies. ``found``: what is wrong with the configuration besides.
    ``relaunched``: models whose running engines are not launched as it says.

    What is wrong is collected as ``findings``, and ``check_launches`` raises it. ``asked``: the type of the driver for
    which that waits now, empty for none.
    """

    asked = ""

    def __init__(
        self,
        config: Config,
        registry: Registry,
        outside: Outside,
        before: Mapping[str, DriverSupport],
        found: Iterable[ConfigError] = (),
    ) -> None:
        self.registry, self.outside, self._before = registry, outside, before
        self.findings = Findings(found)
        collecting = self.findings.collecting
        self.config, self.drivers = config, dict[str, DriverSupport]()
        self.warnings: list[str] = []
        self.relaunched: set[str] = set()
        with collecting():
            check_parameters(config, registry)
        with collecting():
            self.config, self.warnings = settle(config, registry)
        for type, key in driver_types(self.config).items():
            with collecting():
                self.drivers[type] = before.get(type) or build_driver(self.config, registry, type, key, outside)
        self._check_models()
        scheduling = self.config.scheduling
        with collecting():
            create(self.config, registry, "scheduler", scheduling.scheduler, "scheduling.scheduler")
        facts_of = facts_of_hosts(self.config)
        for host in host_names(self.config):
            with collecting():
                facts = facts_of(host)
                check_preloads(self.config, facts, build_swapper(self.config, registry, facts))

    def check_launches(self, before: Mapping[str, ModelSettings]) -> None:
        """Make the launch lines, on no port, of models that are not as ``before``. It may run in a thread.

        Raises ``ConfigError``, ``ConfigErrors`` with all errors of the plan that do not depend on each other, or
        ``PluginError``.
        """
        environ = dict(os.environ)  # each look at os.environ decodes it
        for name, model in self.config.models.items():
            old = before.get(name)
            if model.launches and old != model and model.engine_driver in self.drivers:
                self.asked = model.engine_driver
                with self.findings.collecting():
                    line = self._launch_line(name, model, environ)
                    if old is not None and old.launches and self._differs(name, old, model, line, environ):
                        self.relaunched.add(name)
        self.asked = ""
        self.findings.check()
        for warning in _of_roles(self.config, self.drivers, self.registry):
            _log.warning("%s", warning)

    def _check_models(self) -> None:
        """Check from where models are downloaded, and where their engines run."""
        config, registry = self.config, self.registry
        sources = cache(partial(build_sources, config, registry))
        launchers = cache(lambda host: build_launcher(config, registry, config.host_settings(host).launcher, host))
        for name, model in config.models.items():
            if model.source:
                with self.findings.collecting():
                    _check_source(name, model.source, sources())
            if model.launches:
                for host in model.hosts:
                    with self.findings.collecting():
                        check_placement(config, name, host, launchers(host))

    def _launch_line(self, name: str, model: ModelSettings, environ: Mapping[str, str]) -> LaunchLine:
        """The launch line of a model. Raises ``ConfigError``, or ``PluginError`` if its driver fails."""
        type = model.engine_driver
        driver = self.drivers[type]
        how = partial(launch_line, name, model, unguarded(driver).launch, 0, environ)
        problem = f"the driver '{type}' has no launch line for models.{name}:"
        line = prepare(self.registry, "driver", type, how, problem)
        if not self.registry.get("driver", type).bundled:
            launch_line(name, model, driver.launch, 0, environ)  # the guard checks the driver's answers
        return line

    def _differs(
        self, name: str, old: ModelSettings, model: ModelSettings, line: LaunchLine, environ: Mapping[str, str]
    ) -> bool:
        """Whether an engine launched as ``old`` is another one than an engine of ``model``, launched with ``line``."""
        if (old.hosts, old.gpus) != (model.hosts, model.gpus):
            return True
        drivers, self.asked = {**self._before, **self.drivers}, old.engine_driver
        try:
            before = launch_line(name, old, drivers[old.engine_driver].launch, 0, environ)
        except ConfigError:
            return True
        return fingerprint(before) != fingerprint(line)


def settle(config: Config, registry: Registry) -> tuple[Config, list[str]]:
    """The configuration as a gateway uses it, with warnings.

    An unknown strategy is replaced by ``smart``, and one that fails too if ``plugins.on_error`` is ``"skip"``.
    """
    warnings, routing, replace = list[str](), config.routing, msgspec.structs.replace

    def usable(key: str, type: str) -> str:
        """``type``, or ``smart`` in its place."""
        why_not = _why_not(config, registry, key, type)
        if not why_not:
            return type
        warnings.append(why_not)
        return "smart"

    strategy = usable("routing.strategy", routing.strategy)
    strategies = {
        model: usable(dotted(("routing", "strategies", model)), type) for model, type in routing.strategies.items()
    }
    rules = [
        replace(rule, strategy=rule.strategy and usable(f"routing.rules[{place}].strategy", rule.strategy))
        for place, rule in enumerate(routing.rules)
    ]
    return replace(config, routing=replace(routing, strategy=strategy, strategies=strategies, rules=rules)), warnings


def _why_not(config: Config, registry: Registry, key: str, type: str) -> str:
    """Why ``smart`` replaces the strategy of ``type``, configured as ``key``; empty if it is used itself."""
    known = list(registry.types("strategy"))
    if type not in known:
        hint = did_you_mean(type, known) or f"known: {', '.join(known)}"
        return f"{key}: there is no strategy '{type}', so 'smart' is used ({hint})"
    if config.plugins.on_error == "skip":
        try:
            make_strategy(config, registry, type, key)
        except PluginError as error:
            return f"{key}: {error}; 'smart' is used (plugins.on_error = \"skip\")"
    return ""


async def warn_of_missing(context: HostContext) -> None:
    """Log why engines could not be launched on this machine, with remedies: a program or a file is missing.

    It may take long. The configuration must have been checked. A driver that hangs is asked once.
    """
    hanging = set[str]()
    for name, model in context.config.models.items():
        type = HostSettings().launcher
        here = next((host for host in model.hosts if context.config.host_settings(host).launcher == type), None)
        if not model.launches or here is None or model.engine_driver in hanging:
            continue
        why = ""
        try:
            await run_within(LONGEST_S, _warn_of_missing(context, name, model, context.make_launcher(type, here)))
        except TimeoutError:
            hanging.add(model.engine_driver)
            why = f"'{model.engine_driver}' has not returned for {LONGEST_S:g} s"
        except Exception as error:
            why = describe(error)
        if why:
            _log.warning("models.%s: its driver cannot tell whether the engine may start: %s", name, why)


async def _warn_of_missing(context: HostContext, name: str, model: ModelSettings, launcher: Launcher) -> None:
    driver = unguarded(context.drivers[model.engine_driver]).launch
    if why := await launcher.why_not(launch_line(name, model, driver, port=0), ()):
        remedy = f" ({driver.how_to_install})" if driver.how_to_install else ""
        _log.warning("models.%s: %s%s", name, why, remedy)
    if model.command or model.source:
        return
    if problem := await run_slowly(driver.why_not, launch_spec(name, model, driver)):
        _log.warning("models.%s.path: %s", name, problem)


def _check_source(model: str, source: str, sources: PulledModels) -> None:
    """Raise ``ConfigError`` for a model whose ``source`` no installed plugin downloads from: no load could succeed."""
    try:
        sources.check(source)
    except PullFailed as error:
        key = dotted(("models", model, "source"))
        raise ConfigError("no plugin downloads from there", key=key, remedy=error.message) from None


def _of_roles(config: Config, drivers: Mapping[str, DriverSupport], registry: Registry) -> Iterator[str]:
    """Warnings of the roles prefill and decode if no request would find an engine of each."""
    strategy, default = config.routing.strategy, Strategy.pick_decode
    registry.get("strategy", strategy, "routing.strategy")
    factories = {type: registry.get("strategy", type).factory for type in registry.types("strategy")}
    picks = {type: getattr(factory, "pick_decode", None) for type, factory in factories.items()}
    pairing = " or ".join(f"'{type}'" for type, pick in picks.items() if pick not in (None, default))
    for type, driver in drivers.items():
        found = [(role, dotted(path)) for path, of, role in roles_of(config) if of == type]
        roles, keys = {role for role, _ in found}, ", ".join(key for _, key in found)
        alone = driver.bootstrap is None
        if len(roles) == 1 and not alone:
            missing = f"none has the role '{_OTHER[roles.pop()].value}'"
            yield f"{keys}: a server of {type} with this role serves no request alone, and {missing}"
        elif len(roles) > 1 and driver.hand_over is not None and picks[strategy] is default:
            what = "which reads the prompt and answers alone" if alone else "which serves none alone"
            remedy = f"set routing.strategy to {pairing or 'one that pairs them, which a plugin brings'}"
            yield f"{keys}: '{strategy}' sends each request to one server, {what}; {remedy}"
