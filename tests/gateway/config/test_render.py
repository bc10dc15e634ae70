from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.inspect import (
    AnyType,
    BoolType,
    DictType,
    EnumType,
    FloatType,
    IntType,
    ListType,
    LiteralType,
    StrType,
    StructType,
    Type,
)

from enginehouse.config.auth import AuthSettings, JwtSettings, KeyLimitSettings
from enginehouse.config.load_config import load_config
from enginehouse.config.routing import MirrorSettings, RoutingSettings, RuleSettings, WeightSettings
from enginehouse.config.scheduling import SchedulingSettings
from enginehouse.config.schema import (
    BackendSettings,
    BodyFilterSettings,
    Config,
    DiscoverySettings,
    HostSettings,
    InterceptorSettings,
    KeySettings,
    KvEventSettings,
    LimitSettings,
    ModelSettings,
    ReplicaRange,
    ServerSettings,
    ZoneSettings,
)
from enginehouse.config.secrets import Secret
from enginehouse.config.shape import config_type, shape_of
from enginehouse.config.telemetry import TelemetrySettings
from enginehouse_offline.render import changed, effective, effective_data, json_schema, page
from tests.support.config_files import Load
from tests.support.hypothesis_profiles import TIMING_CHECKS

TEXT = st.text(max_size=6)
ANYTHING = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXT | st.datetimes(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)


def secret(names: str) -> st.SearchStrategy[Secret]:
    """A secret that the environment variable of the same name holds."""
    return st.from_regex(names, fullmatch=True).map(lambda name: Secret(name, f"env:{name}"))


SPECIAL: dict[tuple[type, str], st.SearchStrategy[Any]] = {
    (RoutingSettings, "hedge_after"): st.sampled_from(("off", "p95", "2s")),
    (RoutingSettings, "session"): st.lists(st.sampled_from(["header:x-chat", "body:user", "body:id"]), max_size=2),
    (AuthSettings, "keys"): st.deferred(
        lambda: st.lists(of(KeySettings), max_size=3, unique_by=(lambda key: key.name, lambda key: key.key))
    ),
    (ServerSettings, "trusted_proxies"): st.just([]) | st.just(["10.0.0.0/8", "192.0.2.1"]),
    (HostSettings, "ports"): st.sampled_from(["20000-32767", "1-65535", "8000-8010"]),
    (ModelSettings, "replicas"): st.integers(1, 9) | st.just(ReplicaRange(min=0, max=4)),
    (SchedulingSettings, "never_load_for"): st.lists(st.sampled_from(["[.]css$", "favicon"]), max_size=2),
    (AuthSettings, "jwt"): st.none() | st.just(JwtSettings(issuer="https://login.example.org", audience="house")),
    (KeySettings, "key"): secret("K[A-Z]{4}"),
    (KeySettings, "expires"): st.sampled_from(["", "2030-01-31", "2030-01-31T18:00:00Z"]),
    (KeySettings, "limits"): st.just([]) | st.just([KeyLimitSettings(models=["m"], per="user", budget_per_day=0.5)]),
    (InterceptorSettings, "parameters"): st.just({}) | st.just({"words": 3}),
    (LimitSettings, "url"): secret("L[A-Z]{2}") | st.just(""),
    (BackendSettings, "api_key"): secret("B[A-Z]{2}") | st.just(""),
    (MirrorSettings, "to"): st.just("model b"),
    (KvEventSettings, "endpoint"): st.just("tcp://engine:5557"),
    (KvEventSettings, "replay"): st.sampled_from(["", "tcp://engine:5558"]),
    (RuleSettings, "header"): st.sampled_from(["", "x-tier: gold", "x-team: *"]),
    (RuleSettings, "strategy"): st.just("p2c"),
    (ZoneSettings, "headers"): st.lists(st.sampled_from(["x-zone: a", "x-team: *"]), max_size=2),
    (DiscoverySettings, "api_key"): secret("D[A-Z]{2}") | st.just(""),
    (TelemetrySettings, "headers"): st.dictionaries(TEXT, secret("T[A-Z]{2}"), max_size=2),
    (BackendSettings, "url"): st.sampled_from(["http://127.0.0.1:8001", "https://engine.example.com/prefix"]),
    (BackendSettings, "host"): st.just("local"),
    (ModelSettings, "host"): st.just("local"),
    (BodyFilterSettings, "strip"): st.lists(st.sampled_from(["top_p", "a.b"]), max_size=2),
    (BodyFilterSettings, "set"): st.dictionaries(st.sampled_from(["top_k", "c.d"]), ANYTHING, max_size=2),
    (ModelSettings, "command"): TEXT.map(lambda text: text and text + "${port}"),
    (ModelSettings, "env"): st.dictionaries(TEXT, st.sampled_from(["0,1", "true", "", "${env:HOME}"]), max_size=2),
    (ModelSettings, "health_path"): st.sampled_from(["", "none", "/ready?x=%20"]),
    (ServerSettings, "workers"): st.sampled_from([1, 3, "auto"]),
    (ServerSettings, "max_body"): st.integers(0, 1 << 20),
    (ServerSettings, "max_body_memory"): st.just(0) | st.integers(1 << 20, 1 << 40),
    (RoutingSettings, "aliases"): st.dictionaries(TEXT.map("alias {}".format), TEXT.map("model {}".format), max_size=2),
    (RoutingSettings, "fallbacks"): st.dictionaries(
        TEXT.map("model {}".format), st.lists(TEXT.map("other {}".format), max_size=2), max_size=2
    ),
    (RoutingSettings, "weights"): st.integers(0, 100).map(
        lambda load: WeightSettings(priority=100 - load, load=load, latency=0)
    ),
    (Config, "backends"): st.deferred(
        lambda: st.dictionaries(TEXT.map("backend {}".format), of(BackendSettings), max_size=2)
    ),
    (Config, "models"): st.deferred(
        lambda: st.dictionaries(TEXT.map("model {}".format), of(ModelSettings), max_size=2)
    ),
}


