"""The pages whose sessions simulate. They take long, so another process may run them meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.doc_sessions import Terminal, follow


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page",
    [
        "how-to/plan-capacity.md",
        "how-to/compare-policies.md",
    ],
)
def test_a_session_goes_as_the_page_shows(
    page: str, terminal: Terminal, ports: Mapping[str, str], tmp_path: Path
) -> None:
    follow(page, terminal, ports, tmp_path)
