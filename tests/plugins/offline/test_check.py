"""``enginehouse check`` refuses what ``enginehouse serve`` refuses, with the same words and no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from enginehouse.cli import serve_command
from enginehouse.domain.errors import ConfigError, EnginehouseError, PluginError
from enginehouse.plugin_manager.kinds import KINDS
from enginehouse_offline.check import check
from tests.support.plugins import Install

Refusal = Callable[[str], tuple[EnginehouseError, EnginehouseError]]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINEHOUSE_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def refusal(tmp_path: Path, restored_logs: None) -> Refusal:
    """What ``check`` and ``serve`` say of a configuration that both refuse."""

    def refused_by_both(text: str) -> tuple[EnginehouseError, EnginehouseError]:
        file = tmp_path / "enginehouse.toml"
        file.write_text(text)
        found = []
        for command in (check, serve_command):
            result = CliRunner().invoke(
                command, ["--config", str(file), *(["--port", "0"] if command is serve_command else [])]
            )
            assert isinstance(result.exception, EnginehouseError), (command.name, result.output, result.exc_info)
            found.append(result.exception)
        return found[0], found[1]

    return refused_by_both


def checked(tmp_path: Path, text: str) -> tuple[str, str]:
    """What ``check`` prints of a good configuration: the effective one, and warnings."""
    file = tmp_path / "enginehouse.toml"
    file.write_text(text)
    result = CliRunner().invoke(check, ["--config", str(file)])
    assert result.exception is None, (result.output, result.exc_info)
    return result.stdout, result.stderr


def told(tmp_path: Path, text: str) -> dict[str, str]:
    """The one error of ``check --json``."""
    file = tmp_path / "enginehouse.toml"
    file.write_text(text)
    result = CliRunner().invoke(check, ["--config", str(file), "--json"])
    data = json.loads(result.stdout)
    assert (result.exit_code, data["ok"], len(data["errors"])) == (1, False, 1)
    error: dict[str, str] = data["errors"][0]
    return error


BACKEND = '[backends.b]\nurl = "http://h"\n'
MODEL = '[models.m]\ndriver = "sim"\n'


@pytest.mark.parametrize(
    ("text", "key", "remedy"),
    [
        (BACKEND + 'driver = "vlm"', "backends.b.driver", 'did you mean "vllm"?'),
        ('[models.m]\ndriver = "lamacpp"', "models.m.driver", 'did you mean "llamacpp"?'),
        (MODEL + '[hosts.local]\nlauncher = "locl"', "hosts.local.launcher", 'did you mean "local"?'),
        ('[scheduling]\nscheduler = "fiffo"', "scheduling.scheduler", 'did you mean "fifo"?'),
        ('[scheduling]\nswapper = "gruop"', "scheduling.swapper", 'did you mean "group"?'),
        ('[routing]\nfilters = ["helth"]', "routing.filters", 'did you mean "health"?'),
        (
            '[routing]\nstrategy = "weighted"\nscorers = [{ type = "lod" }]',
            "routing.scorers[0]",
            'did you mean "load"?',
        ),
        ("[plugins.raandom]\nseed = 1", "plugins.raandom", 'did you mean "random"?'),
        ("[plugins.strategy.raandom]\nseed = 1", "plugins.strategy.raandom", 'did you mean "random"?'),
        ("[plugins.strategy]\nseed = 1", "plugins.strategy.seed", "install the plugin or remove the table"),
        ('[routing]\nstrategy = "random"\n[plugins.random]\nsead = 1', "plugins.random.sead", 'did you mean "seed"?'),
        ("[plugins.random]\nsead = 1", "plugins.random.sead", 'did you mean "seed"?'),
        (
            '[models.m]\nsource = "nowhere/m"',
            "models.m.source",
            "'nowhere/m' is not the name of a model to download: write",
        ),
        ('[routing]\nstrategy = "random"\n[plugins.random]\nseed = "x"', "plugins.random.seed", ""),
        ('[models.m]\ndriver = "openai"', "models.m", "set path if the driver launches engines, else command"),
        ('[models.m]\ncommand = "x ${port} ${env:NOT_SET}"', "models.m.command", "set it or remove it"),
        ('[discovery.lab]\ntype = "dns"', "discovery.lab", "set one of the two"),
        ('[discovery.lab]\ntype = "statc"', "discovery.lab.type", 'did you mean "static"?'),
        ('[discovery.lab]\ntype = "static"\nfle = "x"', "discovery.lab.fle", 'did you mean "file"?'),
        ('[routing.aliases]\n"" = "m"', 'routing.aliases.""', "name a model, or remove it"),
        ('[routing.aliases]\na = " "', "routing.aliases.a", "name one, or remove the alias"),
        ('[routing.fallbacks]\nm = ["m"]', "routing.fallbacks.m[0]", "remove it"),
        ('[routing.fallbacks]\nm = [""]', "routing.fallbacks.m[0]", "name one, or remove it"),
    ],
)
def test_a_wrong_key_is_refused_with_file_key_and_remedy(
    refusal: Refusal, tmp_path: Path, text: str, key: str, remedy: str
) -> None:
    by_check, by_serve = refusal(text)
    assert isinstance(by_check, ConfigError)
    assert str(by_check) == str(by_serve)
    assert by_check.key == key
    assert by_check.remedy.startswith(remedy)
    assert by_check.file == str(tmp_path / "enginehouse.toml")
    assert told(tmp_path, text)["key"] == key


def test_all_types_that_no_plugin_has_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "enginehouse.toml"
    file.write_text(
        "[backends.a]\nurl = 'http://h'\ndriver = 'vlm'\n[hosts.h]\nlauncher = 'slrm'\n"
        "[scheduling]\nscheduler = 'fifoo'\nscaler = 'up'\n[routing]\nfilters = ['helth']\n[limits]\nstore = 'radis'\n"
        "[usage]\nstore = 'sqllite'\n[rescheduling]\nenabled = true\npolicies = ['a', 'b']\nmigrators = ['c']\n"
        "[services.x]\n"
    )
    error = CliRunner().invoke(check, ["--config", str(file)]).exception
    assert isinstance(error, ConfigError)
    assert sorted(row["key"] for row in error.rows()) == [
        "backends.a.driver", "hosts.h.launcher", "limits.store", "rescheduling.migrators", "rescheduling.policies",
        "rescheduling.policies", "routing.filters", "scheduling.scaler", "scheduling.scheduler", "services.x",
        "usage.store",
    ]  # fmt: skip


FAULTY = """
[server]
prot = 1
port = "x"
[routing]
fallbacks = { m = ["only-in-a"] }
[routing.aliases]
x = "y"
y = "x"
[backends.a]
driver = "nope"
url = "http://x:1"
models = ["only-in-a"]
[backends.b]
driver = "vllm"
url = "http://x:1"
timeouts = { connect = 3 }
[backends.c]
driver = "openai"
[models.z]
command = "x"
[models.q]
driver = "sim"
args = ["${nothing}"]
[plugins.cache_aware]
nothing = 3
[batches]
slotz = 3
[compat]
lama_swap = true
[services.nothing]
[auth]
keys = [{ name = "a", key = "1" }, { name = "a", key = "2" }]
"""


def test_errors_of_the_schema_the_rules_and_the_build_are_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No error is there only because something else was wrong: nothing is said of the model of backend a."""
    monkeypatch.setenv("ENGINEHOUSE_SERVER_WORKERS", "some")
    file = tmp_path / "enginehouse.toml"
    file.write_text(FAULTY)
    result = CliRunner().invoke(check, ["--config", str(file), "--json"])
    errors = json.loads(result.stdout)["errors"]
    assert {error["key"] for error in errors} == {
        *("ENGINEHOUSE_SERVER_WORKERS", "server.prot", "server.port", "backends.b.timeouts.connect", "backends.c.url"),
        *("routing.aliases.x", "models.z.command", "backends.a.driver", "models.q.args", "plugins.cache_aware.nothing"),
        *("batches.slotz", "compat.lama_swap", "services.nothing", "auth.keys[1].name"),
    }
    assert len(errors) == 14
    assert {error["file"] for error in errors} == {str(file), ""}


