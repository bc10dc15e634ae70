"""Workflows, forms and compose files follow the published schemas. None of them can run here."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_jsonschema import main as check_jsonschema  # type: ignore[import-untyped]
from click.testing import CliRunner

from tests.support.paths import ROOT

FILES = {
    "vendor.github-workflows": ".github/workflows/*.yml",
    "vendor.github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
    "vendor.github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "vendor.compose-spec": "**/compose.yaml",
    "vendor.citation-file-format": "CITATION.cff",
}


@pytest.mark.parametrize("schema", FILES)
def test_files_follow_their_schema(schema: str) -> None:
    folders = [ROOT] if not FILES[schema].startswith("**") else [ROOT / "deploy", ROOT / "examples"]
    files = [str(file) for folder in folders for file in folder.glob(FILES[schema])]
    assert files
    checked = CliRunner().invoke(check_jsonschema, ["--builtin-schema", schema, *files])
    assert checked.exit_code == 0, checked.output


def test_a_wrong_workflow_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "wrong.yml").write_text("name: x\non: push\njobs: {test: {steps: []}}\n", "utf-8")
    checked = CliRunner().invoke(
        check_jsonschema, ["--builtin-schema", "vendor.github-workflows", str(tmp_path / "wrong.yml")]
    )
    assert checked.exit_code == 1
