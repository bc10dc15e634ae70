"""Nexus's ``nexus.toml``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from enginehouse import ConfigError
from enginehouse.settings import did_you_mean
from enginehouse_importers.kit.backends import Backends, driver_of, followed, read_base_url, targets
from enginehouse_importers.kit.table import Converted, Note, Table, converted, table_of

_STRATEGIES: Final = ("smart", "round_robin", "priority_only", "random")
_ZONES: Final = {"open": "open", "restricted": "private"}
"""Nexus's privacy zones, and ours."""
_PRIVATE: Final = _ZONES["restricted"]
_PRIVACY: Final = ("unrestricted", "restricted")
_ZONE_OF_KIND: Final[Mapping[str, str]] = {
    **dict.fromkeys(("openai", "anthropic", "google"), "open"),
    **dict.fromkeys(("ollama", "vllm", "llamacpp", "exo", "lmstudio", "generic"), "restricted"),
}
"""The zone of a backend that names none, by its type: ``BackendType::default_privacy_zone`` in Nexus."""
_LEAST_TIER: Final = 1
"""The tier of a backend that names none."""
_ONLY_IN_GLOBSET: Final = re.compile(r"[{}\\]|\[\^")
"""What patterns mean in Nexus, and not here."""
_LEFT_OUT: Final = {
    "quality": "left out: routing.error_share leaves out backends that answer badly",
    "lifecycle": "left out: the memory swapper decides whether a model fits",
    "fleet": "left out: the gateway does not forecast",
}
_LEVELS: Final = {"trace": "debug", "debug": "debug", "info": "info", "warn": "warning", "error": "error"}


def convert(text: str, file: str = "") -> Converted:
    """Convert the TOML ``text``; ``file`` is its name in errors.

    Raises ``ConfigError`` if it is no TOML, or if it does not say clearly which requests must stay in which zone.
    """
    try:
        return _convert(text, file)
    except ConfigError as error:
        raise error.located(file) from None


def _convert(text: str, file: str) -> Converted:
    try:
        data = msgspec.toml.decode(text)
    except msgspec.DecodeError as error:
        raise ConfigError(f"not valid TOML: {error}", file=file) from None
    notes: list[Note] = []
    top = Table(table_of(data, file), (), notes)
    backends = _backends(top)
    routing = top.table("routing")
    zones, tiers = _policies(routing)
    sections = {
        "server": _server(top.table("server")),
        "telemetry": _telemetry(top.table("logging")),
        "checks": _checks(top.table("health_check")),
        "timeouts": {"total": top.table("server").period("request_timeout_seconds")},
        "routing": _routing(routing) | {"least_tier": tiers},
        "zones": zones,
        "backends": backends.tables,
        "scheduling": _scheduling(top.table("queue")),
        "discovery": _discovery(top.table("discovery"), "discovery" in top, bool(zones)),
    }
    top.leave_out(_LEFT_OUT)
    return converted(sections, notes)


def _server(table: Table) -> dict[str, Any]:
    found = {"host": table.text("host"), "port": table.count("port")}
    table.value("request_timeout_seconds")
    table.leave_out({"max_concurrent_requests": "left out: Nexus ignores it too; see models.*.concurrency"})
    return found


def _telemetry(table: Table) -> dict[str, str]:
    level = _LEVELS.get(table.text("level", "info"), "info")
    form = "json" if table.text("format") == "json" else ""
    table.leave_out(
        {
            "component_levels": "left out: there is one level",
            "enable_content_logging": "left out: telemetry.capture_content puts contents into traces",
        }
    )
    return {"log_level": "" if level == "info" else level, "log_format": form}


def _checks(table: Table) -> dict[str, Any]:
    if not table.flag("enabled", True):
        table.note("left out: backends are always probed", "enabled")
    found = {
        "interval": table.period("interval_seconds"),
        "timeout": table.period("timeout_seconds"),
        "failures": table.count("failure_threshold"),
        "successes": table.count("recovery_threshold"),
    }
    table.leave_out({})
    return found


def _scheduling(table: Table) -> dict[str, Any]:
    wait = table.period("max_wait_seconds")
    found = {"max_queue": table.count("max_size"), "queue_timeout": wait}
    if not table.flag("enabled", True):
        table.note(
            "left out: requests for a model that loads always wait; max_queue = 1 refuses most of them", "enabled"
        )
    table.leave_out({})
    return found


