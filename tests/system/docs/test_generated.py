from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.support.paths import DOCS

PAGES: dict[Path, str] = runpy.run_path(str(DOCS / "generate.py"))["pages"]()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_a_generated_page_is_up_to_date(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == PAGES[page], "run `make docs`"
