"""What the container files promise, read as text: no image can be built without a registry."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from enginehouse.cli import enginehouse
from tests.support.paths import ROOT

CONTAINERFILES = sorted((ROOT / "deploy/containers").glob("Containerfile*"))
COMPOSE = ROOT / "deploy/compose"


@pytest.mark.parametrize("file", CONTAINERFILES, ids=lambda file: file.name)
def test_images_run_without_rights_and_say_how_they_are(file: Path) -> None:
    final = re.split(r"^FROM ", file.read_text("utf-8"), flags=re.MULTILINE)[-1]
    assert re.search(r"^USER 10001$", final, re.MULTILINE)
    assert "/health" in next(line for line in final.splitlines() if line.startswith("HEALTHCHECK"))
    assert 'ENTRYPOINT ["enginehouse"]' in final


def test_compose_mounts_files_that_exist() -> None:
    services = yaml.safe_load((COMPOSE / "compose.yaml").read_text("utf-8"))["services"]
    mounted = {volume.split(":")[0] for service in services.values() for volume in service.get("volumes", ())}
    missing = {path for path in mounted if path.startswith(".") and not (COMPOSE / path).exists()}
    assert missing == {"./models"}  # the user's


def test_compose_has_a_configuration_that_serves() -> None:
    checked = CliRunner().invoke(enginehouse, ["check", "--config", str(COMPOSE / "enginehouse.toml")])
    assert checked.exit_code == 0, checked.output
