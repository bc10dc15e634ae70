"""The command lines of vllm-router and sglang-router."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from enginehouse.settings import is_base_url
from enginehouse_importers.kit.backends import Backends, base_url, name_of
from enginehouse_importers.kit.table import Converted, Note, Table, converted, keys_in, reasons

_STRATEGIES: Final[Mapping[str, str]] = {
    "random": "random",
    "round_robin": "round_robin",
    "cache_aware": "cache_aware",
    "kv_aware": "cache_aware",
    "power_of_two": "p2c",
    "consistent_hash": "session",
    "consistent_hashing": "session",
    "rendezvous_hash": "session",
    "sticky_least_loaded": "session",
    "prefix_hash": "cache_aware",
    "bucket": "cache_aware",
    "manual": "session",
}
_FLAGS: Final = keys_in(
    "disable_circuit_breaker disable_retries disable_health_check enable_igw enable_program_scheduling "
    "service_discovery vllm_pd_disaggregation pd_disaggregation mini_lb dp_aware enable_trace "
    "control_plane_audit_enabled pd_kv_events tokenizer_cache_enable_l0 tokenizer_cache_enable_l1"
)
_SPLIT: Final = frozenset({"worker_urls", "cors_allowed_origins", "request_id_headers"})
"""Options with several values."""
_REASONS: Final = reasons(
    {
        "cache_aware learns what engines have read and how fast they are; [plugins.cache_aware] has its figures": (
            "cache_threshold balance_abs_threshold balance_rel_threshold eviction_interval_secs max_tree_size "
            "bucket_adjust_interval_secs assignment_mode max_idle_secs router_temperature "
            "kv_aware_session_affinity_ttl_secs kv_connector kv_event_block_size kv_event_model "
            "kv_event_replay_source kv_event_source kv_penalty_disk kv_penalty_external kv_penalty_host pd_kv_events"
        ),
        "name the engines in [backends]": (
            "service_discovery service_discovery_port service_discovery_namespace selector prefill_selector "
            "decode_selector vllm_discovery_address enable_igw"
        ),
        "the gateway retries at once, at another engine": (
            "retry_initial_backoff_ms retry_max_backoff_ms retry_backoff_multiplier retry_jitter_factor"
        ),
        "checks.failures and probes decide which engine gets requests": (
            "cb_success_threshold cb_timeout_duration_secs cb_window_duration_secs disable_circuit_breaker"
        ),
        "the driver knows how to ask an engine": "disable_health_check health_check_endpoint",
        "engines tokenize; the gateway relays text": (
            "model_path tokenizer_path chat_template reasoning_parser tool_call_parser tokenizer_cache_enable_l0 "
            "tokenizer_cache_l0_max_entries tokenizer_cache_enable_l1 tokenizer_cache_l1_max_memory"
        ),
        "the gateway stores no conversations": (
            "history_backend oracle_connect_descriptor oracle_password oracle_pool_max oracle_pool_min "
            "oracle_pool_timeout_secs oracle_tns_alias oracle_username oracle_wallet_path postgres_db_url "
            "postgres_pool_max redis_url redis_pool_max redis_retention_days mcp_config_path"
        ),
        "admin keys are in auth.keys": (
            "control_plane_api_keys control_plane_audit_enabled jwt_audience jwt_issuer jwt_jwks_uri jwt_role_mapping"
        ),
        "put a proxy for TLS in front": "tls_cert_path tls_key_path ca_cert_paths client_cert_path client_key_path",
        "the gateway starts at once, and asks engines until they answer": (
            "worker_startup_timeout_secs worker_startup_check_interval"
        ),
        "figures are at /metrics": "prometheus_host prometheus_port prometheus_duration_buckets",
        "an engine spreads over its ranks itself": "dp_aware intra_node_data_parallel_size",
        "plugins are Python packages": "wasm_middleware wasm_middleware_route wasm_middleware_sha256",
        "priorities of keys order requests": "enable_program_scheduling program_scheduling_config_json",
        "there is one relay": "mini_lb",
        "the log goes to standard error": "log_dir",
        "the header is x-request-id": "request_id_headers",
        "backends.NAME.concurrency is for each engine": "max_concurrent_requests",
        "limits are for keys (auth.keys)": "rate_limit_tokens_per_second",
        "the importer's name decides the driver": "backend",
        "the strategy picks both": "decode_policy prefill_policy",
    }
)
"""Why an option has no equivalent."""
KNOWN: Final = _REASONS.keys() | keys_in(
    "worker_urls policy host port api_key request_timeout_secs max_payload_size log_level queue_size "
    "queue_timeout_secs cors_allowed_origins retry_max_retries disable_retries cb_failure_threshold "
    "health_failure_threshold health_success_threshold health_check_timeout_secs health_check_interval_secs "
    "prefill decode pd_disaggregation vllm_pd_disaggregation shutdown_grace_period_secs enable_trace "
    "otlp_traces_endpoint"
)
"""Every option that the importer knows."""


def convert(driver: str, text: str, file: str = "") -> Converted:
    """Convert the words of a command line, one on each line of ``text``. Its engines have ``driver``."""
    notes: list[Note] = []
    table = Table(_options([word for word in text.splitlines() if word], notes), (), notes)
    backends = _backends(table, driver)
    sections = {
        "server": {
            "host": table.text("host"),
            "port": table.count("port"),
            "max_body": table.count("max_payload_size"),
            "cors": table.texts("cors_allowed_origins"),
            "drain_timeout": table.period("shutdown_grace_period_secs"),
        },
        "auth": _auth(table),
        "telemetry": _telemetry(table),
        "checks": _checks(table),
        "timeouts": {"total": table.period("request_timeout_secs")},
        "routing": _routing(table),
        "backends": backends.tables,
        "scheduling": {"max_queue": table.count("queue_size"), "queue_timeout": table.period("queue_timeout_secs")},
    }
    table.leave_out(_REASONS)
    return converted(sections, notes)


convert_vllm_router = partial(convert, "vllm")
convert_sglang_router = partial(convert, "sglang")


def _options(words: Sequence[str], notes: list[Note]) -> dict[str, Any]:
    """The options by name, with ``_`` for ``-``. Those with several values, and repeated ones, are lists."""
    options: dict[str, Any] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            name = name.replace("-", "_")
            name = name if name in KNOWN else name.removeprefix("router_")
            values = [value] if value else []
            if name in _FLAGS:
                options[name] = True
            elif name in ("prefill", "decode"):
                options.setdefault(name, []).append(values)
            else:
                options.setdefault(name, []).extend(values)
        elif not name or options[name] is True:
            notes.append(Note(word, "left out: it belongs to no option"))
        elif name in ("prefill", "decode"):
            options[name][-1].append(word)
        else:
            options[name].append(word)
    return {name: _value(name, value) for name, value in options.items()}


def _value(name: str, value: Any) -> Any:
    if value is True or name in _SPLIT or name in ("prefill", "decode"):
        return value
    return value[0] if len(value) == 1 else value or True


def _backends(table: Table, driver: str) -> Backends:
    backends = Backends()
    urls = [each for part in table.texts("worker_urls") for each in part.split(",")]
    for position, url in enumerate(urls):
        _add(backends, table, url, {"driver": driver}, "worker_urls", position)
    disaggregated = any(table.flag(name) for name in ("pd_disaggregation", "vllm_pd_disaggregation"))
    for role in ("prefill", "decode"):
        for position, words in enumerate(table.items(role)):
            if words:
                _add(backends, table, words[0], {"driver": driver, "role": role}, role, position)
            if len(words) > 1:
                table.note("left out: the driver asks an engine for its bootstrap port", role, position)
    if disaggregated and not backends.tables:
        table.note("left out: name the engines with --prefill and --decode", "pd_disaggregation")
    return backends


def _add(backends: Backends, table: Table, url: str, backend: dict[str, Any], *keys: str | int) -> None:
    address = base_url(url)
    if is_base_url(address):
        backends.add(name_of(address), backend | {"url": address})
    elif url:
        table.note("left out: it is not the URL of a server that speaks HTTP", *keys)


def _auth(table: Table) -> dict[str, Any]:
    if not (key := table.text("api_key")):
        return {}
    table.note("clients send it, as before; it is also the admin key", "api_key")
    return {"keys": [{"name": "router", "key": key, "admin": True}]}


def _telemetry(table: Table) -> dict[str, Any]:
    found: dict[str, Any] = {}
    level = table.text("log_level").lower().replace("warn", "warning").replace("warninging", "warning")
    if level and level != "info":
        found["log_level"] = level if level in ("debug", "warning", "error") else "debug"
    endpoint = table.text("otlp_traces_endpoint")
    if table.flag("enable_trace"):
        found |= {"traces": "otlp"} | ({"endpoint": _http(endpoint)} if endpoint else {})
    return found


def _http(endpoint: str) -> str:
    return endpoint if "://" in endpoint else f"http://{endpoint}"


def _checks(table: Table) -> dict[str, Any]:
    failures = table.count("health_failure_threshold") or table.count("cb_failure_threshold")
    table.value("cb_failure_threshold")
    return {
        "failures": failures,
        "successes": table.count("health_success_threshold"),
        "interval": table.period("health_check_interval_secs"),
        "timeout": table.period("health_check_timeout_secs"),
    }


def _routing(table: Table) -> dict[str, Any]:
    default = "left out: the default strategy, cache_aware, is used"
    found: dict[str, Any] = {"strategy": table.choice("policy", _STRATEGIES, "cache_aware", default) or "cache_aware"}
    if table.flag("disable_retries"):
        table.value("retry_max_retries")
        found["max_retries"] = 0
    elif retries := table.whole("retry_max_retries", 0):
        found["max_retries"] = retries
    return found
