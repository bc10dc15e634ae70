"""Olla's ``config.yaml``."""

from __future__ import annotations

from typing import Any, Final

from enginehouse import format_duration, parse_duration
from enginehouse_importers.kit.backends import Backends, driver_of, read_base_url, secret
from enginehouse_importers.kit.table import Converted, Note, Table, converted, read_yaml, reasons

_STRATEGIES: Final = {
    "least-connections": "least_pending",
    "round-robin": "round_robin",
    "priority": "priority_only",
}
_SESSIONS: Final = {"session_header": "header:x-olla-session-id", "auth_header": "header:authorization"}
_CORS: Final = reasons(
    {
        "the origins of server.cors may do everything": (
            "allowed_origins allowed_methods allowed_headers exposed_headers allow_credentials max_age"
        )
    }
)
_OF_SERVER: Final = reasons(
    {
        "see timeouts.client; slow heads are cut off": "read_timeout read_header_timeout write_timeout idle_timeout",
        "telemetry.log_level and telemetry.access_log say what is logged": "request_logging",
    }
)
_LIMITS: Final = reasons(
    {
        "limits are for keys and addresses": "global_requests_per_minute burst_size",
        "/health has no limit": "health_requests_per_minute",
        "the gateway forgets addresses by itself": "cleanup_interval",
    }
)
_OF_ENDPOINTS: Final = reasons(
    {
        "the driver knows the paths of its engine": "model_url health_check_url",
        "list the models of the backend instead": "model_filter",
        "the engine gets no header of its own": "headers",
        "the path of the URL always stays": "preserve_path",
    }
)
_OF_PROXY: Final = reasons(
    {
        "there is one relay": "engine",
        "streams pass as they come": "profile stream_buffer_size",
        "there is no such time limit": "connection_keep_alive tls_handshake_timeout",
        "Olla ignores it too; see proxy.retry": "max_retries retry_backoff",
        "drivers are named by each backend": "profile_filter",
    }
)
_OF_DISCOVERY: Final = reasons(
    {"the gateway does so anyway, at its own pace": "refresh_interval health_check model_discovery"}
)
_LOCAL_NETWORKS: Final = ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
"""The proxies that Olla trusts if it shall trust proxies and none is named."""
_HIGHEST: Final = 100
"""Olla asks the highest priority first, the gateway the lowest."""
_LEFT_OUT: Final = reasons(
    {
        "a model has one name; routing.aliases has others": "model_registry",
        "/v1/messages works in front of every engine": "translators",
        "figures are at /metrics": "engineering",
        "the page is at /dashboard, for operators": "dashboard",
    }
)


def convert(text: str, file: str = "") -> Converted:
    """Convert the YAML ``text``; ``file`` is its name in errors. Raises ``ConfigError`` if it is no mapping."""
    notes: list[Note] = []
    top = Table(read_yaml(text, file), (), notes)
    discovery, proxy = top.table("discovery"), top.table("proxy")
    backends, checks = _backends(discovery.table("static"))
    named = top.table("model_aliases")
    aliases = {name: targets for name in named.names() if (targets := named.texts(name))}
    sections = {
        "server": _server(top.table("server")),
        "telemetry": _telemetry(top.table("logging")),
        "checks": checks,
        "routing": _routing(proxy) | {"aliases": aliases},
        "timeouts": _timeouts(proxy),
        "backends": backends.tables,
    }
    proxy.leave_out(_OF_PROXY)
    if discovery.text("type", "static") != "static":
        discovery.note("left out: name the servers in [backends]", "type")
    discovery.leave_out(_OF_DISCOVERY)
    top.leave_out(_LEFT_OUT)
    return converted(sections, notes)


def _server(table: Table) -> dict[str, Any]:
    found: dict[str, Any] = {"host": table.text("host"), "port": table.count("port")}
    limits = table.table("request_limits")
    found["max_body"] = limits.count("max_body_size")
    limits.leave_out({"max_header_size": "left out: a head may have 64 KiB"})
    found["drain_timeout"] = _duration(table, "shutdown_timeout")
    cors = table.table("cors")
    if cors.flag("enabled"):
        found["cors"] = cors.texts("allowed_origins")
    cors.leave_out(_CORS)
    limits = table.table("rate_limits")
    if most := limits.whole("per_ip_requests_per_minute", 0):
        found["per_address"] = {"requests_per_minute": most}
    if limits.flag("trust_proxy_headers"):
        found["trusted_proxies"] = limits.texts("trusted_proxy_cidrs") or list(_LOCAL_NETWORKS)
    limits.leave_out_one("trusted_proxy_cidrs", "left out: trust_proxy_headers is off")
    limits.leave_out(_LIMITS)
    table.leave_out(_OF_SERVER)
    return found


