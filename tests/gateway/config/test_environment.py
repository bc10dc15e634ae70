from __future__ import annotations

import pytest

from enginehouse.config.environment import variable_of
from enginehouse.domain.errors import ConfigErrors
from tests.support.config_files import Load, Refuse

FILE = """
[auth]
keys = [{ name = "alice", key = "s3cret" }]
[routing.aliases]
"gpt-4" = "a"
[backends.gpu-1]
url = "http://127.0.0.1:1"
models = ["a"]
[models."qwen:7b"]
path = "qwen.gguf"
[plugins.cache]
entries = 3
fast = false
sizes = { small = 1.5, name = "n" }
"""


@pytest.mark.parametrize(
    ("variable", "text", "where", "value"),
    [
        ("SERVER_PORT", "9000", "server.port", 9000),
        ("SERVER_HOST", "0.0.0.0", "server.host", "0.0.0.0"),
        ("SERVER_MAX_BODY", "2MiB", "server.max_body", 2 * 1024**2),
        ("SERVER_MAX_BODY", "2000", "server.max_body", 2000),
        ("SERVER_DRAIN_TIMEOUT", "1m", "server.drain_timeout", 60.0),
        ("SERVER_CORS", "http://a, http://b", "server.cors", ["http://a", "http://b"]),
        ("SERVER_CORS", "", "server.cors", []),
        ("ROUTING_STRATEGY", "round_robin", "routing.strategy", "round_robin"),
        ("ROUTING_MAX_RETRIES", "3", "routing.max_retries", 3),
        ("ROUTING_FILTERS", "x", "routing.filters", ["x"]),
        ("TELEMETRY_METRICS", "False", "telemetry.metrics", False),
        ("TELEMETRY_SAMPLE_RATIO", "0.5", "telemetry.sample_ratio", 0.5),
        ("TELEMETRY_LOG_LEVEL", "debug", "telemetry.log_level", "debug"),
        ("PLUGINS_DISABLED", "a,b", "plugins.disabled", ["a", "b"]),
    ],
)
def test_every_kind_of_scalar_can_be_overridden(
    load: Load, variable: str, text: str, where: str, value: object
) -> None:
    section, key = where.split(".")
    loaded = load(FILE, **{f"ENGINEHOUSE_{variable}": text})
    assert getattr(getattr(loaded.config, section), key) == value


@pytest.mark.parametrize("text", ["", "[hosts.other]\n", "[hosts.local]\nnode = 'n'\n"])
def test_the_host_that_always_exists_needs_no_table(load: Load, text: str) -> None:
    loaded = load(text, ENGINEHOUSE_HOSTS_LOCAL_MEMORY="24GiB", ENGINEHOUSE_HOSTS_LOCAL_MAX_LOADS="3")
    assert (loaded.config.hosts["local"].memory, loaded.config.hosts["local"].max_loads) == (24 * 1024**3, 3)
    assert not loaded.warnings


def test_entries_are_found_by_their_names(load: Load) -> None:
    loaded = load(
        FILE,
        ENGINEHOUSE_AUTH_KEYS_0_MAX_CONCURRENT="4",
        ENGINEHOUSE_ROUTING_ALIASES_GPT_4="b",
        ENGINEHOUSE_BACKENDS_GPU_1_URL="http://127.0.0.1:2",
        ENGINEHOUSE_BACKENDS_GPU_1_MODELS="a,b",
        ENGINEHOUSE_BACKENDS_GPU_1_TIMEOUTS_CONNECT="2s",
        ENGINEHOUSE_models_qwen_7b_TTL="10m",
        ENGINEHOUSE_MODELS_QWEN_7B_ROLE="prefill",
    )
    config = loaded.config
    assert config.auth.keys[0].max_concurrent == 4
    assert config.routing.aliases == {"gpt-4": "b"}
    backend = config.backends["gpu-1"]
    assert (backend.url, backend.models) == ("http://127.0.0.1:2", ["a", "b"])
    assert backend.timeouts is not None
    assert backend.timeouts.connect == 2
    assert config.models["qwen:7b"].ttl == 600
    assert config.models["qwen:7b"].role == "prefill"
    assert loaded.warnings == ()


def test_parameters_of_plugins_keep_the_type_that_the_file_has(load: Load) -> None:
    loaded = load(
        FILE,
        ENGINEHOUSE_PLUGINS_CACHE_ENTRIES="5",
        ENGINEHOUSE_PLUGINS_CACHE_FAST="true",
        ENGINEHOUSE_PLUGINS_CACHE_SIZES_SMALL="2",
        ENGINEHOUSE_PLUGINS_CACHE_SIZES_NAME="7",
    )
    cache = loaded.config.plugins.parameters["cache"]
    assert cache == {"entries": 5, "fast": True, "sizes": {"small": 2.0, "name": "7"}}


def test_weights_are_checked_after_the_environment(load: Load) -> None:
    loaded = load("", ENGINEHOUSE_ROUTING_WEIGHTS_PRIORITY="60", ENGINEHOUSE_ROUTING_WEIGHTS_LOAD="20")
    assert loaded.config.routing.weights.priority == 60


