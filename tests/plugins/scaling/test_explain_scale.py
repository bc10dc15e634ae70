from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from enginehouse.cli import enginehouse
from enginehouse.domain.errors import ConfigError, GatewayError

CONFIG = """
[server]
port = 1
[models.m]
driver = "sim"
replicas = { min = 1, max = 3 }
[models.elsewhere]
replicas = { max = 8 }
[models.fixed]
driver = "sim"
replicas = 2
"""


def explained(tmp_path: Path, *arguments: str, state: Any = None) -> Any:
    file = tmp_path / "enginehouse.toml"
    file.write_text(CONFIG)
    given = [] if state is None else ["--state", "-"]
    command = ["explain", "scale", "--config", str(file), "--json", *given, *arguments]
    result = CliRunner().invoke(enginehouse, command, input=json.dumps(state), catch_exceptions=True)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return json.loads(result.stdout)


def test_the_configured_scaler_decides_by_a_given_state(tmp_path: Path) -> None:
    state = {"models": {"m": {"replicas": 1, "slots": 4, "serving": 4, "waiting": 9, "expected_wait_s": 3.5}}}
    assert explained(tmp_path, state=state) == {
        "models": [
            {"model": "m", "replicas": 1, "wanted": 2, "why": "requests wait 3.5 s, more than 2s"},
            {"model": "elsewhere", "replicas": 0, "wanted": 0, "why": "no request waits, 0 are served"},
        ]
    }


def test_without_a_gateway_every_model_is_idle(tmp_path: Path) -> None:
    found = explained(tmp_path)["models"]
    assert [(each["model"], each["replicas"], each["wanted"]) for each in found] == [("m", 1, 1), ("elsewhere", 0, 0)]


def test_a_gateway_that_is_named_must_answer(tmp_path: Path) -> None:
    with pytest.raises(GatewayError, match="No gateway can be reached"):
        explained(tmp_path, "--url", "http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("state", "said"),
    [({"models": {"fixed": {}}}, "'fixed' has no replicas"), ({"models": {"m": {"speed": 1}}}, "is not the load")],
)
def test_a_state_that_does_not_fit_is_refused(tmp_path: Path, state: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        explained(tmp_path, state=state)