def of(struct: type) -> st.SearchStrategy[Any]:
    info = msgspec.inspect.type_info(struct)
    assert isinstance(info, StructType)
    fields = {}
    for field in info.fields:
        special = SPECIAL.get((struct, field.name))
        fields[field.name] = values(field.type, field.default is None) if special is None else special
    return st.builds(struct, **fields)


def values(type_: Type, optional: bool = False) -> st.SearchStrategy[Any]:
    shape = shape_of(type_)
    options = [value_of(kind, shape.unit) for kind in shape.kinds]
    return st.one_of(*options, *[st.none()] * optional)


def value_of(kind: Type, unit: str) -> st.SearchStrategy[Any]:
    match kind:
        case IntType():
            return st.integers(kind.ge if kind.ge is not None else -(2**63), kind.le if kind.le is not None else 2**62)
        case FloatType():
            most = kind.le if kind.le is not None else 1e15 if unit else None
            return st.floats(kind.ge, most, allow_nan=False, allow_infinity=False)
        case LiteralType():
            return st.sampled_from(kind.values)
        case EnumType():
            return st.sampled_from(list(kind.cls))
        case ListType():
            return st.lists(values(kind.item_type), max_size=2)
        case DictType():
            return st.dictionaries(TEXT.map("name {}".format), values(kind.value_type), max_size=2)
        case StructType():
            return of(kind.cls)
    return {StrType: TEXT, BoolType: st.booleans(), AnyType: ANYTHING}[type(kind)]


