"""The default configuration, for a gateway without a file: two simulated models."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

from enginehouse.config.load_config import LoadedConfig, load_config
from enginehouse.config.locate import FILE_NAME, find_config


def load_config_or_embedded(file: Path | None, environ: Mapping[str, str]) -> LoadedConfig:
    """``load_config``, with the embedded default if there is no file. ``file`` of the result is then ``None``.

    Raises ``ConfigError``.
    """
    if find_config(file, environ) is not None:
        return load_config(file, environ)
    with TemporaryDirectory() as folder:
        embedded = Path(folder, FILE_NAME)
        embedded.write_bytes((files("enginehouse.config") / "default.toml").read_bytes())
        return load_config(embedded, environ)._replace(file=None)
