"""Makes the parts that move live requests, from ``[rescheduling]`` and the registered plugins."""

from __future__ import annotations

from collections.abc import Iterator

from enginehouse.app.plugin_instances import create, identity
from enginehouse.config.rescheduling import ReschedulingSettings
from enginehouse.config.schema import Config
from enginehouse.domain.errors import EnginehouseError
from enginehouse.domain.foreign import describe
from enginehouse.interfaces.rescheduling import ReschedulingPolicy
from enginehouse.plugin_manager.registry import Registry
from enginehouse.rescheduling.planner import Planner, PreparedPolicy

_ADAPTIVE_PD = ("binpacking_consolidation", "binpacking_mitigation")


def build_planner(config: Config, registry: Registry) -> Planner:
    """The configured policies, prepared. Raises ``ConfigError``, and ``PluginError`` if one fails."""
    return Planner([_prepared(config, registry, type) for type in _policy_types(config.rescheduling)])


def _policy_types(settings: ReschedulingSettings) -> Iterator[str]:
    """The policies in order. As in Llumnix, ``adaptive_pd`` adds those that it needs."""
    yield from settings.policies
    if settings.adaptive_pd:
        yield from (type for type in _ADAPTIVE_PD if type not in settings.policies)


def _prepared(config: Config, registry: Registry, type: str) -> PreparedPolicy:
    policy: ReschedulingPolicy = create(config, registry, "rescheduling_policy", type, "rescheduling.policies")
    try:
        policy.prepare(config.rescheduling)
    except EnginehouseError:
        raise
    except (Exception, SystemExit) as error:
        problem = f"the rescheduling policy '{type}' cannot be prepared: {describe(error)}"
        raise registry.get("rescheduling_policy", type).error(problem) from error
    return PreparedPolicy(identity(registry, "rescheduling_policy", type), policy)
