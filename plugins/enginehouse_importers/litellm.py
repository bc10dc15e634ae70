"""LiteLLM's ``config.yaml``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from enginehouse_importers.kit.backends import Backends, name_of, read_base_url, secret, targets
from enginehouse_importers.kit.table import Converted, Note, Table, read_yaml, reasons, seconds


class _Provider(NamedTuple):
    """How a provider is asked: the driver, and the address where LiteLLM knows one."""

    driver: str = "openai"
    url: str = ""


_PROVIDERS: Final[Mapping[str, _Provider]] = {
    "openai": _Provider(url="https://api.openai.com"),
    "text-completion-openai": _Provider(url="https://api.openai.com"),
    "hosted_vllm": _Provider("vllm"),
    "vllm": _Provider("vllm"),
    "llamafile": _Provider("llamacpp", "http://127.0.0.1:8080"),
    "lm_studio": _Provider(url="http://127.0.0.1:1234"),
    "ollama": _Provider(url="http://127.0.0.1:11434"),
    "ollama_chat": _Provider(url="http://127.0.0.1:11434"),
    "openrouter": _Provider(url="https://openrouter.ai/api"),
    "groq": _Provider(url="https://api.groq.com/openai"),
    "mistral": _Provider(url="https://api.mistral.ai"),
    "deepseek": _Provider(url="https://api.deepseek.com"),
    "together_ai": _Provider(url="https://api.together.xyz"),
    "fireworks_ai": _Provider(url="https://api.fireworks.ai/inference"),
    "xai": _Provider(url="https://api.x.ai"),
    "litellm_proxy": _Provider(),
    "infinity": _Provider(),
}
"""The providers that speak OpenAI's protocol. Others are left out with a note."""
_STRATEGIES: Final = {
    "simple-shuffle": "random",
    "least-busy": "least_pending",
    "latency-based-routing": "cache_aware",
}
_PRICES: Final = {
    "input_cost_per_token": "input",
    "cache_read_input_token_cost": "cached",
    "output_cost_per_token": "output",
}
_OF_DEPLOYMENTS: Final = reasons(
    {
        "limits are for keys (auth.keys) and for engines (concurrency)": "rpm tpm",
        "routing.max_retries is for all": "max_retries num_retries",
        "prices are for tokens": "input_cost_per_second output_cost_per_second",
        "of that provider": "api_version azure_ad_token aws_region_name vertex_project",
        "the engine gets no header of its own": "organization extra_headers",
        "models.NAME.filters.strip removes fields": "drop_params",
        "zones, rules of keys and aliases decide who may go where": "tags",
        "/upstream/MODEL passes everything on": "use_in_pass_through",
    }
)
_LEFT_OUT: Final = reasons(
    {
        "set them where the gateway starts; secrets are written as env:NAME": "environment_variables",
        "a plugin may refuse or change requests": "guardrails prompts vector_store_registry mcp_servers",
        "there is no equivalent": "credential_list search_tools files_settings",
        "convert each file, or join them first": "include",
    }
)
_OF_ROUTER: Final = reasons(
    {
        "keys are in auth.keys; the gateway needs no database": (
            "redis_host redis_port redis_password redis_url redis_db"
        ),
        "the interceptor 'answers' repeats answers to equal requests": "cache_responses cache_kwargs caching_groups",
        "[plugins.STRATEGY] has parameters": "routing_strategy_args",
        "the gateway always checks the context length": "enable_pre_call_checks",
        "what another engine can serve is sent there, within routing.max_retries": "retry_policy",
        "the gateway retries at once, at another engine": "retry_after",
        "checks.failures counts failures": "allowed_fails_policy",
        "zones decide who may go where": "enable_tag_filtering",
        "see telemetry.log_level": "debug_level set_verbose",
        "an answer is never judged by its content": "content_policy_fallbacks",
    }
)
_OF_LIBRARY: Final = reasons(
    {
        "the gateway logs, traces and counts by itself (see telemetry); other programs read these": (
            "callbacks success_callback failure_callback service_callbacks set_verbose json_logs "
            "turn_off_message_logging redact_messages_in_exceptions default_team_settings"
        ),
        "the interceptor 'answers' repeats answers to equal requests": "cache cache_params",
        "fields pass as they are; models.NAME.filters changes them": "drop_params modify_params",
        "auth.keys limits what each key may spend": "max_budget budget_duration",
        "models.NAME.concurrency is for each engine": "max_parallel_requests",
        "an answer is never judged by its content": "content_policy_fallbacks",
        "name an address": "force_ipv4",
        "backends.NAME.verify_tls is for each backend": "ssl_verify",
    }
)
_OF_GENERAL: Final = reasons(
    {
        "keys are in auth.keys; the gateway needs no database": (
            "database_url store_model_in_db database_connection_pool_limit proxy_batch_write_at disable_spend_logs"
        ),
        "the gateway logs, traces and counts by itself (see telemetry); other programs read these": (
            "alerting alerting_threshold alerting_args"
        ),
        "see auth": "custom_auth enable_jwt_auth allowed_routes ui_access_mode",
        "checks.interval, always on": "background_health_checks health_check_interval",
        "models.NAME.concurrency is for each engine": "max_parallel_requests global_max_parallel_requests",
        "name the models": "infer_model_from_keys",
        "a request names its model": "completion_model",
    }
)


