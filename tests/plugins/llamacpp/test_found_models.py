"""The GGUF files that ``enginehouse run`` finds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from enginehouse.drivers import FoundModel
from enginehouse_llamacpp import LlamaCppDriver
from tests.support.gguf_header import write_gguf


def found(path: Path) -> dict[str, tuple[str, Mapping[str, Any]]]:
    models: list[FoundModel] = list(LlamaCppDriver().find_models(path))
    return {model.name: (Path(model.path).name, model.options) for model in models}


def llama(folder: Path, *names: str) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        write_gguf(folder / name, general__architecture="llama")


def test_a_file_is_a_model_called_like_it(tmp_path: Path) -> None:
    llama(tmp_path, "Qwen3-8B-Q4_K_M.gguf", "other.gguf")
    assert found(tmp_path / "Qwen3-8B-Q4_K_M.gguf") == {"Qwen3-8B-Q4_K_M": ("Qwen3-8B-Q4_K_M.gguf", {})}


def test_a_folder_has_models_and_so_have_the_folders_below(tmp_path: Path) -> None:
    llama(tmp_path, "a.gguf")
    llama(tmp_path / "b", "b.gguf")
    (tmp_path / "notes.txt").touch()
    assert found(tmp_path) == {"a": ("a.gguf", {}), "b": ("b.gguf", {})}


def test_a_folder_that_must_not_be_read_hides_no_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    llama(tmp_path, "a.gguf")
    (tmp_path / "lost+found").mkdir()
    listed = Path.iterdir

    def iterdir(path: Path) -> Iterator[Path]:
        if path.name == "lost+found":
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    monkeypatch.setattr(os, "access", lambda path, mode: path.name != "lost+found")
    assert found(tmp_path) == {"a": ("a.gguf", {})}


def test_shards_are_one_model(tmp_path: Path) -> None:
    llama(tmp_path, "big-00001-of-00002.gguf", "big-00002-of-00002.gguf")
    for path in (tmp_path, tmp_path / "big-00001-of-00002.gguf", tmp_path / "big-00002-of-00002.gguf"):
        assert found(path) == {"big": ("big-00001-of-00002.gguf", {})}


def test_a_projector_belongs_to_the_only_model_or_to_the_one_that_it_names(tmp_path: Path) -> None:
    llama(tmp_path / "one", "gemma.gguf", "mmproj-F16.gguf")
    assert found(tmp_path / "one") == {"gemma": ("gemma.gguf", {"mmproj": str(tmp_path / "one" / "mmproj-F16.gguf")})}
    llama(tmp_path / "two", "gemma.gguf", "qwen.gguf", "mmproj-qwen-F16.gguf")
    projector = str(tmp_path / "two" / "mmproj-qwen-F16.gguf")
    assert found(tmp_path / "two") == {"gemma": ("gemma.gguf", {}), "qwen": ("qwen.gguf", {"mmproj": projector})}


def test_a_projector_stands_for_its_model(tmp_path: Path) -> None:
    """A shell's ``*.gguf`` names both."""
    names = ("gemma.gguf", "qwen.gguf", "mmproj-qwen-BF16.gguf", "mmproj-qwen-F16.gguf", "mmproj-other.gguf")
    llama(tmp_path, *names)
    models = {name: list(found(tmp_path / name)) for name in names}
    assert models == dict(zip(names, (["gemma"], ["qwen"], ["qwen"], ["qwen"], []), strict=True))
    assert found(tmp_path / names[2]) == found(tmp_path / names[3]) == found(tmp_path / "qwen.gguf")


def test_embedders_and_rerankers_are_launched_as_such(tmp_path: Path) -> None:
    write_gguf(tmp_path / "embedder.gguf", general__architecture="bert", bert__pooling_type=2)
    write_gguf(tmp_path / "reranker.gguf", general__architecture="bert", bert__pooling_type=4)
    (tmp_path / "broken.gguf").write_bytes(b"")
    assert found(tmp_path) == {
        "broken": ("broken.gguf", {}),
        "embedder": ("embedder.gguf", {"embedding": True}),
        "reranker": ("reranker.gguf", {"reranking": True}),
    }