def test_a_model_that_an_engine_may_list_is_no_error_of_a_strict_check(tmp_path: Path) -> None:
    file = tmp_path / "enginehouse.toml"
    file.write_text("[backends.a]\nurl = 'http://h'\n[routing.aliases]\n'gpt-4' = 'llama3'\n")
    result = CliRunner().invoke(check, ["--strict", "--config", str(file)])
    assert (result.exit_code, "note: routing.aliases" in result.stderr) == (0, True)


def test_an_unknown_strategy_is_a_warning_and_the_effective_one_is_smart(tmp_path: Path) -> None:
    printed, warnings = checked(tmp_path, '[routing]\nstrategy = "smrt"\n')
    assert 'strategy = "smart"' in printed
    assert "there is no strategy 'smrt', so 'smart' is used (did you mean \"smart\"?)" in warnings


def test_settings_of_a_launch_without_effect_are_told(tmp_path: Path) -> None:
    text = '[models.m]\nargs = ["-ngl", "99"]\ncontext_length = 4096\n'
    warning = "models.m.args has no effect: without driver, path, source and command, no engine is launched"
    assert [line.partition("warning: ")[2] for line in checked(tmp_path, text)[1].splitlines()] == [warning]


def test_settings_of_rescheduling_without_effect_are_told(tmp_path: Path) -> None:
    warning = "rescheduling.migrators has no effect while rescheduling.enabled is false"
    assert warning in checked(tmp_path, '[rescheduling]\nmigrators = ["nosuch"]')[1]


