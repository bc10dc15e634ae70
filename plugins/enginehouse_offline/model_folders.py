"""Walks the folders in which programs keep models: any folder, the Hugging Face cache, LM Studio's and Ollama's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_SNAPSHOTS = "snapshots"


def model_places(path: Path) -> Iterator[Path]:
    """``path``, and if it is a folder, every folder below it that may hold models, outer ones first.

    Leaves out hidden folders, and those whose contents another folder names: the blobs of the Hugging Face cache and of
    Ollama's store.
    """
    if path.is_file():
        yield path
        return
    for folder, inner, _ in os.walk(path):
        here = Path(folder)
        inner[:] = sorted(name for name in inner if _may_hold_models(here / name, inner))
        yield here


def _may_hold_models(folder: Path, siblings: list[str]) -> bool:
    if folder.name.startswith("."):
        return False
    if folder.name in ("blobs", "manifests", "refs"):
        return not {"blobs", "manifests"} <= set(siblings) and _SNAPSHOTS not in siblings
    return is_current(folder)


def is_current(path: Path) -> bool:
    """Whether ``path`` is in no snapshot of the Hugging Face cache, or in the newest one of its model."""
    for folder in (path, *path.parents):
        if folder.parent.name == _SNAPSHOTS and folder.parent.parent.name.startswith("models--"):
            return folder.name == _newest(folder.parent)
    return True


def _newest(snapshots: Path) -> str:
    """The revision that the branch ``main`` has; else the one that came last."""
    try:
        named = (snapshots.parent / "refs/main").read_text().strip()
    except OSError:
        named = ""
    if (snapshots / named).is_dir() and named:
        return named
    return max(snapshots.iterdir(), key=lambda folder: folder.stat().st_mtime).name