def _telemetry(table: Table) -> dict[str, str]:
    levels = {"debug": "debug", "warn": "warning", "error": "error"}
    found = {"log_level": levels.get(table.text("level"), ""), "log_format": table.text("format")}
    if found["log_format"] == "text":
        found["log_format"] = ""
    table.leave_out({"output": "left out: the log goes to standard error"})
    return found


def _routing(proxy: Table) -> dict[str, Any]:
    found: dict[str, Any] = {}
    default = "left out: the default strategy is used"
    found["strategy"] = proxy.choice("load_balancer", _STRATEGIES, "least-connections", default)
    sticky = proxy.table("sticky_sessions")
    if sticky.flag("enabled"):
        found |= _session(sticky)
        proxy.note("left out: sticky_sessions decide", "load_balancer")
    names = ("key_sources", "idle_ttl_seconds", "max_sessions", "prefix_hash_bytes")
    sticky.leave_out(dict.fromkeys(names, "left out: sessions stay where they hash to, without a table"))
    retry = proxy.table("retry")
    if not retry.flag("enabled", True):
        found["max_retries"] = 0
    elif attempts := retry.whole("max_attempts", 0):
        found["max_retries"] = attempts
    retry.leave_out({"on_connection_failure": "left out: what another engine can serve is sent there"})
    return found


def _session(sticky: Table) -> dict[str, Any]:
    sources = sticky.texts("key_sources")
    if "prefix_hash" in sources:
        sticky.note(
            '"prefix_hash" is the strategy cache_aware, which knows which engine has read a prompt', "key_sources"
        )
        return {"strategy": "cache_aware"}
    session = [_SESSIONS[source] for source in sources if source in _SESSIONS]
    if any(source not in _SESSIONS for source in sources):
        sticky.note("only session_header, auth_header and prefix_hash have an equivalent", "key_sources")
    return {"strategy": "session", **({"session": session} if session else {})}


def _timeouts(proxy: Table) -> dict[str, str]:
    names = {"connection_timeout": "connect", "response_header_timeout": "first_byte", "read_timeout": "stall"}
    found = {ours: _duration(proxy, theirs) for theirs, ours in names.items()}
    found["total"] = _duration(proxy, "response_timeout")
    return found


def _backends(static: Table) -> tuple[Backends, dict[str, str]]:
    """The backends, and the shortest interval and longest time limit of their probes."""
    backends = Backends()
    intervals, limits = [], []
    for table in static.each("endpoints"):
        url = read_base_url(table, "url")
        backend: dict[str, Any] = {
            "driver": driver_of(table, "type"),
            "url": url,
            "api_key": _api_key(table.table("auth")),
        }
        backend["priority"] = max(0, _HIGHEST - table.whole("priority", _HIGHEST)) or None
        intervals.append(_duration(table, "check_interval"))
        limits.append(_duration(table, "check_timeout"))
        if url:
            backends.add(table.text("name", "endpoint"), backend)
        else:
            table.note("left out: it has no URL")
            table.silence()
        table.leave_out(_OF_ENDPOINTS)
    static.leave_out({})
    found = {
        "interval": min(filter(None, intervals), key=parse_duration, default=""),
        "timeout": max(filter(None, limits), key=parse_duration, default=""),
    }
    return backends, found


def _api_key(table: Table) -> str:
    """The key for an engine, which gets it as Olla's type ``bearer`` sends it."""
    kind = table.text("type")
    key = ""
    if kind == "bearer":
        key = secret(table, "token") or (f"file:{path}" if (path := table.text("token_file")) else "")
    elif kind:
        table.note("left out: engines get a key as Authorization: Bearer, or none", "type")
        table.silence()
    table.leave_out({})
    return key


def _duration(table: Table, key: str) -> str:
    """A duration, without one that is zero, which means no limit there."""
    text = table.text(key)
    try:
        return format_duration(found) if text and (found := parse_duration(text)) else ""
    except ValueError:
        table.note("left out: expected a duration", key)
        return ""
