from __future__ import annotations

from collections.abc import Callable

import pytest

from enginehouse.config.routing import Alias, read_alias
from enginehouse.config.schema import Config, TimeoutSettings
from enginehouse_importers.kit.table import UNKNOWN
from enginehouse_importers.llama_swap.convert import convert
from tests.support.imported_config import Import

BASE = """
models:
  one: {cmd: "llama-server --port ${PORT}"}
  two: {cmd: "llama-server --port ${PORT}"}
"""

Carried = Callable[[Config], object]
MATRIX = ("matrix", "one & two")
CARRIED: list[tuple[str, Carried]] = [
    ("healthCheckTimeout: 30", lambda c: c.models["one"].start_timeout == 30),
    ("healthCheckTimeout: 1", lambda c: c.models["one"].start_timeout == 15),
    ("logLevel: warn", lambda c: c.telemetry.log_level == "warning"),
    ("globalTTL: 90", lambda c: c.models["two"].ttl == 90),
    ("unloadTimeout: 20", lambda c: c.models["one"].stop_timeout == 20),
    ("sendLoadingState: true", lambda c: (c.scheduling.progress, c.models["one"].progress) == ("reasoning", None)),
    ("sendLoadingState: false", lambda c: c.scheduling.progress == "off"),
    ("macros: {x: 1}\nglobalTTL: ${x}", lambda c: c.models["one"].ttl == 1),
    ("apiKeys: [secret]", lambda c: c.auth.keys[0].key == "secret" and c.auth.keys[0].admin),
    ("hooks: {on_startup: {preload: [two]}}", lambda c: c.models["two"].preload and not c.models["one"].preload),
    (
        "groups: {g: {members: [one, two], swap: false, exclusive: false, persistent: true}}",
        lambda c: (g := c.scheduling.groups["g"]).members == ["one", "two"] and not g.swap and g.persistent,
    ),
    ("groups: {g: {members: [one], exclusive: false}}", lambda c: not c.scheduling.groups["g"].exclusive),
    ("matrix: {sets: {s: one & two}}", lambda c: (c.scheduling.swapper, c.scheduling.matrix.sets["s"]) == MATRIX),
    ("matrix: {vars: {o: one}, sets: {s: o}}", lambda c: c.scheduling.matrix.vars == {"o": "one"}),
    ("matrix: {evict_costs: {one: 7}, sets: {s: one}}", lambda c: c.scheduling.matrix.costs == {"one": 7}),
    (
        "routing: {router: {use: matrix, settings: {matrix: {sets: {s: one & two}}}}}",
        lambda c: (c.scheduling.swapper, c.scheduling.matrix.sets["s"]) == MATRIX,
    ),
    (
        "routing: {router: {use: group, settings: {groups: {g: {members: [two]}}, matrix: {sets: {s: one}}}}}",
        lambda c: c.scheduling.swapper == "group" and c.scheduling.groups["g"].members == ["two"],
    ),
    (
        "routing: {scheduler: {use: fifo, settings: {fifo: {priority: {one: 5}}}}}",
        lambda c: c.scheduling.priorities == {"one": 5},
    ),
    ("peers: {p: {proxy: 'http://h:1/x/', models: [far]}}", lambda c: c.backends["p"].url == "http://h:1/x"),
    ("peers: {p: {proxy: 'http://h', models: [a, b/c]}}", lambda c: c.backends["p"].models == ["a", "b/c"]),
    ("peers: {p: {proxy: 'http://h', models: [b/c]}}", lambda c: c.routing.aliases == {"p/b/c": "b/c"}),
    ("peers: {p: {proxy: 'http://h', models: [a], apiKey: s}}", lambda c: c.backends["p"].api_key == "s"),
    (
        "peers: {p: {proxy: 'http://h', models: [a], filters: {stripParams: x, setParams: {y: 1}}}}",
        lambda c: c.models["a"].filters.strip == ["x"] and c.models["a"].filters.set == {"y": 1},
    ),
    (
        "peers: {p: {proxy: 'http://h', models: [a], timeouts: {connect: 3, responseHeader: 0}}}",
        lambda c: c.backends["p"].timeouts == TimeoutSettings(connect=3, first_byte=0),
    ),
    (
        "peers: {p: {proxy: 'http://h', models: [a], filters: {setParams: {y: 1}, setParamsByID: {a: {x: 1}}}}}",
        lambda c: c.models["a"].filters.set == {"y": 1, "x": 1},
    ),
    ("upstream: {ignorePaths: ['\\.css$']}", lambda c: c.scheduling.never_load_for == ["\\.css$"]),
    (
        "selectors: {s: {strategy: warm, targets: [two, one]}}",
        lambda c: read_alias(c.routing.aliases["s"]) == Alias(("two", "one"), (), "loaded"),
    ),
    (
        "selectors: {s: {strategy: spillover, targets: [two, one]}}",
        lambda c: read_alias(c.routing.aliases["s"]) == Alias(("two", "one"), (), "free"),
    ),
    (
        "selectors: {s: {strategy: warm, targets: [one], name: x, description: y, unlisted: true, metadata: {z: 1}}}",
        lambda c: (
            (
                (s := c.models["s"]).name,
                s.description,
                s.unlisted,
                s.metadata,
            )
            == ("x", "y", True, {"llamaswap": {"z": 1}})
        ),
    ),
    ("globalTTL: 0", lambda c: (c.server.cors, c.compat) == (["*"], {"llama_swap": True})),
    ("selectors: {s: {strategy: pin, targets: [two, one]}}", lambda c: c.routing.aliases["s"] == "two"),
    (
        "peers: {p: {proxy: 'http://h', models: [a]}}\nselectors: {s: {strategy: pin, targets: [p/a]}}",
        lambda c: c.routing.aliases["s"] == "a",
    ),
]

