"""What a release needs to agree on."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.support.paths import ROOT

VERSION = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)[0]
CHART = yaml.safe_load((ROOT / "deploy/helm/enginehouse/Chart.yaml").read_text("utf-8"))
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))


@pytest.mark.parametrize("version", [CHART["version"], CHART["appVersion"], CITATION["version"]])
def test_every_file_has_the_version_of_the_distribution(version: str) -> None:
    assert version == VERSION


def test_the_changelog_begins_with_what_is_unreleased_and_then_tells_the_version() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[:2] == ["Unreleased", VERSION]
