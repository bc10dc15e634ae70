from __future__ import annotations

import pytest

from enginehouse.config.schema import TimeoutSettings
from tests.support.imported_config import Import


def test_a_server_elsewhere_is_a_backend(imported: Import) -> None:
    config, notes, _ = imported("""
    startPort: 9000
    models:
      a: {cmd: "llama-server --port ${PORT}"}
      b: {cmd: "ssh gpu vllm serve x --port ${PORT}", proxy: "http://gpu:${PORT}", timeouts: {connect: 9}, ttl: 5}
    """)
    backend = config.backends["b"]
    assert (backend.url, backend.driver, backend.models) == ("http://gpu:9001", "vllm", ["b"])
    assert backend.timeouts == TimeoutSettings(connect=9)
    assert "b" not in config.models
    assert "start it yourself" in notes["models.b.cmd"]
    assert "models.b.ttl" in notes


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.0.1", "[::1]", "0.0.0.0"])
def test_a_fixed_port_here_is_left_to_the_gateway(host: str, imported: Import) -> None:
    config, notes, _ = imported(f"""
    models: {{m: {{cmd: "llama-server --port 8999 -m x", proxy: "http://{host}:8999"}}}}
    """)
    assert config.models["m"].command == "llama-server --port ${port} -m x"
    assert "chooses the port" in notes["models.m.cmd"]


def test_an_engine_without_a_place_for_its_port_is_not_launched(imported: Import) -> None:
    config, notes, _ = imported('models: {m: {cmd: ./start.sh, proxy: "http://localhost:8999"}}')
    assert config.backends["m"].url == "http://localhost:8999"
    assert "start it yourself" in notes["models.m.cmd"]


def test_a_model_has_progress_only_where_it_differs_from_the_default(imported: Import) -> None:
    config, notes, _ = imported("""
    sendLoadingState: true
    models:
      a: {cmd: "llama-server --port ${PORT}", sendLoadingState: true}
      b: {cmd: "llama-server --port ${PORT}", sendLoadingState: false}
    """)
    assert (config.scheduling.progress, config.scheduling.progress_patience) == ("reasoning", 0)
    assert {name: model.progress for name, model in config.models.items()} == {"a": None, "b": "off"}
    assert list(notes) == ["sendLoadingState"]
    assert notes["sendLoadingState"].startswith("reported within half a second")


def test_a_model_that_is_nowhere_is_left_out_with_all_that_names_it(imported: Import) -> None:
    config, notes, warnings = imported("""
    models: {m: {cmd: ./start.sh, aliases: [n], filters: {setParamsByID: {o: {a: 1}}}}}
    groups: {g: {members: [m]}}
    """)
    assert (config.models, config.backends, config.routing.aliases, config.scheduling.groups) == ({}, {}, {}, {})
    assert "neither a command that can be launched nor a URL" in notes["models.m"]
    assert warnings == ()


def test_a_model_is_called_as_its_engine_calls_it(imported: Import) -> None:
    config, _, _ = imported("""
    models:
      qwen:
        cmd: vllm serve Qwen/Qwen3 --port ${PORT} --log ${MODEL_ID}.log
        useModelName: Qwen/Qwen3
        aliases: [Qwen/Qwen3, q]
        filters: {setParams: {a: 1}, setParamsByID: {qwen: {b: 2}}}
    """)
    assert config.routing.aliases == {"q": "Qwen/Qwen3", "qwen": "Qwen/Qwen3"}
    assert config.models["Qwen/Qwen3"].command.endswith("--log qwen.log")
    assert config.models["Qwen/Qwen3"].filters.set == {"a": 1}
    assert config.models["qwen"].filters.set == {"b": 2}


@pytest.mark.parametrize(
    "others",
    [
        "b: {cmd: 'x ${PORT}', useModelName: real}",
        "real: {cmd: 'x ${PORT}'}",
        "b: {cmd: 'x ${PORT}', aliases: [real]}",
    ],
)
def test_two_models_are_never_called_the_same(others: str, imported: Import) -> None:
    text = f"models: {{a: {{cmd: 'x ${{PORT}}', useModelName: real}}, {others}}}"
    config, notes, _ = imported(text)
    assert config.models["a"].launches
    assert 'so the engine receives "a"' in notes["models.a.useModelName"]


def test_a_model_is_not_called_as_a_peers_model(imported: Import) -> None:
    config, notes, _ = imported("""
    models: {a: {cmd: 'x ${PORT}', useModelName: real}}
    peers: {p: {proxy: 'http://h', models: [real]}}
    """)
    assert [*config.models] == ["a"]
    assert "models.a.useModelName" in notes


def test_parameters_for_the_models_own_id_apply_to_all_requests(imported: Import) -> None:
    config, notes, _ = imported("""
    models:
      m:
        cmd: llama-server --port ${PORT}
        filters:
          setParams: {a: 1, b: 1}
          setParamsByID: {m: {b: 2}, "m:x": {b: 3}}
    """)
    assert config.models["m"].filters.set == {"a": 1, "b": 2}
    assert config.models["m:x"].filters.set == {"b": 3}
    assert "models.m.filters.setParamsByID.m" in notes


def test_an_unknown_macro_stays_and_is_noted(imported: Import) -> None:
    config, notes, _ = imported("""
    macros: {later: "${last}", last: 1, "${odd}": 2}
    models: {m: {cmd: "llama-server --port ${PORT} ${later} ${gone} # ${fine}", ttl: 0}}
    """)
    assert "${gone}" in config.models["m"].command
    assert all(f"${{{name}}}" in notes["models.m"] for name in ("gone", "last", "fine"))


def test_a_macro_in_a_comment_of_a_command_is_none(imported: Import) -> None:
    config, notes, _ = imported("""
    models:
      m:
        cmd: |
          # ${gone} --port ${PORT}
          llama-server
            # and ${gone}
            -m x
        proxy: http://localhost:1234
    """)
    assert config.models["m"].command.split() == ["llama-server", "-m", "x", "--port", "${port}"]
    assert [*notes] == ["models.m.cmd"]
