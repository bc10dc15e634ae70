from __future__ import annotations

import re
from pathlib import Path

import pytest

from enginehouse.config.schema import Config
from tests.support.doc_pages import GENERATED, PAGES, page_text
from tests.support.paths import DOCS, ROOT


@pytest.mark.parametrize("page", GENERATED, ids=lambda page: str(page.name))
def test_a_page_is_generated_from_the_code_and_not_in_git(page: Path) -> None:
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert page_text(page).startswith("# ")
    assert str(page.relative_to(ROOT)) in ignored


def test_the_configuration_has_all_tables_and_keys_of_the_top() -> None:
    page = page_text(DOCS / "reference/configuration.md")
    missing = [
        name for name in Config.__struct_fields__ if not re.search(rf"^(\| `|## `\[+){name}\b", page, re.MULTILINE)
    ]
    assert missing == []


def test_interfaces_show_what_a_plugin_may_set_and_go_through() -> None:
    hooks, types = page_text(DOCS / "reference/hooks.md"), page_text(DOCS / "reference/types.md")
    assert "    look_back: ClassVar[int] = 0\n" in hooks
    assert "    def __iter__(self) -> Iterator[GatewayRequest]: ...\n" in types
    assert not re.search(r"\.\.\. \.\.\.|# (noqa|type: ignore)", hooks + types)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tables_and_headings_are_whole(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page_text(page), flags=re.DOTALL | re.MULTILINE)
    for table in re.findall(r"^\|.*\n(?:.*\S.*\n)*", prose, re.MULTILINE):
        rows = table.splitlines()
        assert [row for row in rows if _cells(row) != _cells(rows[0])] == []
    assert [line for line in prose.splitlines() if line.startswith("#") and not line.strip("# ")] == []


def _cells(row: str) -> int:
    return len(re.findall(r"(?<!\\)\|", row))
