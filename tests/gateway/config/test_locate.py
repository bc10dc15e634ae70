from __future__ import annotations

from pathlib import Path

import pytest

from enginehouse.config import load_config as loading
from enginehouse.config.load_config import find_config, load_config
from enginehouse.domain.errors import ConfigError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, and an empty configuration folder of the user."""
    here, home = tmp_path / "here", tmp_path / "home"
    here.mkdir()
    home.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(loading, "user_config_path", lambda *_, **__: home)
    return home


def test_without_any_file_there_is_the_default(home: Path) -> None:
    assert find_config(None, {}) is None
    assert load_config(None, {}).file is None


def test_the_first_of_the_usual_places_wins(home: Path, tmp_path: Path) -> None:
    users = home / "enginehouse.toml"
    users.touch()
    assert find_config(None, {}) == users
    local = Path("enginehouse.toml")
    local.touch()
    assert find_config(None, {}) == local
    named = tmp_path / "named.toml"
    named.touch()
    assert find_config(None, {"ENGINEHOUSE_CONFIG": str(named)}) == named
    asked = tmp_path / "asked.toml"
    asked.touch()
    assert find_config(asked, {"ENGINEHOUSE_CONFIG": str(named)}) == asked


def test_an_empty_variable_names_no_file() -> None:
    assert find_config(None, {"ENGINEHOUSE_CONFIG": ""}) is None


def test_a_file_that_was_asked_for_must_exist() -> None:
    with pytest.raises(ConfigError, match=r"^nope\.toml: there is no such file \(create it, or change --config\)$"):
        find_config(Path("nope.toml"), {})
    with pytest.raises(ConfigError, match=r"\(create it, or change ENGINEHOUSE_CONFIG\)$"):
        find_config(None, {"ENGINEHOUSE_CONFIG": "nope.toml"})
