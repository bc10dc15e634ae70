"""Finds GGUF files: models, their shards and their projectors, in folders and in Ollama's own store of models.

In the store, manifests name the files among the blobs: https://github.com/opencontainers/image-spec, with the media
types that Ollama writes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from enginehouse.drivers import FoundModel
from enginehouse_llamacpp.gguf_header import GgufError, read_gguf_header
from enginehouse_llamacpp.model_file import computes_embeddings, reranks

_SHARD = re.compile(r"-(\d{5})-of-\d{5}$")
_PROJECTOR = re.compile(r"(^|[-_.])mmproj([-_.]|$)", re.IGNORECASE)
_MODEL_LAYER, _PROJECTOR_LAYER = "application/vnd.ollama.image.model", "application/vnd.ollama.image.projector"


def find_models(path: Path) -> Sequence[FoundModel]:
    """The model in the file ``path``, or those in the folder ``path`` and in the folders directly below it.

    If ``path`` is Ollama's store, its models, under Ollama's names.

    A file whose name says ``mmproj`` is the projector of the only model beside it, or of the model that its name
    contains. It stands for that model, as a shard does.
    """
    if path.is_file():
        return _found_at(path) if path.suffix.lower() == ".gguf" else []
    if stored := stored_models(path):
        return [_found_in_store(each) for each in stored]
    folders = [path, *sorted(each for each in path.iterdir() if _is_readable(each))] if path.is_dir() else []
    return [_found(file, models) for folder in folders for models in [_models_among(folder)] for file in models]


def _is_readable(folder: Path) -> bool:
    """A volume has a ``lost+found``, which only root may read."""
    return folder.is_dir() and os.access(folder, os.R_OK | os.X_OK)


def _found_in_store(stored: StoredModel) -> FoundModel:
    options: dict[str, Any] = dict(_options(stored.weights))
    if stored.projector is not None:
        options["mmproj"] = str(stored.projector)
    return FoundModel(name=stored.name, path=str(stored.weights), options=options)


def _found_at(file: Path) -> Sequence[FoundModel]:
    beside = _models_among(file.parent)
    if _is_projector(file):
        return [_found(each, beside) for each in beside if file in _projectors(each, beside)]
    return [_found(_first_shard(file), beside)]


def _models_among(folder: Path) -> list[Path]:
    """The models of a folder, each by its first shard."""
    return [file for file in _gguf_files(folder) if not _is_projector(file) and _number(file) in (None, 1)]


def _gguf_files(folder: Path) -> Iterator[Path]:
    yield from (file for file in sorted(folder.iterdir()) if file.suffix.lower() == ".gguf" and file.is_file())


def _found(file: Path, beside: Sequence[Path]) -> FoundModel:
    options: dict[str, Any] = dict(_options(file))
    if projectors := _projectors(file, beside):
        options["mmproj"] = str(projectors[0])
    return FoundModel(name=_name(file), path=str(file), options=options)


def _projectors(file: Path, beside: Sequence[Path]) -> Sequence[Path]:
    """The projectors that belong to the model ``file``; the models ``beside`` it include itself."""
    found = [each for each in _gguf_files(file.parent) if _is_projector(each)]
    named = [each for each in found if _name(file).lower() in each.stem.lower()]
    return named or (found if len(beside) == 1 else [])


def _name(file: Path) -> str:
    return _SHARD.sub("", file.stem)


def _options(file: Path) -> Mapping[str, Any]:
    """The options for a model that embeds or reranks. Whoever serves the file reports that it cannot be read."""
    try:
        header = read_gguf_header(file)
    except GgufError:
        return {}
    if reranks(header):
        return {"reranking": True}
    return {"embedding": True} if computes_embeddings(header) else {}


def _is_projector(file: Path) -> bool:
    return _PROJECTOR.search(file.stem) is not None


def _first_shard(file: Path) -> Path:
    found = _SHARD.search(file.stem)
    return file if found is None else file.with_name(f"{file.stem[: found.start(1)]}00001{file.name[found.end(1) :]}")


def _number(file: Path) -> int | None:
    found = _SHARD.search(file.stem)
    return int(found[1]) if found else None


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
        weights, projectors = _blobs(store, layers, _MODEL_LAYER), _blobs(store, layers, _PROJECTOR_LAYER)
        if len(weights) == 1:
            yield StoredModel(_stored_name(file), weights[0], projectors[0] if projectors else None)


def _blobs(store: Path, layers: Sequence[_Layer], kind: str) -> list[Path]:
    blobs = [store / "blobs" / layer.digest.replace(":", "-") for layer in layers if layer.media_type == kind]
    return [blob for blob in blobs if blob.is_file()]


def _stored_name(manifest: Path) -> str:
    """As Ollama shows it: ``llama3.2:1b``, or with a user before it."""
    user, model, tag = manifest.parts[-3:]
    return f"{model}:{tag}" if user == "library" else f"{user}/{model}:{tag}"
