from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.doc_pages import GENERATED, page_text
from tests.support.paths import ROOT


@pytest.mark.parametrize("page", GENERATED, ids=lambda page: str(page.name))
def test_a_page_is_generated_from_the_code_and_not_in_git(page: Path) -> None:
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert page_text(page).startswith("# ")
    assert str(page.relative_to(ROOT)) in ignored
