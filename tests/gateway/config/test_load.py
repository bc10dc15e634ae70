from __future__ import annotations

from pathlib import Path

import pytest

from enginehouse.config.load_config import load_config
from enginehouse.config.schema import BackendModelSettings, Config
from enginehouse.domain.errors import ConfigError, ConfigErrors
from enginehouse.domain.replica import Role
from tests.support.config_files import Load, Refuse


def test_an_empty_file_is_the_default_configuration(load: Load, file: Path) -> None:
    loaded = load("")
    assert loaded.config == Config()
    assert loaded.file == file
    assert loaded.warnings == ()


def test_durations_and_sizes_are_read_from_text(load: Load) -> None:
    config = load('[server]\nmax_body = "1MiB"\ndrain_timeout = "90s"\n[hosts.local]\nmemory = "24GiB"').config
    assert config.server.max_body == 1024**2
    assert config.server.drain_timeout == 90
    assert config.hosts["local"].memory == 24 * 1024**3


def test_a_plain_number_is_a_size_in_bytes(load: Load) -> None:
    assert load("[server]\nmax_body = 4096").config.server.max_body == 4096


@pytest.mark.parametrize("key", ["checks", "rescheduling"])
@pytest.mark.parametrize(("value", "shown"), [("0", '"0"'), ('"0.5ms"', '"0.5ms"')])
def test_what_is_repeated_needs_an_interval(refuse: Refuse, key: str, value: str, shown: str) -> None:
    error = refuse(f"[{key}]\ninterval = {value}")
    assert (error.key, error.problem) == (f"{key}.interval", f"expected 1 ms or more, got {shown}")


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ("checks", "timeout"),
        ("rescheduling", "migrate_timeout"),
        ("models.a", "start_timeout"),
        ("models.a", "start_silence"),
    ],
)
def test_what_would_always_be_late_without_time_gets_some(refuse: Refuse, table: str, key: str) -> None:
    assert refuse(f"[{table}]\n{key} = 0").problem == 'expected 1 ms or more, got "0"'


def test_zero_is_a_duration_without_a_unit(load: Load) -> None:
    assert load("[timeouts]\nconnect = 0").config.timeouts.connect == 0


@pytest.mark.parametrize("value", ["30", "1.5", "-1", "true", "[1]"])
def test_a_duration_without_a_unit_is_refused(refuse: Refuse, value: str) -> None:
    error = refuse(f"[server]\ndrain_timeout = {value}")
    assert error.key == "server.drain_timeout"
    assert 'expected a duration such as "500ms"' in error.problem


def test_a_bare_number_of_seconds_is_answered_with_how_to_write_it(refuse: Refuse) -> None:
    assert refuse("[server]\ndrain_timeout = 30").remedy == 'for seconds write "30s"'


@pytest.mark.parametrize("value", ["-1", "1.5", "true"])
def test_an_invalid_number_of_bytes_is_refused(refuse: Refuse, value: str) -> None:
    assert 'expected a size such as "512MiB"' in refuse(f"[server]\nmax_body = {value}").problem


def test_models_of_a_backend_are_a_list_or_a_table(load: Load) -> None:
    backends = load(
        """
        [backends.a]
        url = "http://h:1"
        role = "decode"
        models = ["x"]
        [backends.b]
        url = "http://h:2"
        [backends.b.models."x:8b"]
        tools = false
        """
    ).config.backends
    assert backends["a"].models == ["x"]
    assert backends["a"].role is Role.DECODE
    assert backends["b"].models == {"x:8b": BackendModelSettings(tools=False)}


def test_a_whole_number_is_a_number(load: Load) -> None:
    assert load("[telemetry]\nsample_ratio = 1").config.telemetry.sample_ratio == 1.0


@pytest.mark.parametrize(
    ("text", "key", "remedy"),
    [
        ("[server]\nprot = 1", "server.prot", 'did you mean "port"?'),
        ("[sever]\nport = 1", "sever", 'did you mean "server"?'),
        ('[backends.gpu-1]\nurl = "http://h"\npriorty = 1', "backends.gpu-1.priorty", 'did you mean "priority"?'),
        ('[models."qwen:7b"]\nttll = "1s"', 'models."qwen:7b".ttll', 'did you mean "ttl"?'),
        ("port = 8080", "port", "write it below [server]"),
        ("[routing.weights]\nxyz = 1", "routing.weights.xyz", "known here: latency, load, priority"),
    ],
)
def test_an_unknown_key_is_named_with_what_was_meant(
    refuse: Refuse, file: Path, text: str, key: str, remedy: str
) -> None:
    error = refuse(text)
    assert str(error) == f"{file}: {key}: unknown key ({remedy})"
    assert (error.file, error.key, error.remedy) == (str(file), key, remedy)


