"""Models that cannot run together cannot both be preloaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from enginehouse.app.plan import GatewayPlan
from enginehouse.config.load_config import load_config
from enginehouse.config.schema import PluginSettings
from enginehouse.domain.errors import ConfigError
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.relay.upstream.outside import Outside

MODELS = "".join(f'[models.{name}]\ndriver = "sim"\npreload = true\nmemory = "2GiB"\n' for name in "ab")
THIRD = '[models.c]\ndriver = "sim"\npreload = true\n'
APART = '[scheduling]\nswapper = "matrix"\n[scheduling.matrix.sets]\none = "a"\ntwo = "b"\n'
PAIRS = '[scheduling]\nswapper = "matrix"\n[scheduling.matrix.sets]\none = "a & b"\ntwo = "b & c"\nthree = "a & c"\n'
MEMORY = '[scheduling]\nswapper = "memory"\n[hosts.local]\nmemory = "{}"\n'
GROUP = '[scheduling.groups.g]\nmembers = ["a", "b"]\nswap = {}\n'


def check(path: Path, text: str) -> None:
    file = path / "enginehouse.toml"
    file.write_text(text)
    GatewayPlan(load_config(file, {}).config, load_plugins(PluginSettings()).registry, Outside(), {}).check_launches({})


@pytest.mark.parametrize(
    ("text", "key", "problem"),
    [
        (MODELS, "models.b.preload", "loading it stops 'a', preloaded too"),
        (MODELS + GROUP.format("true"), "models.b.preload", "loading it stops 'a', preloaded too"),
        (MODELS + APART, "models.b.preload", "loading it stops 'a', preloaded too"),
        (MODELS + THIRD + PAIRS, "models.c.preload", "preloaded too"),
        (MODELS + MEMORY.format("3GiB"), "models.b.preload", "loading it stops 'a', preloaded too"),
    ],
)
def test_preloads_that_stop_each_other_are_refused(tmp_path: Path, text: str, key: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check(tmp_path, text)
    assert raised.value.key == key
    assert problem in raised.value.problem
    assert "preload only one of them" in raised.value.remedy


@pytest.mark.parametrize(
    "text",
    [
        MODELS + GROUP.format("false"),
        MODELS + MEMORY.format("4GiB"),
        MODELS.replace("preload = true", "preload = true\npin = true"),
        '[models.a]\ndriver = "sim"\npreload = true\nreplicas = 3\n[models.b]\ndriver = "sim"\n',
        '[hosts.far]\n[models.a]\ndriver = "sim"\npreload = true\n'
        '[models.b]\ndriver = "sim"\npreload = true\nhost = "far"\n',
    ],
)
def test_preloads_that_run_together_are_accepted(tmp_path: Path, text: str) -> None:
    check(tmp_path, text)
