"""The pages that are sessions in front of a running gateway."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.doc_sessions import Terminal, follow, shows


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page",
    [
        "tutorial/first-steps.md",
        "how-to/keys-and-limits.md",
        "how-to/usage.md",
        "how-to/waiting.md",
        "how-to/reload.md",
        "how-to/watch.md",
        "how-to/trace.md",
        "how-to/debug.md",
        "explanation/routing.md",
    ],
)
def test_a_session_goes_as_the_page_shows(
    page: str, terminal: Terminal, ports: Mapping[str, str], tmp_path: Path
) -> None:
    follow(page, terminal, ports, tmp_path)


def test_a_wrong_output_would_be_noticed() -> None:
    assert shows("a is up for 13 s\n│ b │ 2 │\n", "a ... for 4 s\nb   2")
    assert not shows("a is up for 13 s\n│ b │ 2 │\n", "b 3")
