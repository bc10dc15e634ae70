from __future__ import annotations

import inspect
import re
from runpy import run_path

import pytest

from enginehouse import hookspecs
from enginehouse.plugin_manager.kinds import KINDS, Kind, methods
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "reference" / "hooks.md"


def hooks_page() -> str:
    page: str = run_path(str(ROOT / "docs" / "pages" / "hooks.py"))["hooks_page"]()
    return page


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.hook)
def test_every_hook_says_what_it_is_for(kind: Kind) -> None:
    assert (inspect.getdoc(getattr(hookspecs, kind.hook)) or "").startswith("Register ")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.hook)
def test_every_hook_and_every_method_is_in_the_reference(kind: Kind) -> None:
    page = PAGE.read_text()

    assert f"| `{kind.hook}` |" in page
    assert f"\n## {kind.hook}\n" in page
    for name in methods(kind.interface) if kind.interface else ():
        assert re.search(rf"def {name}\(self", page)


def test_the_reference_is_up_to_date() -> None:
    assert PAGE.read_text() == hooks_page(), "run `make docs`"
