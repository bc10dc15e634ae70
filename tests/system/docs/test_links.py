from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

DOCS = ROOT / "docs"
READMES = [
    path for folder in ("plugins", "contrib", "examples") for path in sorted((ROOT / folder).glob("*/README.md"))
]
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/chaos/README.md")), *READMES]
PAGES += sorted(DOCS.rglob("*.md"))

_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")


def links(page: Path) -> list[str]:
    return [link for link in _LINK.findall(_CODE.sub("`", page.read_text("utf-8"))) if "://" not in link]


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    dead = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []


def test_the_index_leads_to_every_page() -> None:
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in links(DOCS / "index.md")}
    assert set(DOCS.rglob("*.md")) - linked == {DOCS / "index.md"}


def test_links_and_anchors_are_found() -> None:
    assert "how-to/configure.md" in links(DOCS / "index.md")
    assert {"secrets", "durations-and-sizes"} <= anchors(DOCS / "how-to" / "configure.md")