CARRIED_OF_A_MODEL: list[tuple[str, Carried]] = [
    ("cmd: vllm serve x --port ${PORT}", lambda c: c.models["m"].command == "vllm serve x --port ${port}"),
    ("cmdStop: kill ${PID}", lambda c: c.models["m"].stop_command == "kill ${pid}"),
    ("checkEndpoint: /ready", lambda c: c.models["m"].health_path == "/ready"),
    ("checkEndpoint: is it/réady?a=b c", lambda c: c.models["m"].health_path == "/is%20it/r%C3%A9ady?a=b%20c"),
    ("checkEndpoint: none", lambda c: c.models["m"].health_path == "none"),
    ("checkEndpoint: /health", lambda c: c.models["m"].health_path == ""),
    ("cmd: my-engine --port ${PORT}", lambda c: c.models["m"].health_path == "/health"),
    ("cmd: my-engine --port ${PORT}\n    checkEndpoint: /v1/models", lambda c: c.models["m"].health_path == ""),
    ("proxy: 'http://10.0.0.1:1'", lambda c: c.backends["m"].url == "http://10.0.0.1:1"),
    ("ttl: 600", lambda c: c.models["m"].ttl == 600),
    ("unloadTimeout: 4", lambda c: c.models["m"].stop_timeout == 4),
    ("env: ['A=1=2', 'B=']", lambda c: c.models["m"].env == {"A": "1=2", "B": ""}),
    ("aliases: [n, {id: o}]", lambda c: c.routing.aliases == {"n": "m", "o": "m"}),
    ("useModelName: real", lambda c: c.routing.aliases == {"m": "real"} and c.models["real"].command),
    ("concurrencyLimit: 3", lambda c: c.models["m"].concurrency == 3),
    ("filters: {stripParams: 'b, a ,model, b'}", lambda c: c.models["m"].filters.strip == ["b", "a"]),
    ("filters: {strip_params: 'a'}", lambda c: c.models["m"].filters.strip == ["a"]),
    ("filters: {setParams: {a: {b: [1, x]}}}", lambda c: c.models["m"].filters.set == {"a": {"b": [1, "x"]}}),
    (
        "filters: {setParamsByID: {'${MODEL_ID}:x': {a: 1}}}",
        lambda c: c.routing.aliases == {"m:x": "m"} and c.models["m:x"].filters.set == {"a": 1},
    ),
    (
        "sendLoadingState: true",
        lambda c: (c.models["m"].progress, c.scheduling.progress_patience) == ("reasoning", 0),
    ),
    ("sendLoadingState: false", lambda c: c.models["m"].progress is None),
    ("macros: {n: 5}\n    ttl: ${n}", lambda c: c.models["m"].ttl == 5),
    (
        "timeouts: {connect: 7, responseHeader: 8}",
        lambda c: c.models["m"].timeouts == TimeoutSettings(connect=7, first_byte=8),
    ),
    ("capabilities: {in: [text, image]}", lambda c: c.models["m"].vision is True),
    ("metadata: {a: '${PORT}', b: [1]}", lambda c: c.models["m"].metadata == {"llamaswap": {"a": 5800, "b": [1]}}),
    (
        "capabilities: {in: [text, audio], out: [audio], reranker: true}",
        lambda c: (
            c.models["m"].metadata
            == {
                "architecture": {"input_modalities": ["text", "audio"], "output_modalities": ["audio"]},
                "capabilities": {"reranker": True},
            }
        ),
    ),
    ("capabilities: {in: [text]}", lambda c: c.models["m"].vision is None),
    (
        "capabilities: {tools: true, context: 99}",
        lambda c: (c.models["m"].tools, c.models["m"].context_length) == (True, 99),
    ),
]

