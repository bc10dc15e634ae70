from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from enginehouse.config.load import Loaded, load_config
from enginehouse.domain.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "enginehouse.toml"


@pytest.fixture
def load(file: Path) -> Callable[..., Loaded]:
    """Load a configuration file with this text in this environment."""

    def load(text: str = "", **environ: str) -> Loaded:
        file.write_text(text, encoding="utf-8")
        return load_config(file, environ)

    return load


@pytest.fixture
def refuse(load: Callable[..., Loaded]) -> Callable[..., ConfigError]:
    """The error that such a file is refused with."""

    def refuse(text: str = "", **environ: str) -> ConfigError:
        with pytest.raises(ConfigError) as caught:
            load(text, **environ)
        return caught.value

    return refuse
