from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from enginehouse_kit.installed.listing import Row
from enginehouse_kit.pytest_plugin import CheckType, StartEngine, StartGateway


def test_a_gateway_in_front_of_an_engine_is_two_fixtures(
    enginehouse_engine: StartEngine, enginehouse_gateway: StartGateway
) -> None:
    engine = enginehouse_engine("llama3:8b")
    gateway = enginehouse_gateway(f'[backends.gpu-1]\ndriver = "sim"\nurl = "{engine.url}"\n')

    assert gateway.until_health(**{"gpu-1": "healthy"})["backends"][0]["name"] == "gpu-1"


def test_installed_plugins_are_listed_and_checked(enginehouse_plugins: list[Row], enginehouse_check: CheckType) -> None:
    assert ("scorer", "load") in [(row.kind, row.type) for row in enginehouse_plugins]
    enginehouse_check("scorer", "load")


PROBE = """
import sys
import enginehouse
before = set(sys.modules)
import enginehouse_kit.pytest_plugin
print(sorted(name for name in set(sys.modules) - before if name.startswith(("enginehouse", "starlette", "http"))))
"""


def test_the_fixtures_import_nothing_before_a_test_needs_them() -> None:
    probe = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)

    assert probe.stdout == "['enginehouse_kit', 'enginehouse_kit.pytest_plugin']\n"


@pytest.mark.long
def test_pytest_brings_the_fixtures_without_a_word_in_a_conftest(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "def test_mine(enginehouse_check):\n    enginehouse_check('scorer', 'load')\n"
    )
    others = [f"-pno:{name}" for name in ("asyncio", "benchmark", "cacheprovider", "hypothesispytest", "xdist")]
    pytest = [sys.executable, "-m", "pytest", "-q", *others, "--rootdir", str(tmp_path)]

    with_fixtures = subprocess.run([*pytest, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path)
    without = subprocess.run(
        [*pytest, "-p", "no:enginehouse", str(tmp_path)], capture_output=True, text=True, cwd=tmp_path
    )

    assert "1 passed" in with_fixtures.stdout
    assert "fixture 'enginehouse_check' not found" in without.stdout