@pytest.mark.parametrize(
    ("text", "key", "problem", "remedy"),
    [
        ("[server]\nport = 70000", "server.port", "expected a whole number from 0 to 65535, got 70000", ""),
        (
            '[server]\nport = "80"',
            "server.port",
            'expected a whole number from 0 to 65535, got "80"',
            "write it without quotes",
        ),
        ("[server]\nport = 80.0", "server.port", "expected a whole number from 0 to 65535, got 80.0", ""),
        (
            "[server]\nworkers = true",
            "server.workers",
            'expected a whole number from 1 to 256 or one of "auto", got true',
            "",
        ),
        ("[routing]\nstrategy = 3", "routing.strategy", "expected a string, got 3", "write it in quotes"),
        ("[telemetry]\nsample_ratio = nan", "telemetry.sample_ratio", "expected a number from 0 to 1, got NaN", ""),
        ("[telemetry]\nmetrics = 1", "telemetry.metrics", "expected true or false, got 1", ""),
        (
            '[telemetry]\nlog_format = "jsn"',
            "telemetry.log_format",
            'expected one of "json", "text", got "jsn"',
            'did you mean "json"?',
        ),
        (
            '[backends.gpu-1]\nurl = "http://h"\nrole = "decoder"',
            "backends.gpu-1.role",
            'expected one of "prefill", "decode", "neutral", got "decoder"',
            'did you mean "decode"?',
        ),
        ('[server]\ncors = "*"', "server.cors", "expected a list of strings, got a string", ""),
        ("[server]\ncors = [1]", "server.cors[0]", "expected a string, got 1", "write it in quotes"),
        ("server = 3", "server", "expected a table, got a number", ""),
        ("[auth]\nkeys = {}", "auth.keys", "expected a list of tables, got a table", ""),
        (
            '[backends.b]\nurl = "http://h"\nmodels = 3',
            "backends.b.models",
            "expected a list of strings or a table, got a number",
            "",
        ),
        (
            '[routing]\nsession = ["cookie:x"]',
            "routing.session[0]",
            'expected a string of another form, got "cookie:x"',
            "`header:NAME` or `body:FIELD`",
        ),
        (
            '[zones.z]\nheaders = ["x-zone"]',
            "zones.z.headers[0]",
            'expected a string of another form, got "x-zone"',
            "`NAME: VALUE`",
        ),
        (
            '[routing.mirrors.m]\nto = ""',
            "routing.mirrors.m.to",
            'expected a string of another form, got ""',
            "the model that gets the copies",
        ),
        (
            '[models.m]\ndriver = "sim"\nhost = []',
            "models.m.host",
            "expected a string or a list of strings, got an empty list",
            "",
        ),
        ("[server]\nhost = 2020-01-01", "server.host", "expected a string, got a date or a time", ""),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(
    refuse: Refuse, text: str, key: str, problem: str, remedy: str
) -> None:
    error = refuse(text)
    assert (error.key, error.problem, error.remedy) == (key, problem, remedy)


def test_a_missing_key_is_named_with_its_meaning(refuse: Refuse) -> None:
    error = refuse("[backends.gpu-1]\npriority = 1")
    assert error.key == "backends.gpu-1.url"
    assert error.problem == "is missing"
    assert error.remedy == "give it a string: base URL, without `/v1`"


def test_all_errors_are_reported_at_once(refuse: Refuse) -> None:
    error = refuse('[server]\nprot = 1\nport = "x"\n[telemetry]\nmetrics = 1')
    assert isinstance(error, ConfigErrors)
    assert [one.key for one in error.errors] == ["server.prot", "server.port", "telemetry.metrics"]
    assert len(str(error).splitlines()) == 3


@pytest.mark.parametrize("value", ["inf", "nan"])
@pytest.mark.parametrize(
    ("table", "key"), [("models.a", "weight"), ("prices.a", "input"), ("rescheduling", "load_balance_threshold")]
)
def test_a_number_is_finite(refuse: Refuse, table: str, key: str, value: str) -> None:
    error = refuse(f"[{table}]\n{key} = {value}")
    assert error.key == f"{table}.{key}"
    assert "expected a number" in error.problem


@pytest.mark.parametrize("alias", ['{ to = "a", weight = 0 }', '["b", { to = "a", weight = 0 }]'])
def test_the_weight_of_an_alias_is_above_0(refuse: Refuse, alias: str) -> None:
    assert refuse(f"[routing.aliases]\nx = {alias}").problem == "expected a number above 0, got 0"


def test_numbers_that_no_engine_would_ever_need_are_no_crash(load: Load) -> None:
    assert load(f"[routing]\nmax_retries = {10**30}").config.routing.max_retries == 10**30


@pytest.mark.parametrize(
    ("text", "position"),
    [("a = 1\nb = = 2\n", "2:5"), ("[server\nport = 1", "1:8"), ("a = 1\n\nb = ", "3:5"), ("a = 1\na = 2", "2:6")],
)
def test_a_syntax_error_has_its_line_and_column(refuse: Refuse, file: Path, text: str, position: str) -> None:
    error = refuse(text)
    assert error.file == f"{file}:{position}"
    assert error.problem.startswith("not valid TOML: ")
    assert "(at " not in error.problem


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[models.llama3:8b]\npath = 'x'", 'quote the name: [models."llama3:8b"]'),
        ("[[routing.a b]]", 'quote the name: [[routing."a b"]]'),
        ("[prices]\nllama3:8b = {}", 'quote the name: "llama3:8b" = ...'),
        ("[backends.a]\nurl = http://h  # here", 'quote the text: url = "..."'),
        ("host = 127.0.0.1\n", 'quote the text: host = "..."'),
        ("ttl = 10m\n", 'quote the text: ttl = "..."'),
        ("port = 8080 workers = 2\n", "fix the syntax there"),
        ("path = C:\\models\n", "quote the text: path = '...'"),
        ('path = "C:\\models"\n', "write the text in single quotes"),
        ("[routing.aliases]\ngpt-4 = 'a'\ngpt-4 = 'b'\n\n[server]\n", "gpt-4 is there twice (remove one of the two)"),
        ("[models.a]\n[models.b]\n[models.a]\n", "[models.a] is there twice (remove one of the two)"),
    ],
)
def test_a_syntax_error_has_the_change_that_it_probably_needs(refuse: Refuse, text: str, said: str) -> None:
    assert said in str(refuse(text))


