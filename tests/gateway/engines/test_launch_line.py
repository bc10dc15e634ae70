from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enginehouse import ConfigError, Role
from enginehouse.config.schema import ModelSettings
from enginehouse.drivers import LaunchSpec
from enginehouse.engines.launch_line import LaunchRules, ModelLaunch, fingerprint, launch_line, launch_spec
from enginehouse.interfaces.driver_support import support_of
from enginehouse.launchers import LaunchLine, Place
from enginehouse_llamacpp import LlamaCppDriver
from enginehouse_openai import OpenAIDriver
from enginehouse_sglang import SglangDriver
from enginehouse_sim import SimDriver
from enginehouse_vllm import VllmDriver

PLAIN = support_of(OpenAIDriver()).launch
"""What stands in for the launch of a driver that knows none."""


def _line(environ: Mapping[str, str] | None = None, **model: Any) -> LaunchLine:
    return launch_line("qwen:7b", ModelSettings(**model), PLAIN, 4711, environ or {})


def _command(command: str) -> Sequence[str]:
    return _line(command=command, path="/models/a file.gguf").command


def test_a_given_command_is_split_and_filled_in_without_a_shell() -> None:
    command = _command("""engine --model ${path} --as "${model} now" --listen=127.0.0.1:${port} '; rm $HOME'""")
    assert command == [
        "engine", "--model", "/models/a file.gguf", "--as", "qwen:7b now", "--listen=127.0.0.1:4711", "; rm $HOME",
    ]  # fmt: skip


def test_arguments_are_added_behind_and_filled_in_too() -> None:
    line = _line(command="engine", args=["--name", "${model} and more"])
    assert line.command == ["engine", "--name", "qwen:7b and more"]


def test_environment_variables_are_filled_in() -> None:
    line = _line({"TOKEN": "a b"}, command="engine ${env:TOKEN}", env={"KEY": "x${env:TOKEN}"})
    assert line.command == ["engine", "a b"]
    assert line.environment == {"KEY": "xa b"}


