"""A configuration of each program in its public schema, with every key that the importer knows."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest
import tomli_w
import yaml
from click.testing import CliRunner

from enginehouse import ConfigError
from enginehouse.config.load_config import load_config
from enginehouse.config.schema import Config
from enginehouse_importers import litellm, nexus, olla, ollama, presets, router_commands
from enginehouse_importers.kit.table import UNKNOWN, Converted, table_of
from enginehouse_importers.llama_swap import convert as llama_swap
from enginehouse_importers.llama_swap import document
from enginehouse_offline.check import check
from tests.support.walked_keys import switched, vanished

SAMPLES = Path(__file__).parent / "samples"
REQUIRED = {
    *("selectors.pinned.strategy", "routing.router.use", "routing.scheduler.use"),
    *("proxy.retry.enabled", "backends[1].type", "backends[3].type"),
}
"""Keys that their program wants, whose value is what the importer assumes without them."""
SECRETS = dict.fromkeys(("OPENAI_API_KEY", "MASTER", "KEY_TWO", "CLOUD"), "sk-of-the-environment")
Convert = Callable[[str, str], Converted]
FILES: Mapping[str, tuple[Convert, Callable[[str], Any], Callable[[Any], str]]] = {
    "litellm.yaml": (litellm.convert, yaml.safe_load, json.dumps),
    "olla.yaml": (olla.convert, yaml.safe_load, json.dumps),
    "nexus.toml": (nexus.convert, msgspec.toml.decode, tomli_w.dumps),
    "llama_swap.yaml": (llama_swap.convert, yaml.safe_load, json.dumps),
}


def sample(name: str) -> str:
    return (SAMPLES / name).read_text("utf-8")


@pytest.fixture
def quickly_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the JSON of thousands of files as JSON, which takes a tenth of the time."""
    for module in (litellm, olla, document):
        monkeypatch.setattr(module, "read_yaml", lambda text, file: table_of(json.loads(text), file))


@pytest.mark.usefixtures("quickly_read")
@pytest.mark.parametrize("name", FILES)
def test_no_key_vanishes_silently(name: str) -> None:
    convert, load, dump = FILES[name]
    assert set(vanished(load(sample(name)), lambda data: convert(dump(data), name))) <= REQUIRED


@pytest.mark.long
@pytest.mark.usefixtures("quickly_read")
@pytest.mark.parametrize("name", FILES)
def test_no_key_vanishes_silently_whatever_is_switched(name: str) -> None:
    """A key that nobody reads while a switch has its other position is noted."""
    convert, load, dump = FILES[name]
    sample_data = load(sample(name))
    for switch, changed in switched(sample_data):
        gone = set(vanished(changed, lambda data: convert(dump(data), name))) - REQUIRED
        assert [key for key in gone if not key.endswith(switch.rpartition(".")[2])] == [], switch


@pytest.mark.parametrize("name", FILES)
def test_every_key_of_the_sample_is_known(name: str) -> None:
    assert [note.key for note in FILES[name][0](sample(name), name).notes if note.note == UNKNOWN] == []


@pytest.mark.parametrize("name", FILES)
def test_a_key_that_nobody_knows_is_noted(name: str) -> None:
    convert, load, dump = FILES[name]
    notes = convert(dump({"unheard_of": 1, **load(sample(name))}), name).notes
    assert ("unheard_of", UNKNOWN) in [(note.key, note.note) for note in notes]


def checked(converted: Converted, folder: Path) -> Config:
    """The configuration, after ``enginehouse check``."""
    file = folder / "enginehouse.toml"
    file.write_text(tomli_w.dumps(converted.config, multiline_strings=True), "utf-8")
    answer = CliRunner(env=SECRETS).invoke(check, ["--config", str(file)])
    assert answer.exit_code == 0, answer.output + str(answer.exception)
    return load_config(file, SECRETS).config


@pytest.mark.parametrize("name", [*FILES, "presets.ini"])
def test_the_result_passes_the_check(name: str, tmp_path: Path) -> None:
    convert = presets.convert if name == "presets.ini" else FILES[name][0]
    checked(convert(sample(name), name), tmp_path)


