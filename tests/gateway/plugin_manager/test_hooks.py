from __future__ import annotations

import re

import pytest

from enginehouse.plugin_manager.kinds import KINDS, Kind, methods
from tests.support.doc_pages import page_text
from tests.support.paths import DOCS

PAGE = DOCS / "reference" / "hooks.md"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_hook_and_every_method_is_in_the_reference(kind: Kind) -> None:
    page = page_text(PAGE)

    title = kind.hook or "enginehouse.commands"
    assert f"| `{title}` |" in page
    assert f"\n## {title}\n" in page
    for name in methods(kind.interface) if kind.interface else ():
        assert re.search(rf"def {name}\(\s*self", page)
