"""Reads the folder of a Hugging Face model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from enginehouse import Capabilities, ConfigError

_WEIGHTS = ("*.safetensors", "*.bin")
_LOCAL = ("/", "./", "../", "~")


def read_model_folder(path: str) -> Capabilities:
    """Read the capabilities from ``config.json`` in the folder ``path``; all unknown if ``path`` is a model on a hub.

    The context length is unknown if positions are scaled, because engines do that in different ways. Raises
    ``ConfigError`` for a file that cannot be read.
    """
    file = Path(path) / "config.json"
    if not file.is_file():
        return Capabilities()
    try:
        config = msgspec.json.decode(file.read_bytes(), type=_ModelConfig)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None
    text = config.text_config or config
    return Capabilities(
        context_length=None if text.rope_scaling else text.max_position_embeddings,
        vision=True if config.vision_config else None,
    )


def find_model_folders(path: Path) -> Sequence[Path]:
    """Return those of ``path`` and the folders directly below it that have a ``config.json`` and weights."""
    folders = [path, *sorted(each for each in path.iterdir() if each.is_dir())] if path.is_dir() else []
    return [each.absolute() for each in folders if _is_model_folder(each)]


def _is_model_folder(folder: Path) -> bool:
    try:
        return (folder / "config.json").is_file() and any(any(folder.glob(weights)) for weights in _WEIGHTS)
    except PermissionError:  # such as lost+found
        return False


def model_folder_name(folder: Path) -> str:
    """The name of the model in ``folder``: that of the folder, or of the repository in the Hugging Face cache."""
    repository = folder.parent.parent.name
    if folder.parent.name == "snapshots" and repository.startswith("models--"):
        return repository.rpartition("--")[2]
    return folder.name


def missing_folder(path: str) -> str:
    """Return an error text if ``path`` is a local path that does not exist; else an empty text."""
    if path.startswith(_LOCAL) and not Path(path).exists():
        return f"there is no folder {path} (download the model, or correct the path)"
    return ""


class _ModelConfig(msgspec.Struct):
    max_position_embeddings: int | None = None
    rope_scaling: dict[str, object] | None = None
    vision_config: dict[str, object] | None = None
    text_config: _ModelConfig | None = None