def test_nexus(tmp_path: Path) -> None:
    config = checked(nexus.convert(sample("nexus.toml")), tmp_path)
    assert (config.server.port, config.timeouts.total, config.routing.strategy) == (8001, 120, "priority_only")
    assert {name: each.zone for name, each in config.backends.items()} == {
        "home": "private",
        "cloud": "open",
        "rented": "open",
        "contract": "private",
    }
    assert config.zones["private"].models == ["med-*"]
    assert config.routing.least_tier == {"med-*": 2}
    assert config.backends["cloud"].api_key == SECRETS["OPENAI_API_KEY"]
    assert config.backends["home"].url == "http://10.0.0.2:11434"
    assert (config.discovery["network"].type, config.discovery["network"].parameters) == (
        "mdns",
        {"services": ["_ollama._tcp"]},
    )


def test_olla(tmp_path: Path) -> None:
    config = checked(olla.convert(sample("olla.yaml")), tmp_path)
    assert {name: each.priority for name, each in config.backends.items()} == {"ollama": 10, "vllm": 60}
    assert (config.routing.strategy, config.routing.max_retries) == ("session", 3)
    assert config.routing.session == ["header:x-olla-session-id", "header:authorization"]
    assert (config.checks.interval, config.timeouts.first_byte, config.server.max_body) == (3, 30, 1048576)
    assert config.server.cors == ["https://chat.example"]
    assert config.server.per_address is not None
    assert config.server.per_address.requests_per_minute == 100
    assert config.server.trusted_proxies == ["10.0.0.0/8"]


def test_litellm(tmp_path: Path) -> None:
    config = checked(litellm.convert(sample("litellm.yaml")), tmp_path)
    assert {name: each.models for name, each in config.backends.items()} == {
        "api.openai.com": ["gpt-4o-2024"],
        "10.0.0.1-8000": ["meta/llama"],
        "10.0.0.2-8000": ["llama"],
        "127.0.0.1-11434": ["llama3"],
    }
    weights = config.routing.aliases["gpt-4o"]
    assert [(each.to, each.weight) for each in weights] == [("gpt-4o-2024", 3), ("meta/llama", 2)]  # type: ignore[union-attr]
    assert config.routing.fallbacks["llama"] == ["llama3", "gpt-4o-2024", "meta/llama"]
    assert (config.auth.keys[0].key, config.auth.keys[0].admin) == (SECRETS["MASTER"], True)
    assert config.models["gpt-4o-2024"].context_length == 9000
    assert config.backends["10.0.0.1-8000"].driver == "vllm"
    assert (config.prices["gpt-4o-2024"].input, config.prices["gpt-4o-2024"].output) == (0.15, 0.6)


def test_the_fallbacks_of_litellm_lead_to_models(tmp_path: Path) -> None:
    text = """
model_list:
  - {model_name: fast, litellm_params: {model: hosted_vllm/Qwen, api_base: "http://h:1"}}
  - {model_name: spare, litellm_params: {model: hosted_vllm/Llama, api_base: "http://h:2"}}
  - {model_name: spare, litellm_params: {model: hosted_vllm/Gemma, api_base: "http://h:3"}}
router_settings:
  fallbacks: [{fast: [spare]}]
  context_window_fallbacks: [{fast: [long]}]
  model_group_alias: {long: spare}
litellm_settings: {fallbacks: [{fast: [other]}, spare]}
"""
    found = litellm.convert(text)
    config = checked(found, tmp_path)
    assert config.routing.fallbacks == {"fast": ["Llama", "Gemma", "other"]}
    noted = {note.key for note in found.notes}
    assert noted >= {"router_settings.context_window_fallbacks", "litellm_settings.fallbacks[1]"}


def test_the_aliases_of_nexus_lead_to_models(tmp_path: Path) -> None:
    aliases = {"best": "gpt-4", "gpt-4": "large", "large": "llama3:70b"}
    data = {"routing": {"aliases": aliases, "fallbacks": {"qwen": ["best"]}}}
    config = checked(nexus.convert(tomli_w.dumps(data)), tmp_path)
    assert config.routing.aliases == dict.fromkeys(aliases, "llama3:70b")
    assert config.routing.fallbacks == {"qwen": ["llama3:70b"]}