def convert(text: str, file: str = "") -> Converted:
    """Convert the YAML ``text``; ``file`` is its name in errors. Raises ``ConfigError`` if it is no mapping."""
    notes: list[Note] = []
    top = Table(read_yaml(text, file), (), notes)
    deployments = list(_deployments(top))
    backends = _backends(deployments)
    router, library = top.table("router_settings"), top.table("litellm_settings")
    sections: dict[str, Any] = {
        "auth": {"keys": _keys(top.table("general_settings"))},
        "timeouts": _timeouts(router, library),
        "checks": _checks(router),
        "routing": _routing(router, library, deployments),
        "backends": backends,
        "models": _models(deployments),
        "prices": {each.model: each.prices for each in deployments if each.prices},
    }
    router.leave_out(_OF_ROUTER)
    library.leave_out(_OF_LIBRARY)
    top.leave_out(_LEFT_OUT)
    return Converted({name: section for name, section in sections.items() if any(section.values())}, notes)


class _Deployment(NamedTuple):
    """One entry of ``model_list``. ``name``: for clients; ``model``: for the engine."""

    name: str
    model: str
    backend: dict[str, Any]
    card: dict[str, Any]
    prices: dict[str, float]
    weight: float


def _deployments(top: Table) -> Iterator[_Deployment]:
    seen: set[tuple[str, str]] = set()
    for table in top.each("model_list"):
        found = _deployment(table)
        table.leave_out(_OF_DEPLOYMENTS)
        if found is None:
            continue
        if found.weight and (found.name, found.model) in seen:
            why = "left out: among engines of the same model, routing.strategy chooses"
            table.note(why, "litellm_params", "weight")
        seen.add((found.name, found.model))
        yield found


def _deployment(table: Table) -> _Deployment | None:
    parameters = table.table("litellm_params")
    name, given = table.text("model_name"), parameters.text("model")
    custom = parameters.text("custom_llm_provider")
    provider, _, model = given.partition("/") if "/" in given and not custom else (custom or "openai", "", given)
    if provider not in _PROVIDERS and "api_base" in parameters and "/" in given:
        provider, model = "openai", given
    known = _PROVIDERS.get(provider)
    info = table.table("model_info")
    prices = _prices(info) | _prices(parameters)
    card = _card(info)
    wild = "*" in name or "*" in model
    if known is None or wild or not (name.strip() and model.strip()):
        why = f'provider "{provider}" does not speak OpenAI\'s protocol' if known is None else "it names no model"
        table.note(f"left out: {'a pattern of models needs their names' if wild else why}")
        parameters.silence()
        return None
    url = read_base_url(parameters, "api_base", known.url)
    if not url:
        parameters.note("left out: it has no address", "api_base")
        parameters.silence()
        return None
    backend = _backend(parameters, known.driver, url)
    weight = _number(parameters, "weight")
    filters = _filters(parameters)
    parameters.leave_out(_OF_DEPLOYMENTS)
    card |= {"filters": {"set": filters}} if filters else {}
    return _Deployment(name, model, backend, card, prices, weight)


