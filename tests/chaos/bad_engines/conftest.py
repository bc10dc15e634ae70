from __future__ import annotations

from pathlib import Path

import pytest

from enginehouse.config.environment import STATE_DIR


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the gateways' state apart from that of this machine's."""
    monkeypatch.setenv(STATE_DIR, str(tmp_path))