@pytest.mark.parametrize(
    ("auth", "key", "noted"),
    [
        ('{type: bearer, token: "${CLOUD}"}', SECRETS["CLOUD"], None),
        ('{type: bearer, token: "${CLOUD:-x}"}', SECRETS["CLOUD"], "auth.token"),
        ("{type: bearer, token: plain-secret}", "plain-secret", "auth.token"),
        ('{type: bearer, token: "Bearer ${CLOUD}"}', "", "auth.token"),
        ("{type: api_key, key: k}", "", "auth.type"),
        ("{type: bearer, key: k}", "", "auth.key"),
    ],
)
def test_the_key_of_an_endpoint_of_olla(auth: str, key: str, noted: str | None, tmp_path: Path) -> None:
    endpoint = f'{{url: "http://h:1", name: a, type: vllm, auth: {auth}}}'
    found = olla.convert(f"discovery: {{static: {{endpoints: [{endpoint}]}}}}")
    assert checked(found, tmp_path).backends["a"].api_key == key
    place = "discovery.static.endpoints[0]"
    assert [note.key for note in found.notes if note.key.startswith(place)] == ([f"{place}.{noted}"] if noted else [])


def test_the_key_file_of_an_endpoint_of_olla() -> None:
    endpoint = '{url: "http://h:1", name: a, type: vllm, auth: {type: bearer, token_file: /run/secrets/a}}'
    found = olla.convert(f"discovery: {{static: {{endpoints: [{endpoint}]}}}}")
    assert found.config["backends"]["a"]["api_key"] == "file:/run/secrets/a"


@pytest.mark.parametrize("line", ["temperature 0.7", "temperature\t0.7", "  Temperature   0.7 "])
def test_a_parameter_of_a_modelfile(line: str) -> None:
    found = ollama.convert_modelfile(f"FROM ./a.gguf\nPARAMETER {line}", "a.Modelfile")
    assert found.config["models"]["a"]["filters"] == {"set": {"temperature": 0.7}}


def test_presets_of_llama_server(tmp_path: Path) -> None:
    converted = presets.convert(sample("presets.ini"))
    config = checked(converted, tmp_path)
    gemma = config.models["ggml-org/gemma:Q4"]
    assert gemma.command.split()[:7] == ["llama-server", "--port", "${port}", "--n-gpu-layers", "99", "--jinja", "-hf"]
    assert '\'{"reasoning_effort": "high"}\'' in gemma.command
    assert "--no-warmup" in gemma.command
    assert (gemma.context_length, gemma.preload, gemma.stop_timeout) == (8192, True, 30)
    assert config.models["local"].path == "/models/local.gguf"
    assert config.models["local"].args == ["--n-gpu-layers", "99", "--jinja", "--ctx-size", "4096", "--no-mmap"]
    noted = {note.key for note in converted.notes}
    assert config.models["local"].env == {"LLAMA_ARG_THREADS": "8"}
    assert {'"ggml-org/gemma:Q4".port', '"ggml-org/gemma:Q4".metrics'} <= noted


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ngl = 99", "-ngl 99"),
        ("fa = on", "-fa on"),
        ("t = 8", "-t 8"),
        ("temp = 0.6", "--temp 0.6"),
        ("fit = off", "--fit off"),
        ("flash-attn = on", "--flash-attn on"),
        ("cpu-moe = true", "--cpu-moe"),
        ("cmoe = 1", "--cpu-moe"),
        ("no-kv-offload = true", "--no-kv-offload"),
        ("nkvo = on", "--no-kv-offload"),
        ("kvu = off", "--no-kv-unified"),
        ("jinja = false", "--no-jinja"),
        ("slots = 0", "--no-slots"),
        ("no-mmap = false", "--mmap"),
        ("no-mmproj = enabled", "--no-mmproj-auto"),
        ("verbose = disabled", ""),
        ("api-key = secret", ""),
        ("alias = other", ""),
        ("dedup-cache-models = true", ""),
    ],
)
def test_an_option_of_a_preset(line: str, words: str) -> None:
    """llama-server refuses ``--ngl``, and a value of an option that has none."""
    converted = presets.convert(f"[m]\nmodel = /m.gguf\n{line}\n")
    assert converted.config["models"]["m"].get("args", []) == words.split()
    assert len(converted.notes) == (not words)