def test_a_syntax_error_does_not_show_a_secret(refuse: Refuse) -> None:
    assert "sk-abc" not in str(refuse("[backends.a]\napi_key = sk-abc"))


def test_a_byte_order_mark_is_no_part_of_a_file(file: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xef\xbb\xbfsecret\r\n")
    file.write_bytes(b"\xef\xbb\xbf[[auth.keys]]\nname = 'a'\nkey = 'file:" + bytes(tmp_path / "key") + b"'")
    assert load_config(file, {}).config.auth.keys[0].key == "secret"


def test_a_file_that_is_no_text_is_refused(file: Path) -> None:
    file.write_bytes(b"# caf\xe9\n")
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        load_config(file, {})


def test_a_folder_is_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_config(tmp_path, {})


def test_tables_of_plugins_are_their_parameters(load: Load) -> None:
    plugins = load(
        """
        [plugins]
        on_error = "skip"
        disabled = ["x"]
        [plugins.cache]
        entries = 3
        nested = { deep = [1, 2] }
        [plugins."a.b"]
        """
    ).config.plugins
    assert plugins.on_error == "skip"
    assert plugins.disabled == ["x"]
    assert plugins.parameters == {"cache": {"entries": 3, "nested": {"deep": [1, 2]}}, "a.b": {}}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("plugins = 3", "plugins"),
        ('[plugins]\ncache = "x"', "plugins.cache"),
        ("[plugins.disabled]\na = 1", "plugins.disabled"),
        ("[plugins]\nparameters = 3", "plugins.parameters"),
    ],
)
def test_other_keys_beside_the_tables_of_plugins_are_refused(refuse: Refuse, text: str, key: str) -> None:
    assert refuse(text).key == key