def _backend(parameters: Table, driver: str, url: str) -> dict[str, Any]:
    key = secret(parameters, "api_key")
    limits = {"total": _number(parameters, "timeout"), "first_byte": _number(parameters, "stream_timeout")}
    backend: dict[str, Any] = {
        "driver": driver,
        "url": url,
        "api_key": key,
        "concurrency": parameters.whole("max_parallel_requests", 0),
        "priority": parameters.whole("order", 0),
    }
    timeouts = {name: seconds(limit) for name, limit in limits.items() if limit}
    backend |= {"timeouts": timeouts} if timeouts else {}
    return {name: value for name, value in backend.items() if value}


def _prices(table: Table) -> dict[str, float]:
    """The prices of a million tokens."""
    return {ours: round(price * 1e6, 6) for theirs, ours in _PRICES.items() if (price := _number(table, theirs))}


def _card(table: Table) -> dict[str, Any]:
    """What the deployment can do."""
    card: dict[str, Any] = {}
    length = table.whole("max_input_tokens", 0)
    if length:
        table.leave_out_one("max_tokens", "left out: max_input_tokens says how long a prompt may be")
    else:
        length = table.whole("max_tokens", 0)
    if length:
        card["context_length"] = length
    for theirs, ours in {"supports_vision": "vision", "supports_function_calling": "tools"}.items():
        if theirs in table:
            card[ours] = table.flag(theirs)
    if table.text("mode") == "embedding":
        card["embeddings"] = True
    names = ("id", "base_model", "db_model", "version", "mode", "health_check_model", "access_groups", "metadata")
    shown = dict.fromkeys(names, "left out: only LiteLLM's own pages show it")
    table.leave_out({**shown, "max_output_tokens": "left out: the request says how many"})
    return card


def _filters(parameters: Table) -> dict[str, Any]:
    """The fields that LiteLLM puts into requests."""
    names = ("temperature", "top_p", "max_tokens", "seed", "presence_penalty", "frequency_penalty", "stop")
    found = {name: value for name in names if (value := parameters.value(name)) is not None}
    found |= parameters.mapping("extra_body")
    if found:
        parameters.note("set in every request, also where a client names another value", *list(found)[:1])
    return found


def _backends(deployments: list[_Deployment]) -> dict[str, dict[str, Any]]:
    """One backend for each server with the same key, limits and rank, with all its models."""
    backends, models = Backends(), dict[str, list[str]]()
    for each in deployments:
        served = models.setdefault(repr(each.backend), [])
        if not served:
            backends.tables[backends.add(name_of(each.backend["url"]), each.backend)]["models"] = served
        if each.model not in served:
            served.append(each.model)
    return backends.tables


def _models(deployments: list[_Deployment]) -> dict[str, dict[str, Any]]:
    models: dict[str, dict[str, Any]] = {}
    for each in deployments:
        models[each.model] = {**models.get(each.model, {}), **each.card}
    return {name: card for name, card in models.items() if card}


# --- routing


def _routing(router: Table, library: Table, deployments: list[_Deployment]) -> dict[str, Any]:
    strategy = router.text("routing_strategy", "simple-shuffle")
    if "routing_strategy" in router and strategy not in _STRATEGIES:
        router.note("left out: the default strategy, cache_aware, is used", "routing_strategy")
    _note_repeated(router, library)
    retries = router.whole("num_retries", library.whole("num_retries", 2))
    aliases, fallbacks = _aliases(deployments)
    aliases |= _group_aliases(router, aliases)
    for table in (router, library):
        for name, group in _fallbacks(table):
            fallbacks.setdefault(name, []).extend(targets(aliases, group))
    routing: dict[str, Any] = {
        "strategy": _STRATEGIES.get(strategy, "") if "routing_strategy" in router else "",
        "max_retries": retries if retries != 2 else None,
        "aliases": aliases,
        "fallbacks": {name: list(dict.fromkeys(chain)) for name, chain in fallbacks.items()},
    }
    return {name: value for name, value in routing.items() if value not in ("", None, {})}