def test_a_preset_without_a_file_is_one_of_the_cache_or_none() -> None:
    converted = presets.convert("[org/gemma:Q8_0]\nngl = 9\n[elsewhere]\nngl = 9\n")
    assert {name: model["command"] for name, model in converted.config["models"].items()} == {
        "org/gemma:Q8_0": "llama-server --port ${port} --hf-repo org/gemma:Q8_0 -ngl 9"
    }
    assert [note.key for note in converted.notes] == ["elsewhere"]


def test_the_last_context_of_a_preset_counts() -> None:
    converted = presets.convert("[*]\nctx-size = 8192\n[m]\nmodel = /m.gguf\nc = 4096\n")
    assert converted.config["models"]["m"]["context_length"] == 4096


COMMAND = """
--worker-urls http://10.0.0.1:8000 http://10.0.0.2:8000/v1 --policy=power_of_two --host 0.0.0.0 --port 30001
--api-key sk-1 --request-timeout-secs 90 --max-payload-size 1000000 --log-level WARN --queue-size 5
--queue-timeout-secs 7 --cors-allowed-origins https://a.example --retry-max-retries 3 --health-failure-threshold 4
--health-success-threshold 3 --health-check-timeout-secs 2 --health-check-interval-secs 9
"""


def test_a_command_line_of_a_router(tmp_path: Path) -> None:
    converted = router_commands.convert_vllm_router("\n".join(COMMAND.split()))
    config = checked(converted, tmp_path)
    assert {name: (each.url, each.driver) for name, each in config.backends.items()} == {
        "10.0.0.1-8000": ("http://10.0.0.1:8000", "vllm"),
        "10.0.0.2-8000": ("http://10.0.0.2:8000", "vllm"),
    }
    assert (config.routing.strategy, config.routing.max_retries, config.timeouts.total) == ("p2c", 3, 90)
    assert (config.scheduling.max_queue, config.scheduling.queue_timeout) == (5, 7)
    assert (config.checks.failures, config.checks.successes, config.checks.interval) == (4, 3, 9)
    assert config.telemetry.log_level == "warning"
    assert [note.key for note in converted.notes] == ["api_key"]


def test_prefill_and_decode_become_roles(tmp_path: Path) -> None:
    words = "--pd-disaggregation --prefill http://p:1 8998 --decode http://d:2 --decode http://d:3 --disable-retries"
    converted = router_commands.convert_sglang_router("\n".join(words.split()))
    config = checked(converted, tmp_path)
    assert [(each.url, each.role.value) for each in config.backends.values()] == [
        ("http://p:1", "prefill"),
        ("http://d:2", "decode"),
        ("http://d:3", "decode"),
    ]
    assert config.routing.max_retries == 0
    assert [note.key for note in converted.notes] == ["prefill[0]"]


@pytest.mark.parametrize("option", sorted(router_commands.KNOWN))
def test_no_option_of_a_router_vanishes(option: str) -> None:
    value = (
        ""
        if option in router_commands._FLAGS
        else "http://h:5"
        if "url" in option or option in ("prefill", "decode")
        else "9"
    )
    without = router_commands.convert_sglang_router("")
    found = router_commands.convert_sglang_router(f"--{option.replace('_', '-')}\n{value}")
    needs_another = {"cb_failure_threshold", "otlp_traces_endpoint", "pd_disaggregation", "vllm_pd_disaggregation"}
    if option == "otlp_traces_endpoint":
        found = router_commands.convert_sglang_router("--enable-trace\n--otlp-traces-endpoint\nh:4317")
        assert found.config["telemetry"]["endpoint"] == "http://h:4317"
    assert found != without or option in needs_another
    assert UNKNOWN not in [note.note for note in found.notes]


def test_the_models_of_ollama(tmp_path: Path) -> None:
    tags = b'{"models":[{"name":"llama3:latest","size":1},{"name":"qwen:7b"}]}'
    config = checked(ollama.convert_server("http://h:11434/v1", tags), tmp_path)
    assert config.backends["ollama"].models == ["llama3:latest", "qwen:7b"]
    assert config.routing.aliases == {"llama3": "llama3:latest"}


MODELFILE = '''
# mine
FROM ./mine.gguf
PARAMETER temperature 0.3
PARAMETER num_ctx 4096
PARAMETER stop "<end>"
PARAMETER stop <stop>
PARAMETER num_gpu 20
PARAMETER mirostat 1
TEMPLATE """
{{ .Prompt }}
"""
SYSTEM You are a cat
ADAPTER ./lora.gguf
LICENSE mine
'''