def test_the_numbers_of_gpus_are_those_of_the_driver() -> None:
    launch = ModelLaunch("m", ModelSettings(command="engine"), PLAIN)
    assert launch.line(Place(port=1), "0,2").environment == {
        "CUDA_VISIBLE_DEVICES": "0,2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }  # fmt: skip
    assert launch.line(Place(port=1)).environment == {}


@pytest.mark.parametrize("driver", [VllmDriver(), SglangDriver(), SimDriver()])
def test_an_engine_is_told_where_to_publish_its_events(driver: VllmDriver | SglangDriver | SimDriver) -> None:
    launch = support_of(driver).launch
    first, second = (
        ModelLaunch("m", ModelSettings(path="/m", kv_events=True), launch, backend=backend).line(Place(port=1)).command
        for backend in ("m", "m-2")
    )
    assert first[-2] == "--kv-events-config"
    sockets = msgspec.json.decode(first[-1])
    assert sockets["enable_kv_cache_events"]
    assert sockets["endpoint"].startswith("ipc://")
    assert first[-1] != second[-1]
    assert "--kv-events-config" not in launch_line("m", ModelSettings(path="/m"), launch, 1).command


def test_a_launch_line_that_publishes_no_events_is_refused() -> None:
    line = _line(command="engine --events ${kv_events}", kv_events=True)
    assert '"publisher":"zmq"' in line.command[-1]
    with pytest.raises(ConfigError, match="kv_events"):
        _line(command="engine", kv_events=True)
    ranks = ModelSettings(path="/m", kv_events=True, options={"data_parallel_size": 2})
    with pytest.raises(ConfigError, match="kv_events"):
        launch_line("m", ranks, support_of(VllmDriver()).launch, 1)


def test_without_a_command_the_driver_builds_the_line() -> None:
    model = ModelSettings(driver="llamacpp", path="/m/q.gguf", context_length=4096, args=["-ngl", "99"])
    line = launch_line("qwen:7b", model, LlamaCppDriver(), 4711)
    assert line.command[:3] == ["llama-server", "-m", "/m/q.gguf"]
    assert line.command[-4:] == ["-c", "4096", "-ngl", "99"]
    assert line.port == 4711


def test_a_path_may_begin_at_home() -> None:
    assert _line(command="engine ${path}", path="~/m.gguf").command == ["engine", str(Path.home() / "m.gguf")]


def test_the_configured_environment_wins_over_the_drivers() -> None:
    class Opinionated(LlamaCppDriver):
        def environment(self, spec: LaunchSpec) -> Mapping[str, str]:
            return {"A": "driver", "B": f"driver {spec.port}"}

    line = launch_line("m", ModelSettings(command="engine", env={"A": "user"}), Opinionated(), 4711)
    assert line.environment == {"A": "user", "B": "driver 4711"}


def test_the_stop_command_may_name_the_process() -> None:
    line = _line(command="engine", stop_command="stop --port ${port} --pid=${pid}")
    assert line.stop_command == ["stop", "--port", "4711", "--pid=${pid}"]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"command": "engine ${prot}"}, r"models.qwen:7b.command: unknown placeholder \$\{prot\} .*\$\{port\}"),
        ({"command": "engine", "args": ["${pid}"]}, r"models.qwen:7b.args: unknown placeholder"),
        ({"command": "engine", "env": {"A": "${x}"}}, r"models.qwen:7b.env.A: unknown placeholder"),
        ({"command": "engine ${env:NOWHERE}"}, r"models.qwen:7b.command: .* NOWHERE is not set"),
        ({"command": "engine 'open"}, r"models.qwen:7b.command: cannot be split"),
        ({"command": "engine", "stop_command": "${nope}"}, r"models.qwen:7b.stop_command: unknown placeholder"),
        ({"driver": "openai", "path": "x"}, r"models.qwen:7b: the driver 'openai' has no launch line .*command"),
    ],
)
def test_a_line_that_cannot_be_built_names_its_key(model: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _line(**model)


def test_a_fingerprint_tells_what_is_launched_apart_and_nothing_of_it() -> None:
    secret: dict[str, Any] = {"command": "engine", "env": {"TOKEN": "s3cret", "A": "1"}}
    line = _line(**secret)
    same = _line(command="engine", env={"A": "1", "TOKEN": "s3cret"}, stop_command="stop", ttl=5)
    changes: list[dict[str, Any]] = [{"command": "engine -v"}, {"args": ["-v"]}, {"env": {}}]
    others = [_line(**{**secret, **change}) for change in changes]
    assert fingerprint(line) == fingerprint(same)
    assert fingerprint(line) not in {fingerprint(other) for other in others}
    assert "s3cret" not in fingerprint(line)


@pytest.mark.parametrize(("idle", "sleep"), [("stop", False), ("sleep", True)])
def test_the_driver_hears_whether_the_engine_is_to_sleep(idle: Any, sleep: bool) -> None:
    class Attentive(LlamaCppDriver):
        def command(self, spec: LaunchSpec) -> list[str]:
            return ["engine", str(spec.sleep)]

    assert launch_line("m", ModelSettings(driver="x", idle=idle), Attentive(), 4711).command == ["engine", str(sleep)]


@pytest.mark.parametrize(
    ("role", "adaptive_pd", "hands_over"),
    [("neutral", False, False), ("prefill", False, True), ("decode", False, True), ("neutral", True, True)],
)
def test_the_driver_hears_whether_prompts_are_handed_over(role: str, adaptive_pd: bool, hands_over: bool) -> None:
    model, rules = ModelSettings(driver="x", role=Role(role)), LaunchRules(adaptive_pd=adaptive_pd)
    assert launch_spec("m", model, PLAIN, rules=rules).hands_over is hands_over


def test_a_launch_line_withholds_what_is_a_secret_of_others() -> None:
    environ = {"OWN": "1", "OTHERS": "2", "ENGINEHOUSE_KEY": "3", "PATH": "/bin"}
    model = ModelSettings(command="engine ${env:OWN}", env={"A": "user"})
    line = launch_line("m", model, PLAIN, 4711, environ, LaunchRules(secrets=frozenset({"OWN", "OTHERS"})))
    assert line.environment_on(environ) == {"OWN": "1", "PATH": "/bin", "A": "user"}
    assert fingerprint(line) == fingerprint(launch_line("m", model, PLAIN, 4711, environ))