NOTED = [
    ("startPort: 10", "startPort"),
    ("logTimeFormat: kitchen", "logTimeFormat"),
    ("logToStdout: both", "logToStdout"),
    ("logRequests: true", "logRequests"),
    ("metricsMaxInMemory: 5", "metricsMaxInMemory"),
    ("captureBuffer: 5", "captureBuffer"),
    ("store: {path: x.db}", "store"),
    ("ui: {activity: {session_id: [x]}}", "ui"),
    ("performance: {disabled: true, every: 5s}", "performance"),
    ("sendLoadingState: true", "sendLoadingState"),
    ("includeAliasesInList: true", "includeAliasesInList"),
    ("profiles: {p: {pins: {a: one}}}", "profiles"),
    (
        "selectors: {s: {strategy: spillover, settings: {spillover: 2}, targets: [one]}}",
        "selectors.s.settings.spillover",
    ),
    ("upstream: {ignorePaths: ['(?P<']}", "upstream.ignorePaths[0]"),
    ("selectors: {s: {strategy: pin, targets: [gone]}}", "selectors.s"),
    ("selectors: {one: {strategy: pin, targets: [two]}}", "selectors.one"),
    ("routing: {scheduler: {use: other}}", "routing.scheduler.use"),
    (
        "routing: {scheduler: {settings: {fifo: {priority: {gone: 1}}}}}",
        "routing.scheduler.settings.fifo.priority.gone",
    ),
    ("routing: {router: {use: matrix}}", "routing.router.settings.matrix"),
    ("groups: {g: {members: [gone, one]}}", "groups.g.members[0]"),
    ("groups: {g: {members: []}}", "groups.g"),
    ("routing: {router: {use: group}}\ngroups: {g: {members: [one]}}", "groups"),
    ("matrix: {vars: {x: gone}, sets: {s: one}}", "matrix.vars.x"),
    ("matrix: {evict_costs: {gone: 4}, sets: {s: one}}", "matrix.evict_costs.gone"),
    ("matrix: {sets: {s: one, t: gone | one}}", "matrix.sets.t"),
    ("hooks: {on_startup: {preload: [gone]}}", "hooks.on_startup.preload[0]"),
    ("peers: {p: {models: [a]}}", "peers.p"),
    ("peers: {p: {proxy: 'ftp://h', models: [a]}}", "peers.p.proxy"),
    ("peers: {p: {proxy: 'http://h', models: [one]}}", "peers.p.models[0]"),
    ("peers: {p: {proxy: 'http://h', models: [a], timeouts: {idleConn: 1}}}", "peers.p.timeouts.idleConn"),
    (
        "peers: {p: {proxy: 'http://h', models: [a], filters: {setParamsByID: {b: {x: 1}}}}}",
        "peers.p.filters.setParamsByID.b",
    ),
    ("peers: {one: {proxy: 'http://h', models: [a]}}", "peers.one"),
    ("apiKeys: ['a-${env.PART}']", "apiKeys[0]"),
    ("peers: {p: {proxy: '${gone}', models: [a]}}", "peers"),
]

