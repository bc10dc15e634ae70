from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from enginehouse.cli import enginehouse
from enginehouse.domain.errors import ConfigError

Explain = Callable[..., Result]


def decode(name: str, used: int, **fields: Any) -> dict[str, Any]:
    status = {"timestamp_ms": 900, "num_total_gpu_tokens": 1000, "num_used_gpu_tokens": used, "unknown": 1}
    return {"id": name, "role": "decode", "status": status, **fields}


VIEW = {
    "now_ms": 1000,
    "instances": [
        decode("d1", 900),
        decode("d2", 800),
        decode("d3", 300),
        decode("d4", 700, reserved="decode", requests=[{"id": "r", "prompt_tokens": 3}], address={"ip": "10.0.0.1"}),
        {"id": "n1", "status": {"timestamp_ms": 900, "schedulable": False}, "reserved": None, "data_parallel_size": 1},
        {"id": "n2", "status": {"timestamp_ms": 900}, "inflight": {}, "models": ["m"], "something": "else"},
    ],
}
CONFIG = """
[rescheduling]
decode_load_threshold = 0.8
load_balance_threshold = 0.2
"""


@pytest.fixture
def explain(tmp_path: Path) -> Explain:
    def run(*flags: str, view: object = VIEW, config: str = CONFIG) -> Result:
        (tmp_path / "enginehouse.toml").write_text(config)
        (tmp_path / "view.json").write_text(view if isinstance(view, str) else json.dumps(view))
        paths = ["--config", str(tmp_path / "enginehouse.toml"), "--view", str(tmp_path / "view.json")]
        return CliRunner(env={"COLUMNS": "200"}).invoke(enginehouse, ["explain", "rescheduling", *paths, *flags])

    return run


def test_the_explanation_has_the_shape_that_is_promised(explain: Explain) -> None:
    assert json.loads(explain("--json").stdout) == {
        "migrations": [
            {
                "policy": "decode_load",
                "source": "d1",
                "destination": "d3",
                "rule": "TOKEN",
                "order": "SR",
                "value": 1024,
            },
            {
                "policy": "neutral_failover",
                "source": "n1",
                "destination": "n2",
                "rule": "NUM_REQ",
                "order": "LR",
                "value": -1,
            },
        ],
        "dropped": [
            {
                "policy": "decode_load",
                "source": "d2",
                "destination": "d4",
                "why": "their loads differ by 0.1, less than load_balance_threshold (0.2)",
            }
        ],
    }


def test_people_get_a_table(explain: Explain) -> None:
    shown = explain().stdout

    assert "TOKEN SR 1024" in shown
    assert "their loads differ by 0.1" in shown
    assert explain(view={"now_ms": 1}).stdout == "nothing moves\n"


def test_adaptive_disaggregation_adds_its_policies(explain: Explain) -> None:
    busy = decode("busy", 0, status={"timestamp_ms": 900, **_decodes(300, 2_400_000)})
    light = decode("light", 0, status={"timestamp_ms": 900, **_decodes(3, 300)})
    view = {"now_ms": 1000, "instances": [busy, light, decode("light2", 0, status=light["status"])]}
    planned = json.loads(
        explain("--json", view=view, config="[rescheduling]\nadaptive_pd = true\npolicies = []").stdout
    )

    assert [(each["policy"], each["source"], each["destination"]) for each in planned["migrations"]] == [
        ("binpacking_consolidation", "light2", "light"),
        ("binpacking_mitigation", "busy", "light"),
    ]


def _decodes(requests: int, tokens: int) -> dict[str, int]:
    return {
        "scheduler_running_to_decode_requests_num": requests,
        "scheduler_running_to_decode_tokens_num": tokens,
    }


def test_named_requests_are_shown(explain: Explain) -> None:
    full = decode(
        "full",
        0,
        block_size=10,
        status={"timestamp_ms": 900, "num_total_gpu_tokens": 100, "num_used_gpu_tokens": 90},
        requests=[{"id": "r", "prompt_tokens": 85, "output_tokens": 1, "max_tokens": 100}],
    )
    view = {"now_ms": 1000, "instances": [full, decode("idle", 0, block_size=10)]}
    planned = json.loads(explain("--json", view=view, config='[rescheduling]\npolicies = ["kv_projection"]').stdout)

    assert [each["requests"] for each in planned["migrations"]] == [["r"]]


@pytest.mark.parametrize("view", [{}, {"instances": []}, {"instances": [{"id": "a"}], "colour": "red"}])
def test_what_is_absent_is_0_or_empty_and_what_is_unknown_is_ignored(explain: Explain, view: object) -> None:
    assert json.loads(explain("--json", view=view).stdout) == {"migrations": [], "dropped": []}


@pytest.mark.parametrize(
    ("view", "why"),
    [
        ("{", "is not the view of a cluster"),
        ({"instances": [{"role": "decode"}]}, "missing required field `id`"),
        ({"now_ms": 1, "instances": [{"id": "a", "role": "both"}]}, "Invalid enum value 'both'"),
        ({"now_ms": 1, "instances": [{"id": "a"}, {"id": "a"}]}, "has the instance 'a' twice"),
    ],
)
def test_another_file_is_refused(explain: Explain, view: object, why: str) -> None:
    result = explain("--json", view=view)

    assert isinstance(result.exception, ConfigError)
    assert why in str(result.exception)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ('[rescheduling]\npolicies = ["decode_loads"]', 'did you mean "decode_load"'),
        ('[rescheduling]\ndecode_load_metric = "kv"', "rescheduling.decode_load_metric"),
        ('[rescheduling]\nfailover_domain = "rack"', "failover_domain"),
    ],
)
def test_settings_that_no_policy_can_work_with_are_refused(explain: Explain, config: str, why: str) -> None:
    result = explain(config=config)

    assert isinstance(result.exception, ConfigError)
    assert why in str(result.exception)
