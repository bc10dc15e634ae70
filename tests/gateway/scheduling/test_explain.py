"""From a configuration to a swap explained: ``explain swap``, ``check``, and what both are made of."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from enginehouse import ConfigError, EnginehouseError
from enginehouse.cli import enginehouse
from enginehouse.config.load_config import load_config
from enginehouse.config.schema import Config
from enginehouse.errors import LoadFailed, NotFound
from enginehouse.scheduling.scheduling_rules import facts_of_hosts, host_names, swapper_parameters
from enginehouse.tickets import HostedReplica

CONFIG = """
[hosts.local]
memory = "24GiB"
[hosts.far]
[models.small]
driver = "sim"
memory = "6GiB"
concurrency = 4
[models."org/large:70b"]
driver = "sim"
memory = "20GiB"
replicas = 2
[models.always]
driver = "sim"
memory = "1GiB"
pin = true
[models.distant]
driver = "sim"
host = "far"
[models.remote]
vision = true
[scheduling.priorities]
small = 10
"""
MATRIX = """
[scheduling]
swapper = "matrix"
[scheduling.matrix]
costs = { small = 3 }
[scheduling.matrix.sets]
standard = 'always & ("org/large:70b" | small)'
"""

Run = Callable[..., Result]


@pytest.fixture
def load(tmp_path: Path) -> Callable[[str], Config]:
    def load(text: str) -> Config:
        (tmp_path / "enginehouse.toml").write_text(text)
        return load_config(tmp_path / "enginehouse.toml", {}).config

    return load


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a command on a configuration."""

    def run(*arguments: str, config: str = "") -> Result:
        (tmp_path / "enginehouse.toml").write_text(CONFIG + config)
        return CliRunner().invoke(enginehouse, [*arguments, "--config", str(tmp_path / "enginehouse.toml")])

    return run


@pytest.fixture
def explain(run: Run) -> Callable[..., dict[str, Any]]:
    """The explanation that ``--json`` prints."""

    def explain(target: str, running: str = "", config: str = "") -> dict[str, Any]:
        result = run("explain", "swap", "--target", target, "--running", running, "--json", config=config)
        assert result.exit_code == 0, result.output
        explanation: dict[str, Any] = json.loads(result.stdout)
        return explanation

    return explain


def test_a_host_has_every_replica_that_is_launched_on_it(load: Callable[[str], Config]) -> None:
    config = load(CONFIG)

    local = facts_of_hosts(config)("local")
    assert (local.name, local.memory, local.elsewhere) == ("local", 24 * 1024**3, frozenset({"distant", "remote"}))
    assert list(local.replicas) == [
        "small@small",
        "org/large:70b@org/large:70b",
        "org/large:70b@org/large:70b-2",
        "always@always",
    ]
    assert local.replicas["small@small"] == HostedReplica(
        replica="small@small", model="small", memory=6 * 1024**3, priority=10, concurrency=4
    )
    assert local.replicas["always@always"].pin
    assert [*facts_of_hosts(config)("far").replicas] == ["distant@distant"]
    assert facts_of_hosts(config)("far").memory is None


def test_the_local_host_is_always_there(load: Callable[[str], Config]) -> None:
    assert list(host_names(load(""))) == ["local"]
    assert list(host_names(load("[hosts.far]\n[hosts.local]"))) == ["local", "far"]


def test_a_swapper_gets_the_table_that_is_for_it(load: Callable[[str], Config]) -> None:
    group = load('[models.a]\ndriver = "sim"\n[scheduling.groups.g]\nmembers = ["a"]\nswap = false')
    matrix = load(CONFIG + MATRIX)
    other = load('[scheduling]\nswapper = "mine"\n[plugins.mine]\nx = 1\n[scheduling.groups.g]\nmembers = []')

    rules = {"members": ["a"], "swap": False, "exclusive": True, "persistent": False}
    assert swapper_parameters(group) == {"groups": {"g": rules}}
    assert swapper_parameters(matrix) == {
        "vars": {},
        "costs": {"small": 3},
        "sets": {"standard": 'always & ("org/large:70b" | small)'},
    }
    assert swapper_parameters(other) == {"x": 1}


