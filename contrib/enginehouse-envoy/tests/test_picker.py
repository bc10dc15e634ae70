"""What a picker refuses to begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from enginehouse import ConfigError
from enginehouse.picking import Picker


def test_guards_that_would_see_no_request_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "enginehouse.toml"
    file.write_text('guards = ["secrets"]\n')
    with pytest.raises(ConfigError, match="guards see no request that a proxy carries"):
        Picker(file)