NOTED_OF_A_MODEL = [
    ("metadata: {a: null}", "metadata.a"),
    ("capabilities: {in: [audio]}", "capabilities.in"),
    ("cmd: whisper-server -m w.bin --port ${PORT}", "cmd"),
    ("sendLoadingState: true", "sendLoadingState"),
    ("compat: {ignoreWebsockets: true}", "compat"),
    ("healthCheckTimeout: 40", "healthCheckTimeout"),
    ("checkEndpoint: none", "checkEndpoint"),
    ("concurrencyLimit: 3", "concurrencyLimit"),
    ("capabilities: {out: [audio]}", "capabilities.out"),
    ("capabilities: {reranker: true}", "capabilities.reranker"),
    ("capabilities: {context: 9}", "capabilities.context"),
    ("timeouts: {keepalive: 1}", "timeouts.keepalive"),
    ("timeouts: {tlsHandshake: 1}", "timeouts.tlsHandshake"),
    ("timeouts: {expectContinue: 1}", "timeouts.expectContinue"),
    ("timeouts: {idleConn: 1}", "timeouts.idleConn"),
    ("env: [NOTHING]", "env[0]"),
    ("aliases: [{id: n, name: En, unlisted: true}]", "aliases[0]"),
    ("aliases: ['']", "aliases[0]"),
    ("useModelName: one", "useModelName"),
    ("filters: {setParams: {model: x}}", "filters.setParams.model"),
    ("filters: {setParams: {a: null, b: [1, null]}}", "filters.setParams.b"),
    ("filters: {setParams: {a.0.b: 1}}", 'filters.setParams."a.0.b"'),
    ("filters: {stripParams: 'a.*'}", "filters.stripParams"),
    ("filters: {setParamsByID: {m: {a: 1}}}", "filters.setParamsByID.m"),
    ("proxy: 'http://localhost:77'", "proxy"),
    ("proxy: 'http://localhost:${PORT}/api'", "proxy"),
    ("cmd: C:\\llama\\llama-server.exe --port ${PORT}", "cmd"),
    ("cmd: llama-server --port ${PORT} ${env.ARGS}", "cmd"),
    ("cmd: my-engine --port ${PORT}", "cmd"),
]


def with_model(snippet: str) -> str:
    command = "" if snippet.startswith("cmd: ") else '    cmd: "llama-server --port ${PORT}"\n'
    return f"{BASE}  m:\n{command}    {snippet}\n"


@pytest.mark.parametrize(("snippet", "carried"), CARRIED, ids=[snippet for snippet, _ in CARRIED])
def test_a_key_is_carried_over(snippet: str, carried: Carried, imported: Import) -> None:
    assert carried(imported(f"{BASE}\n{snippet}\n").config)


@pytest.mark.parametrize(("snippet", "carried"), CARRIED_OF_A_MODEL, ids=[each for each, _ in CARRIED_OF_A_MODEL])
def test_a_models_key_is_carried_over(snippet: str, carried: Carried, imported: Import) -> None:
    assert carried(imported(with_model(snippet)).config)


@pytest.mark.parametrize(("snippet", "key"), NOTED)
def test_a_key_is_noted(snippet: str, key: str, imported: Import) -> None:
    without, notes = imported(BASE).notes, imported(f"{BASE}\n{snippet}\n").notes
    assert key in notes
    assert key not in without
    assert UNKNOWN not in notes.values()


@pytest.mark.parametrize(("snippet", "key"), NOTED_OF_A_MODEL)
def test_a_models_key_is_noted(snippet: str, key: str, imported: Import) -> None:
    notes = imported(with_model(snippet)).notes
    assert f"models.m.{key}" in notes
    assert UNKNOWN not in notes.values()


LAUNCH_KEYS = [
    "ttl: 5",
    "unloadTimeout: 5",
    "cmdStop: x",
    "env: [A=1]",
    "concurrencyLimit: 5",
    "checkEndpoint: /x",
    "sendLoadingState: true",
]


@pytest.mark.parametrize("snippet", LAUNCH_KEYS)
def test_settings_of_launched_engines_are_noted_for_other_engines(snippet: str, imported: Import) -> None:
    notes = imported(f"models:\n  m:\n    proxy: http://10.0.0.1:80\n    {snippet}\n").notes
    assert list(notes) == [f"models.m.{snippet.partition(':')[0]}"]