@given(of(Config))
@settings(
    max_examples=30,
    suppress_health_check=[*TIMING_CHECKS, HealthCheck.function_scoped_fixture],
)
def test_the_effective_configuration_reads_back_the_same(file: Path, config: Config) -> None:
    file.write_bytes(effective(config).encode())
    secrets = [key.key for key in config.auth.keys] + [backend.api_key for backend in config.backends.values()]
    secrets += [source.api_key for source in config.discovery.values()] + [config.limits.url]
    secrets += config.telemetry.headers.values()
    assert load_config(file, {name: name for name in secrets}).config == config
    written = effective_data(config)
    file.write_bytes(page(written, changed(written)).encode())
    assert load_config(file, {name: name for name in secrets}).config == config


def test_the_effective_configuration_is_written_as_people_write(load: Load) -> None:
    text = """
    [server]
    max_body = 67108864
    drain_timeout = "60s"
    [backends.gpu-1]
    url = "http://h"
    role = "decode"
    [plugins.cache]
    entries = 3
    """
    shown = effective(load(text).config)
    for line in ('max_body = "64MiB"', 'drain_timeout = "1m"', 'role = "decode"', "[plugins.cache]", "entries = 3"):
        assert line in shown.splitlines()
    assert "parameters" not in shown
    assert "null" not in shown.lower()


def test_a_plugin_may_have_any_name(load: Load) -> None:
    config = load("[plugins.parameters]\nx = 1").config
    assert config.plugins.parameters == {"parameters": {"x": 1}}
    assert load(effective(config)).config == config


def test_the_json_schema_takes_durations_and_sizes_as_text() -> None:
    definitions = json_schema()["$defs"]
    duration = definitions["ServerSettings"]["properties"]["drain_timeout"]
    size = definitions["HostSettings"]["properties"]["memory"]
    assert (duration["type"], duration["default"]) == ("string", "30s")
    assert duration["description"] == "time for live requests to finish when the gateway stops"
    assert (size["type"], "default" in size) == ("string", False)
    assert size["examples"]
    for text in ("500ms", "1.5m", "0"):
        assert re.search(duration["pattern"], text)
    for text in ("30", "-1s", "1 year"):
        assert not re.search(duration["pattern"], text)
    for text in ("24GiB", "1.5 MB", "7B", "7"):
        assert re.search(size["pattern"], text)
    for text in ("6GiBB", "-1B", "GiB"):
        assert not re.search(size["pattern"], text)


def test_the_json_schema_knows_no_null() -> None:
    def nulls(schema: Any) -> bool:
        if isinstance(schema, dict):
            return schema.get("type") == "null" or any(map(nulls, schema.values()))
        return schema is None or (isinstance(schema, list) and any(map(nulls, schema)))

    assert not nulls(json_schema())


def test_the_json_schema_takes_tables_of_plugins_and_nothing_else_that_is_unknown() -> None:
    definitions = json_schema()["$defs"]
    assert definitions["PluginSettings"]["additionalProperties"]["type"] == "object"
    assert "parameters" not in definitions["PluginSettings"]["properties"]
    assert definitions["ServerSettings"]["additionalProperties"] is False
    assert definitions["BackendSettings"]["required"] == ["url"]
    assert [option["type"] for option in definitions["BackendSettings"]["properties"]["models"]["anyOf"]] == [
        "array",
        "object",
    ]


@pytest.mark.parametrize("struct", [kind for field in config_type().fields for kind in shape_of(field.type).kinds])
def test_every_key_has_a_description(struct: Type) -> None:
    kind = struct.value_type if isinstance(struct, DictType) else struct
    if isinstance(kind, ListType):  # `guards`: names, or tables
        kind = shape_of(kind.item_type).kinds[-1]
    if isinstance(kind, BoolType | DictType | AnyType):  # switches of `[compat]`; `[services]` and the keys of plugins
        return
    assert isinstance(kind, StructType)
    undescribed = [
        field.name
        for field in kind.fields
        if not shape_of(field.type).description and not isinstance(shape_of(field.type).kinds[0], StructType)
    ]
    assert undescribed == []