def _note_repeated(router: Table, library: Table) -> None:
    for theirs, own in {"num_retries": "num_retries", "timeout": "request_timeout"}.items():
        if theirs in router and own in library:
            library.note(f"left out: router_settings.{theirs} wins", own)


def _aliases(deployments: list[_Deployment]) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """The names for clients that differ from the engines', and fallbacks of those that one engine has too."""
    aliases: dict[str, Any] = {}
    fallbacks: dict[str, list[str]] = {}
    by_name: dict[str, dict[str, float]] = {}
    for each in deployments:
        by_name.setdefault(each.name, {}).setdefault(each.model, each.weight)
    for name, models in by_name.items():
        others = [model for model in models if model != name]
        if name in models:
            fallbacks.update({name: others} if others else {})
        elif any(models.values()):
            aliases[name] = [{"to": model, "weight": weight or 1} for model, weight in models.items()]
        else:
            aliases[name] = others[0] if len(others) == 1 else [{"to": model, "weight": 1} for model in others]
    return aliases, fallbacks


def _group_aliases(router: Table, aliases: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, target in router.mapping("model_group_alias").items():
        wanted = str(target.get("model", "")) if isinstance(target, dict) else str(target)
        found[name] = aliases.get(wanted, wanted)
        if isinstance(target, dict) and target.get("hidden"):
            router.note("it is in the model list; models.NAME.unlisted hides it", "model_group_alias", name, "hidden")
    return found


def _fallbacks(table: Table) -> Iterator[tuple[str, str]]:
    """The names with a fallback, and each of their fallbacks: the gateway tries these whatever the reason is."""
    for key in ("fallbacks", "context_window_fallbacks"):
        for position, entry in enumerate(table.items(key)):
            if not isinstance(entry, dict):
                table.note("left out: expected a name and its fallbacks", key, position)
                continue
            for name, chain in entry.items():
                if isinstance(chain, list) and all(isinstance(each, str) for each in chain):
                    yield from ((name, each) for each in chain)
                else:
                    table.note("left out: only names of models can be fallbacks", key, position)
    if "context_window_fallbacks" in table:
        table.note("tried after any kind of failure, also after the others", "context_window_fallbacks")
    if "default_fallbacks" in table:
        table.leave_out_one("default_fallbacks", "left out: name the fallbacks of each model in routing.fallbacks")


def _timeouts(router: Table, library: Table) -> dict[str, str]:
    own, of_library = _number(router, "timeout"), _number(library, "request_timeout")
    total = own or of_library
    limits = {"total": total, "first_byte": _number(router, "stream_timeout")}
    return {name: seconds(limit) for name, limit in limits.items() if limit}


def _checks(router: Table) -> dict[str, int]:
    if _number(router, "cooldown_time"):
        router.note("left out: a backend is used again after checks.successes successful probes", "cooldown_time")
    failures = router.whole("allowed_fails", 0)
    return {"failures": failures} if failures else {}


def _keys(table: Table) -> list[dict[str, Any]]:
    key = secret(table, "master_key")
    table.leave_out(_OF_GENERAL)
    if key:
        table.note(
            "is the one admin key; keys of LiteLLM's database are not in the file: add them to auth.keys", "master_key"
        )
    return [{"name": "master", "key": key, "admin": True}] if key else []


def _number(table: Table, key: str) -> float:
    """A number of 0 or more."""
    try:
        return max(0.0, float(table.text(key, "0")))
    except ValueError:
        table.note("left out: expected a number", key)
        return 0.0
