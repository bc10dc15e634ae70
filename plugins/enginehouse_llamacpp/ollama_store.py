"""Reads Ollama's own store of models: manifests name the files among the blobs.

Source: https://github.com/opencontainers/image-spec (manifests), and the media types that Ollama writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

_MODEL, _PROJECTOR = "application/vnd.ollama.image.model", "application/vnd.ollama.image.projector"


class _Layer(msgspec.Struct, rename="camel"):
    media_type: str
    digest: str


class _Manifest(msgspec.Struct):
    layers: list[_Layer]


class StoredModel(msgspec.Struct, frozen=True):
    """A model of the store: its name, the file with its weights, and the one of its projector."""

    name: str
    weights: Path
    projector: Path | None


def stored_models(folder: Path) -> Sequence[StoredModel]:
    """The models of the store ``folder``; none if it is no store."""
    if not ((folder / "manifests").is_dir() and (folder / "blobs").is_dir()):
        return []
    return list(_stored(folder))


def _stored(store: Path) -> Iterator[StoredModel]:
    for file in sorted((store / "manifests").glob("*/*/*/*")):
        try:
            layers = msgspec.json.decode(file.read_bytes(), type=_Manifest).layers
        except (OSError, msgspec.DecodeError):
            continue  # another kind of file
        weights, projectors = _blobs(store, layers, _MODEL), _blobs(store, layers, _PROJECTOR)
        if len(weights) == 1:
            yield StoredModel(_name(file), weights[0], projectors[0] if projectors else None)


def _blobs(store: Path, layers: Sequence[_Layer], kind: str) -> list[Path]:
    blobs = [store / "blobs" / layer.digest.replace(":", "-") for layer in layers if layer.media_type == kind]
    return [blob for blob in blobs if blob.is_file()]


def _name(manifest: Path) -> str:
    """As Ollama shows it: ``llama3.2:1b``, or with a user before it."""
    user, model, tag = manifest.parts[-3:]
    return f"{model}:{tag}" if user == "library" else f"{user}/{model}:{tag}"
