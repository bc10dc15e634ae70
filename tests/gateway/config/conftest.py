from __future__ import annotations

from pathlib import Path

import pytest

from enginehouse.config.load_config import LoadedConfig, load_config
from enginehouse.domain.errors import ConfigError
from tests.support.config_files import Load, Refuse


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "enginehouse.toml"


@pytest.fixture
def load(file: Path) -> Load:
    def load(text: str = "", **environ: str) -> LoadedConfig:
        file.write_text(text, encoding="utf-8")
        return load_config(file, environ)

    return load


@pytest.fixture
def refuse(load: Load) -> Refuse:
    def refuse(text: str = "", **environ: str) -> ConfigError:
        with pytest.raises(ConfigError) as caught:
            load(text, **environ)
        return caught.value

    return refuse
