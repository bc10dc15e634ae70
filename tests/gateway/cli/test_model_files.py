from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from enginehouse import ConfigError, FoundModel, LaunchSpec, SupportsLaunch
from enginehouse.cli.model_files import check_programs, models_document
from enginehouse_llamacpp import LlamaCppDriver
from enginehouse_vllm import VllmDriver
from tests.support.gguf_header import write_gguf

DRIVERS: dict[str, SupportsLaunch] = {"llamacpp": LlamaCppDriver(), "vllm": VllmDriver()}


class Other(VllmDriver):
    """Another engine for the same folders."""

    how_to_install = "build it"

    def command(self, spec: LaunchSpec) -> Sequence[str]:
        return ["other-engine", str(spec.port)]


def hugging_face(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").touch()
    return folder


def program(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_files_and_folders_become_models(tmp_path: Path) -> None:
    gguf = write_gguf(tmp_path / "small.gguf", general__architecture="bert", bert__pooling_type=1)
    folder = hugging_face(tmp_path / "Qwen3-8B")
    assert models_document([tmp_path], DRIVERS) == {
        "models": {
            "small": {"driver": "llamacpp", "path": str(gguf), "options": {"embedding": True}},
            "Qwen3-8B": {"driver": "vllm", "path": str(folder)},
        }
    }
    assert models_document([gguf, folder, gguf], DRIVERS) == models_document([tmp_path], DRIVERS)


def test_a_path_without_models_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ConfigError, match=r"notes.txt has no model .*give GGUF files"):
        models_document([tmp_path / "notes.txt"], DRIVERS)


def test_two_models_of_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_gguf(tmp_path / name / "m.gguf")
    with pytest.raises(ConfigError, match=r"one/m.gguf and .*two/m.gguf are both called 'm' .*rename"):
        models_document([tmp_path], DRIVERS)


def test_the_engine_whose_program_is_there_serves_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = hugging_face(tmp_path / "m")
    program(tmp_path, "other-engine", monkeypatch)
    drivers = {**DRIVERS, "other": Other()}
    assert models_document([folder], drivers)["models"]["m"]["driver"] == "other"
    program(tmp_path, "vllm", monkeypatch)
    assert models_document([folder], drivers)["models"]["m"]["driver"] == "vllm"


def test_missing_programs_are_named_with_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gguf(tmp_path / "a.gguf")
    hugging_face(tmp_path / "b")
    monkeypatch.setenv("PATH", str(tmp_path))
    document = models_document([tmp_path], DRIVERS)
    with pytest.raises(
        ConfigError, match=r"'llama-server' .*\(`brew install llama.cpp`.*'vllm' .*\(`pip install vllm`\)"
    ):
        check_programs(document, DRIVERS)
    program(tmp_path, "vllm", monkeypatch)
    check_programs(document, DRIVERS)


def test_any_driver_may_find_models(tmp_path: Path) -> None:
    class Finder(SupportsLaunch):
        def command(self, spec: LaunchSpec) -> Sequence[str]:
            return ["finder", str(spec.port)]

        def find_models(self, path: Path) -> Sequence[FoundModel]:
            return [FoundModel(name=path.name, path=str(path), options={})]

    assert models_document([tmp_path], {"finder": Finder()})["models"][tmp_path.name]["driver"] == "finder"