SERVER = '[backends.{0}]\ndriver = "{1}"\nurl = "http://127.0.0.1:9"\nrole = "{2}"\n'


@pytest.mark.parametrize(
    ("driver", "roles", "strategy", "warning"),
    [
        (
            "sglang",
            ("prefill", "decode"),
            "smart",
            "backends.b0.role, backends.b1.role: 'smart' sends each request to one server, which serves none alone; "
            "set routing.strategy to 'llumnix_load' or 'slo'",
        ),
        (
            "vllm",
            ("prefill", "decode"),
            "smart",
            "backends.b0.role, backends.b1.role: 'smart' sends each request to one server, which reads the prompt and "
            "answers alone; set routing.strategy to 'llumnix_load' or 'slo'",
        ),
        (
            "sglang",
            ("decode", "neutral"),
            "llumnix_load",
            "backends.b0.role: a server of sglang with this role serves no request alone, and none has the role "
            "'prefill'",
        ),
        ("sglang", ("prefill", "decode"), "slo", ""),
        ("vllm", ("decode", "decode"), "smart", ""),
        ("llamacpp", ("prefill", "decode"), "smart", ""),
    ],
)
def test_servers_that_would_find_no_other_half_are_told(
    tmp_path: Path, driver: str, roles: tuple[str, str], strategy: str, warning: str
) -> None:
    servers = [SERVER.format(f"b{number}", driver, role) for number, role in enumerate(roles)]
    text = f'{"".join(servers)}[routing]\nstrategy = "{strategy}"\n'
    assert checked(tmp_path, text)[1].partition("warning: ")[2].strip() == warning


def test_a_strategy_that_pairs_them_may_be_missing(tmp_path: Path) -> None:
    servers = SERVER.format("a", "sglang", "prefill") + SERVER.format("b", "sglang", "decode")
    _, told = checked(tmp_path, f'{servers}[plugins]\ndisabled = ["rescheduling"]\n')
    assert told.strip().endswith("set routing.strategy to one that pairs them, which a plugin brings")


@pytest.mark.parametrize("kind", ["policies", "migrators"])
def test_an_unknown_part_of_rescheduling_is_refused(refusal: Refusal, kind: str) -> None:
    by_check, by_serve = refusal(f'[rescheduling]\nenabled = true\n{kind} = ["nosuch"]')
    assert str(by_check) == str(by_serve)
    assert f"rescheduling.{kind}: unknown" in str(by_check)


SCHEDULER_METHODS = (
    *("reconfigure", "on_request", "on_swap_done", "on_serve_done", "on_cancel", "on_unload", "on_stopped", "on_tick"),
    *("on_shutdown", "waiting"),
)
FAULTS = {
    "constructor": (
        "extractor",
        "class Bad(Extractor):\n def __init__(self): raise KeyError('k')\n def extract(self, a, b): ...",
    ),
    "observer": ("observer", "class Bad(Observer):\n def __init__(self): raise SystemExit(2)"),
    "strategy.use": (
        "strategy",
        "class Bad(Strategy):\n def use(self, scorers): raise KeyError('k')\n def pick(self, a, b): return b[0]",
    ),
    "swapper.prepare": (
        "swapper",
        "class Bad(Swapper):\n def prepare(self, host): raise KeyError('k')\n def eviction_for(self, a, b): return ()",
    ),
    "driver.command": (
        "driver",
        "from enginehouse.drivers import SupportsLaunch\nfrom enginehouse_kit.drivers import OpenAICompatibleDriver\n"
        "class Bad(OpenAICompatibleDriver, SupportsLaunch):\n def command(self, spec): raise KeyError('k')",
    ),
    "scheduler.prepare": (
        "scheduler",
        "class Bad(Scheduler):\n def prepare(self, a, b, c, d): raise KeyError('k')\n"
        + "".join(f" def {name}(self, *a): ...\n" for name in SCHEDULER_METHODS),
    ),
    "protocol.open": (
        "protocol",
        "from enginehouse_kit.protocols import Protocol\n"
        "class Bad(Protocol):\n name, paths = 'bad', ()\n def open(self, folder): raise KeyError('k')\n"
        " def translate(self, request): ...\n def error(self, status, envelope): ...",
    ),
    "routes": ("routes", "def Bad(): return None"),
    "routes of another kind": ("routes", "def Bad(): return ['/x']"),
}
CHOSEN = {
    "strategy": '[routing]\nstrategy = "bad"\n',
    "swapper": '[scheduling]\nswapper = "bad"\n',
    "scheduler": '[scheduling]\nscheduler = "bad"\n',
    "driver": '[models.n]\ndriver = "bad"\n',
}