def _discovery(table: Table, given: bool, restricted: bool) -> dict[str, Any]:
    """The discoverer. ``given``: whether the file has its section; ``restricted``: whether models stay in a zone."""
    found: dict[str, Any] = {}
    if not given:
        table.note("left out: Nexus finds servers by mDNS if nothing is said; [discovery.network] does so here")
    elif table.flag("enabled", True):
        services = [each.rstrip(".").removesuffix(".local") for each in table.texts("service_types")]
        table.note("needs pip install 'enginehouse[mdns]'", "enabled")
        if restricted:
            table.note("servers that it finds are in no zone, so no model that is restricted goes there")
        found = {"network": {"type": "mdns"} | ({"services": services} if services else {})}
    table.leave_out_one("service_types", "left out: discovery is not enabled")
    table.leave_out({"grace_period_seconds": "left out: a server that says goodbye finishes its requests first"})
    return found


def _backends(top: Table) -> Backends:
    backends = Backends()
    for table in top.each("backends"):
        url = read_base_url(table, "url")
        backend: dict[str, Any] = {
            "driver": driver_of(table, "type"),
            "url": url,
            "priority": table.count("priority"),
            "zone": _zone(table),
            "tier": table.whole("tier", _LEAST_TIER) or None,
        }
        if variable := table.text("api_key_env"):
            backend["api_key"] = f"env:{variable}"
        if url:
            backends.add(table.text("name", "backend"), backend)
        else:
            table.note("left out: it has no URL")
            table.silence()
        table.leave_out({})
    return backends


def _zone(table: Table) -> str:
    """The zone of a backend: the one that it names, or that of its type."""
    if "zone" in table:
        return _ZONES[table.one_of("zone", _ZONES)]
    return _ZONES[_ZONE_OF_KIND[table.one_of("type", _ZONE_OF_KIND)]]


def _policies(routing: Table) -> tuple[dict[str, Any], dict[str, int]]:
    """The zones, and the least tiers, of models.

    A model that is restricted may only go to backends of the private zone. Nexus's first matching policy wins. Here
    every pattern of a zone counts, which restricts as many models or more, and the longest pattern of a tier.
    """
    models: list[str] = []
    free: list[str] = []
    tiers: dict[str, int] = {}
    if not isinstance(routing.value("policies", []), list):
        raise ConfigError("expected a list", key=routing.place("policies"), remedy="write [[routing.policies]]")
    for table in routing.each("policies"):
        pattern = _pattern(table)
        if table.one_of("privacy", _PRIVACY, "unrestricted") == "unrestricted":
            free.append(pattern)
        else:
            models.append(pattern)
            if free:
                others = ", ".join(f'"{each}"' for each in free)
                table.note(f"models of {others} that it matches too are restricted, though that policy is before it")
        if tier := table.whole("min_tier", 0):
            tiers.setdefault(pattern, tier)
        reasons = {
            "max_cost_per_request": "left out: the cost of a request is not known before it",
            "fallback_allowed": "left out: leave the model out of routing.fallbacks",
        }
        table.leave_out(reasons)
    if models:
        routing.note(f'models that are restricted go to backends of zone = "{_PRIVATE}" only', "policies")
    return ({_PRIVATE: {"models": models}} if models else {}), tiers


def _pattern(table: Table) -> str:
    """The pattern of a policy. One that means something else here is an error: it would not restrict all its models."""
    pattern = table.text("model_pattern")
    if not pattern or _ONLY_IN_GLOBSET.search(pattern):
        problem = "this pattern has no equivalent" if pattern else "expected the pattern of a model's name"
        remedy = "write a policy for each name, with *, ? and [...] only"
        raise ConfigError(problem, key=table.place("model_pattern"), remedy=remedy)
    return pattern


def _routing(table: Table) -> dict[str, Any]:
    strategy = table.text("strategy", "smart")
    if strategy not in _STRATEGIES:
        table.note(f"left out: the default strategy is used. {did_you_mean(strategy, list(_STRATEGIES))}", "strategy")
        strategy = ""
    weights = {key: table.table("weights").whole(key, 0) for key in table.mapping("weights")}
    aliases = followed({name: table.table("aliases").text(name) for name in table.mapping("aliases")})
    fallbacks = {
        name: [target for each in table.table("fallbacks").texts(name) for target in targets(aliases, each)]
        for name in table.mapping("fallbacks")
    }
    found = {
        "strategy": strategy,
        "max_retries": table.whole("max_retries", 2),
        "weights": weights,
        "aliases": aliases,
        "fallbacks": fallbacks,
    }
    table.leave_out({"budget": "left out: auth.keys limits what each key may spend"})
    return found