@pytest.mark.parametrize(
    ("variable", "text", "problem"),
    [
        ("ENGINEHOUSE_SERVER_PORT", "http", 'expected a whole number from 0 to 65535, got "http"'),
        ("ENGINEHOUSE_SERVER_PORT", "70000", "expected a whole number from 0 to 65535, got 70000"),
        ("ENGINEHOUSE_TELEMETRY_METRICS", "yes", 'expected true or false, got "yes"'),
        ("ENGINEHOUSE_TELEMETRY_SAMPLE_RATIO", "half", 'expected a number from 0 to 1, got "half"'),
        ("ENGINEHOUSE_TELEMETRY_TRACES", "on", 'expected one of "console", "off", "otlp", got "on"'),
        (
            "ENGINEHOUSE_BACKENDS_GPU_1_URL",
            "gpu:80",
            "is not the address of a server: it does not begin with http:// or https://",
        ),
    ],
)
def test_an_error_names_the_variable_of_a_bad_value(refuse: Refuse, variable: str, text: str, problem: str) -> None:
    error = refuse(FILE, **{variable: text})
    assert (error.key, error.file, error.problem) == (variable, "", problem)


def test_a_duration_in_a_variable_needs_its_unit(refuse: Refuse) -> None:
    error = refuse(ENGINEHOUSE_SERVER_DRAIN_TIMEOUT="30")
    assert error.key == "ENGINEHOUSE_SERVER_DRAIN_TIMEOUT"
    assert "expected a duration" in error.problem


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("ENGINEHOUSE_SERVER_PROT", "did you mean ENGINEHOUSE_SERVER_PORT?"),
        ("ENGINEHOUSE_BACKENDS_GPU_1_RUL", "did you mean ENGINEHOUSE_BACKENDS_GPU_1_URL?"),
        ("ENGINEHOUSE_QQQQ", "unset it, or see the documented settings"),
    ],
)
def test_an_unknown_variable_is_a_warning_that_does_not_show_its_value(load: Load, variable: str, hint: str) -> None:
    loaded = load(FILE, **{variable: "s3cret"})
    assert loaded.warnings[0] == f"{variable}: there is no such setting; ignored ({hint})"


def test_a_new_entry_is_not_made(load: Load) -> None:
    loaded = load("", ENGINEHOUSE_BACKENDS_NEW_URL="http://h")
    assert loaded.config.backends == {}
    assert len(loaded.warnings) == 1


def test_other_variables_and_the_reserved_ones_are_left_alone(load: Load) -> None:
    assert (
        load(
            "",
            PATH="/bin",
            ENGINEHOUSE_CONFIG="/x",
            ENGINEHOUSE_STATE_DIR="/y",
            ENGINEHOUSE_URL="u",
            ENGINEHOUSE_KEY="k",
        ).warnings
        == ()
    )


def test_a_variable_that_may_mean_two_keys_is_refused(refuse: Refuse) -> None:
    text = '[backends.gpu-1]\nurl = "http://h:1"\n[backends.gpu_1]\nurl = "http://h:2"'
    error = refuse(text, ENGINEHOUSE_BACKENDS_GPU_1_PRIORITY="3")
    assert error.key == "ENGINEHOUSE_BACKENDS_GPU_1_PRIORITY"
    assert error.problem == "may mean backends.gpu-1.priority and backends.gpu_1.priority"


@pytest.mark.parametrize(("text", "gpus"), [("2", 2), ("0,1", [0, 1]), ("3,", [3])])
def test_gpus_are_a_number_or_a_list_of_numbers(load: Load, text: str, gpus: object) -> None:
    assert load(FILE, ENGINEHOUSE_MODELS_QWEN_7B_GPUS=text).config.models["qwen:7b"].gpus == gpus


@pytest.mark.parametrize(("text", "gpus"), [("auto", "auto"), ("1", [1])])
def test_gpus_of_a_host_are_a_list_or_auto(load: Load, text: str, gpus: object) -> None:
    assert load("[hosts.a]", ENGINEHOUSE_HOSTS_A_GPUS=text).config.hosts["a"].gpus == gpus


def test_an_error_in_a_list_names_its_variable(refuse: Refuse) -> None:
    assert refuse("[hosts.a]", ENGINEHOUSE_HOSTS_A_GPUS="0,x").key == "ENGINEHOUSE_HOSTS_A_GPUS"


def test_a_variable_of_another_form_than_the_file_has_is_a_warning(load: Load) -> None:
    [warning] = load(FILE, ENGINEHOUSE_ROUTING_ALIASES_GPT_4_TO="b").warnings
    assert "ENGINEHOUSE_ROUTING_ALIASES_GPT_4_TO: there is no such setting" in warning


def test_two_keys_of_one_variable_are_fine_while_it_is_not_set(load: Load) -> None:
    text = '[backends.gpu-1]\nurl = "http://h:1"\n[backends.gpu_1]\nurl = "http://h:2"'
    assert len(load(text, ENGINEHOUSE_SERVER_PORT="1").config.backends) == 2


def test_a_variable_below_something_that_is_no_table_leaves_the_error_to_the_file(refuse: Refuse) -> None:
    error = refuse("server = 3", ENGINEHOUSE_SERVER_PORT="1")
    assert not isinstance(error, ConfigErrors)
    assert error.key == "server"


def test_a_variable_is_the_path_in_upper_case() -> None:
    assert variable_of(("models", "Qwen-2.5:7b", "ttl")) == "ENGINEHOUSE_MODELS_QWEN_2_5_7B_TTL"
    assert variable_of(("plugins", "parameters", "cache", "size")) == "ENGINEHOUSE_PLUGINS_CACHE_SIZE"
