"""The pages of the documentation: those that are in git, and those that ``make docs`` makes from the code."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from runpy import run_path

from tests.support.paths import DOCS

_MAKERS: dict[Path, Callable[[], str]] = run_path(str(DOCS / "generate.py"))["PAGES"]
GENERATED = tuple(_MAKERS)
WRITTEN = tuple(sorted(set(DOCS.rglob("*.md")) - set(GENERATED)))
PAGES = tuple(sorted({*WRITTEN, *GENERATED}))


@cache
def page_text(page: Path) -> str:
    """The text of a page. A generated page is made here, whatever an earlier ``make docs`` has left."""
    return _MAKERS[page]() if page in _MAKERS else page.read_text(encoding="utf-8")