def test_a_modelfile(tmp_path: Path) -> None:
    converted = ollama.convert_modelfile(MODELFILE, "cat.Modelfile")
    model = checked(converted, tmp_path).models["cat"]
    assert (model.path, model.context_length) == ("./mine.gguf", 4096)
    assert model.filters.set == {"temperature": 0.3, "stop": ["<end>", "<stop>"]}
    assert model.args == ["--ctx-size", "4096", "-ngl", "20", "--lora", "./lora.gguf"]
    assert {note.key for note in converted.notes} == {
        "PARAMETER.mirostat", "PARAMETER.temperature", "PARAMETER.stop", "TEMPLATE", "SYSTEM", "LICENSE",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("llama3.2-custom.Modelfile", "llama3.2-custom"),
        ("my.models/Modelfile.qwen2.5", "qwen2.5"),
        ("Modelfile", "mine"),
        ("other.txt", "mine"),
    ],
)
def test_the_name_of_a_modelfile(file: str, name: str) -> None:
    assert list(ollama.convert_modelfile("FROM ./mine.gguf", file).config["models"]) == [name]


def test_a_server_that_is_no_ollama_is_told() -> None:
    """It may speak something else than HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"220 mail\r\n")

        thread = Thread(target=greet)
        thread.start()
        with pytest.raises(ConfigError, match="no Ollama answers"):
            ollama.ask_server(f"http://127.0.0.1:{server.getsockname()[1]}")
        thread.join()


def test_the_lowest_priority_of_olla_is_the_last(tmp_path: Path) -> None:
    endpoints = ", ".join(f'{{url: "http://h{n}", name: "p{n}", type: vllm, priority: {n}}}' for n in (0, 1, 100))
    config = checked(olla.convert(f"discovery: {{static: {{endpoints: [{endpoints}]}}}}"), tmp_path)
    assert {name: each.priority for name, each in config.backends.items()} == {"p0": 100, "p1": 99, "p100": 0}


def test_aliases_of_olla_that_are_no_lists_of_names_are_noted(tmp_path: Path) -> None:
    found = olla.convert("model_aliases: {good: [a, 7], empty: [], holed: [a, null], text: a}")
    assert checked(found, tmp_path).routing.aliases == {"good": ["a", "7"]}
    assert [note.key for note in found.notes] == ["model_aliases.holed", "model_aliases.text"]


def test_deployments_of_litellm_with_other_limits_are_other_backends(tmp_path: Path) -> None:
    text = """
model_list:
  - {model_name: a, litellm_params: {model: hosted_vllm/A, api_base: "http://h:1", timeout: 5}}
  - {model_name: b, litellm_params: {model: hosted_vllm/B, api_base: "http://h:1", timeout: 600}}
  - {model_name: c, litellm_params: {model: hosted_vllm/C, api_base: "http://h:1", timeout: 5}}
"""
    config = checked(litellm.convert(text), tmp_path)
    assert [(each.models, each.timeouts.total) for each in config.backends.values() if each.timeouts is not None] == [
        (["A", "C"], 5),
        (["B"], 600),
    ]


def test_the_weight_of_a_second_engine_of_a_litellm_model_is_noted() -> None:
    deployments = "".join(
        f"  - {{model_name: a, litellm_params: {{model: hosted_vllm/A, api_base: 'http://h{n}', weight: {n}}}}}\n"
        for n in (1, 9)
    )
    found = litellm.convert(f"model_list:\n{deployments}")
    assert "model_list[1].litellm_params.weight" in [note.key for note in found.notes]


def test_a_modelfile_of_another_model_is_an_alias(tmp_path: Path) -> None:
    converted = ollama.convert_modelfile("FROM llama3\nPARAMETER temperature 0", "Modelfile")
    config = checked(converted, tmp_path)
    assert config.routing.aliases == {"llama3-modelfile": "llama3:latest"}
    assert config.models["llama3-modelfile"].filters.set == {"temperature": 0}


def test_no_note_contains_a_secret() -> None:
    notes = str(litellm.convert(sample("litellm.yaml")).notes)
    assert "in-the-file" not in notes