UNKNOWN_KEYS = [
    ("typo: 1", "typo"),
    ("models: {m: {cmd: 'llama-server --port ${PORT}', typo: 1}}", "models.m.typo"),
    ("hooks: {on_stop: {}}", "hooks.on_stop"),
    ("hooks: {on_startup: {typo: 1}}", "hooks.on_startup.typo"),
    ("peers: {p: {proxy: 'http://h', models: [a], typo: 1}}", "peers.p.typo"),
    ("peers: {p: {proxy: 'http://h', models: [a], filters: {typo: 1}}}", "peers.p.filters.typo"),
    ("peers: {p: {proxy: 'http://h', models: [a], timeouts: {typo: 1}}}", "peers.p.timeouts.typo"),
    ("models: {m: {cmd: 'llama-server --port ${PORT}', capabilities: {typo: 1}}}", "models.m.capabilities.typo"),
    ("groups: {g: {typo: 1}}", "groups.g.typo"),
    ("matrix: {typo: 1}", "matrix.typo"),
    ("routing: {typo: 1}", "routing.typo"),
    ("routing: {router: {typo: 1}}", "routing.router.typo"),
    ("routing: {router: {settings: {typo: 1}}}", "routing.router.settings.typo"),
    ("routing: {scheduler: {typo: 1}}", "routing.scheduler.typo"),
    ("routing: {scheduler: {settings: {typo: 1}}}", "routing.scheduler.settings.typo"),
    ("routing: {scheduler: {settings: {fifo: {typo: 1}}}}", "routing.scheduler.settings.fifo.typo"),
    ("selectors: {s: {strategy: pin, targets: [x], typo: 1}}", "selectors.s.typo"),
]


@pytest.mark.parametrize(("text", "key"), UNKNOWN_KEYS)
def test_an_unknown_key_is_noted(text: str, key: str, imported: Import) -> None:
    assert imported(text).notes[key] == UNKNOWN


WRONG_TYPES = [
    ("globalTTL: soon", "globalTTL", "a whole number of 0 or more"),
    ("globalTTL: -4", "globalTTL", "a whole number of 0 or more"),
    ("sendLoadingState: sometimes", "sendLoadingState", "true or false"),
    ("globalTTL: [1]", "globalTTL", "one value"),
    ("globalTTL: ${env.TTL}", "globalTTL", "a whole number of 0 or more"),
    ("groups: {g: {swap: maybe, members: []}}", "groups.g.swap", "true or false"),
    ("apiKeys: text", "apiKeys", "a list"),
    ("apiKeys: [{a: 1}]", "apiKeys", "a list of texts"),
    ("models: [a]", "models", "a table"),
    ("models: {m: text}", "models.m", "a table"),
    ("peers: {p: 1}", "peers.p", "a table"),
    ("hooks: {on_startup: [x]}", "hooks.on_startup", "a table"),
]


@pytest.mark.parametrize(("text", "key", "expected"), WRONG_TYPES)
def test_a_value_of_the_wrong_type_is_noted(text: str, key: str, expected: str, imported: Import) -> None:
    assert imported(text).notes[key].startswith(f"left out: expected {expected}")


def test_no_note_contains_a_secret() -> None:
    text = """
    apiKeys: [hush-1, 'hush-2-${env.X}']
    peers:
      p: {proxy: 'http://u:hush-3@h', apiKey: hush-4, models: [a]}
      q: {proxy: 'http://h', apiKey: hush-5, models: [b]}
    models: {m: {cmd: 'x --port ${PORT} --key hush-6', proxy: 'hush-7', env: ['hush-8']}}
    """
    notes = convert(text).notes
    assert len(notes) >= 8
    assert "hush" not in str(notes)


def test_a_dollar_in_a_secret_is_no_variable() -> None:
    text = """
    apiKeys: [$ecret, '${env.TEAM_KEY}']
    peers: {p: {proxy: 'http://h', apiKey: $ecret, models: [a]}}
    models: {m: {cmd: 'x --port ${PORT}'}}
    """
    config = convert(text).config
    assert [key["key"] for key in config["auth"]["keys"]] == ["$ecret", "env:TEAM_KEY"]
    assert config["backends"]["p"]["api_key"] == "$ecret"