def hook(kind: str) -> str:
    return next(each.hook for each in KINDS if each.name == kind)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_plugin_that_cannot_start_is_named(refusal: Refusal, install: Install, fault: str) -> None:
    kind, source = FAULTS[fault]
    install("acme", f"{source}\n@hookimpl\ndef {hook(kind)}(register): register('bad', Bad)\n")
    by_check, by_serve = refusal(MODEL + CHOSEN.get(kind, ""))
    assert isinstance(by_check, PluginError)
    assert str(by_check) == str(by_serve)
    assert "plugin 'acme' from enginehouse-acme 1.2.3: the " in str(by_check)
    assert "'bad'" in str(by_check)


@pytest.mark.parametrize("fault", ["constructor", "observer", "strategy.use", "routes"])
def test_skip_leaves_out_a_plugin_that_cannot_start(tmp_path: Path, install: Install, fault: str) -> None:
    kind, source = FAULTS[fault]
    install("acme", f"{source}\n@hookimpl\ndef {hook(kind)}(register): register('bad', Bad)\n")
    printed, warnings = checked(tmp_path, CHOSEN.get(kind, "") + '[plugins]\non_error = "skip"\n')
    assert "plugin 'acme' from enginehouse-acme 1.2.3" in warnings
    assert f'strategy = "{"smart" if kind == "strategy" else "cache_aware"}"' in printed


NEEDY = """
import msgspec
class Needy(Filter):
    class Config(msgspec.Struct):
        region: str
    def __init__(self, config): ...
    def keep(self, requirements, candidates): return candidates
    def why(self, requirements, candidate): return ""
@hookimpl
def register_filters(register): register("needy", Needy)
"""


def test_a_missing_parameter_is_told_with_the_table_that_needs_it(refusal: Refusal, install: Install) -> None:
    install("acme", NEEDY)
    by_check, _ = refusal("")
    assert isinstance(by_check, ConfigError)
    assert by_check.key == "plugins.needy.region"
    assert by_check.remedy == "add 'region' to [plugins.needy]"


def test_nothing_is_started_and_nothing_is_left(tmp_path: Path) -> None:
    before = set(Path(tmp_path).iterdir())
    checked(tmp_path, MODEL + "preload = true\n")
    assert set(tmp_path.iterdir()) - before == {tmp_path / "enginehouse.toml"}


def test_a_refusal_ends_the_process_without_a_traceback(tmp_path: Path) -> None:
    file = tmp_path / "enginehouse.toml"
    file.write_text(MODEL + '[hosts.local]\nlauncher = "locl"')
    command = [sys.executable, "-m", "enginehouse", "serve", "--port", "0", "--config", str(file)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "hosts.local.launcher: unknown launcher 'locl'" in result.stderr


@pytest.mark.parametrize(("options", "status"), [([], 0), (["--strict"], 1)])
def test_a_warning_is_an_error_where_that_is_asked_for(tmp_path: Path, options: list[str], status: int) -> None:
    file = tmp_path / "enginehouse.toml"
    file.write_text('[routing]\nstrategy = "smrt"\n')
    assert CliRunner().invoke(check, ["--config", str(file), *options]).exit_code == status
    told = CliRunner().invoke(check, ["--config", str(file), "--json", *options])
    assert (told.exit_code, json.loads(told.stdout)["ok"]) == (status, status == 0)


@pytest.mark.parametrize(
    ("host", "open"), [("0.0.0.0", True), ("::", True), ("127.0.0.2", False), ("localhost", False)]
)
@pytest.mark.parametrize("keys", [True, False])
def test_a_gateway_that_is_open_to_everyone_is_a_warning(tmp_path: Path, host: str, open: bool, keys: bool) -> None:
    auth = '[auth]\nkeys = [{ name = "a", key = "k-secret-1" }]\n' if keys else ""
    warnings = checked(tmp_path, f'[server]\nhost = "{host}"\n{auth}')[1]
    assert (f"whoever reaches {host} may use every model" in warnings) is (open and not keys)


@pytest.mark.parametrize("text", ["server:\n  port: 8080\n", "# ours\n---\nmodels:\n  a:\n    cmd: x\n"])
def test_yaml_is_recognised(tmp_path: Path, text: str) -> None:
    assert "this looks like YAML" in told(tmp_path, text)["remedy"]
    assert "YAML" not in told(tmp_path, "[server\n")["remedy"]
