from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import doc_pages
from tests.support.doc_pages import page_text
from tests.support.paths import DOCS, ROOT

SITE = "https://enginehouse.github.io/enginehouse/"
READMES = [
    path for folder in ("plugins", "contrib", "examples") for path in sorted((ROOT / folder).glob("*/README.md"))
]
_OTHERS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/figures.md", "tests/chaos/README.md")
PAGES = [*(ROOT / name for name in _OTHERS), *READMES]
PAGES += doc_pages.PAGES

_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_SITE_PAGE = re.compile(rf"^{re.escape(SITE)}([\w/-]+)/(?=#|$)")
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")


def links(page: Path) -> list[str]:
    """Where a page links to in this repository, links to pages of the site among them."""
    found = [_SITE_PAGE.sub(rf"{DOCS}/\1.md", link) for link in _LINK.findall(_CODE.sub("`", page_text(page)))]
    return [link for link in found if "://" not in link]


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", page_text(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    dead = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not (target.exists() or target in doc_pages.GENERATED) or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []


def test_the_index_leads_to_every_page() -> None:
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in links(DOCS / "index.md")}
    assert set(doc_pages.PAGES) - linked == {DOCS / "index.md"}


def test_the_site_has_every_page() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    assert {DOCS / page for page in re.findall(r"[\w/-]+\.md", navigation)} == set(doc_pages.PAGES)


def test_links_and_anchors_are_found() -> None:
    assert "how-to/configure.md" in links(DOCS / "index.md")
    assert {"secrets", "durations-and-sizes"} <= anchors(DOCS / "how-to" / "configure.md")