def test_the_explanation_has_the_shape_that_is_promised(explain: Callable[..., dict[str, Any]]) -> None:
    explanation = explain("org/large:70b", "small,always", MATRIX)

    assert list(explanation) == ["target", "evict", "set", "set_name", "cost"]
    assert explanation == {
        "target": "org/large:70b",
        "evict": ["small"],
        "set": ["always", "org/large:70b"],
        "set_name": "standard",
        "cost": 3,
    }


def test_each_bundled_swapper_is_explained(explain: Callable[..., dict[str, Any]]) -> None:
    group = explain("small", "org/large:70b, always")
    memory = explain("small", "org/large:70b", '[scheduling]\nswapper = "memory"')

    assert (group["evict"], group["set"]) == (["org/large:70b"], ["always", "small"])
    assert (memory["evict"], memory["set_name"], memory["cost"]) == (["org/large:70b"], None, None)


def test_models_of_other_hosts_are_ignored(explain: Callable[..., dict[str, Any]]) -> None:
    assert explain("small", "distant,org/large:70b")["evict"] == ["org/large:70b"]
    assert explain("distant", "small") == {
        "target": "distant",
        "evict": [],
        "set": ["distant"],
        "set_name": None,
        "cost": None,
    }


def test_without_json_there_is_a_sentence(run: Run) -> None:
    swap = run("explain", "swap", "--target", "org/large:70b", "--running", "small", config=MATRIX)
    idle = run("explain", "swap", "--target", "small")

    assert swap.stdout == "'org/large:70b' stops small; then run: org/large:70b, set 'standard', cost 3\n"
    assert idle.stdout == "'small' stops nothing; then run: small\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "smal"], "There is no model 'smal' to launch; did you mean \"small\"?"),
        (["--target", "remote"], "There is no model 'remote' to launch"),
        (["--target", "small", "--running", "alwys"], 'did you mean "always"?'),
    ],
)
def test_a_model_that_is_not_launched_is_an_error(run: Run, arguments: list[str], message: str) -> None:
    result = run("explain", "swap", *arguments)

    assert isinstance(result.exception, NotFound)
    assert message in str(result.exception)


def test_a_target_that_cannot_run_is_an_error(run: Run) -> None:
    config = '[scheduling]\nswapper = "memory"\n[models.huge]\ndriver = "sim"\nmemory = "30GiB"'

    result = run("explain", "swap", "--target", "huge", config=config)

    assert isinstance(result.exception, LoadFailed)
    assert "needs 30 GiB, host 'local' has 24 GiB" in str(result.exception)
    assert result.stdout == ""


def test_an_unknown_swapper_is_an_error(run: Run) -> None:
    result = run("explain", "swap", "--target", "small", config='[scheduling]\nswapper = "grup"')

    assert isinstance(result.exception, EnginehouseError)
    assert "scheduling.swapper: unknown swapper 'grup'" in str(result.exception)


def test_check_reads_the_rules_of_the_swapper(run: Run, tmp_path: Path) -> None:
    wrong = MATRIX + "bad = 'small & (always'"

    text, data = run("check", config=wrong), run("check", "--json", config=wrong)

    assert isinstance(text.exception, ConfigError)
    assert str(text.exception) == (
        f"{tmp_path / 'enginehouse.toml'}: scheduling.matrix.sets.bad: "
        "line 1, column 9: missing closing parenthesis\n"
        "    small & (always\n"
        "            ^ (close this one)"
    )
    [told] = json.loads(data.stdout)["errors"]
    assert (told["key"], told["remedy"]) == ("scheduling.matrix.sets.bad", "close this one")
    assert run("check", config=MATRIX).exit_code == 0


def test_check_refuses_a_swapper_that_is_not_installed(run: Run) -> None:
    assert run("check", config='[scheduling]\nswapper = "mine"').exit_code == 1
