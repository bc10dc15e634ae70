from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from enginehouse import ConfigError
from enginehouse.config.load_config import read_document
from enginehouse.drivers import FoundModel, LaunchSpec, SupportsLaunch
from enginehouse_llamacpp import LlamaCppDriver
from enginehouse_offline.served_files import InstalledEngines, served_files
from enginehouse_vllm import VllmDriver
from tests.support.gguf_header import write_gguf

DRIVERS = InstalledEngines({"llamacpp": LlamaCppDriver(), "vllm": VllmDriver()})


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


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of both engines."""
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin", "llama-server", monkeypatch)
    program(tmp_path / "bin", "vllm", monkeypatch)


def paths(*places: Path) -> dict[str, str]:
    """The path of each model that is found."""
    return {name: table["path"] for name, table in served_files(places, DRIVERS).models.items()}


@pytest.mark.usefixtures("engines")
def test_files_and_folders_become_models(tmp_path: Path) -> None:
    gguf = write_gguf(tmp_path / "small.gguf", general__architecture="bert", bert__pooling_type=1)
    folder = hugging_face(tmp_path / "Qwen3-8B")
    found = served_files([tmp_path], DRIVERS)
    assert found.skipped == []
    assert found.models == {
        "small": {"driver": "llamacpp", "path": str(gguf), "options": {"embedding": True}},
        "Qwen3-8B": {"driver": "vllm", "path": str(folder)},
    }
    assert served_files([gguf, folder, gguf], DRIVERS) == found


@pytest.mark.usefixtures("engines")
def test_as_many_models_run_as_memory_has_room_for(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf")
    document = served_files([tmp_path], DRIVERS).document(8 << 30)
    config = read_document(document, None, {}).config
    assert (config.hosts["local"].memory, config.scheduling.swapper) == (8 << 30, "memory")


@pytest.mark.usefixtures("engines")
def test_models_are_found_at_any_depth(tmp_path: Path) -> None:
    place = tmp_path / "lmstudio/publisher/repo-GGUF"
    place.mkdir(parents=True)
    file = write_gguf(place / "m-Q4_K_M.gguf")
    write_gguf(tmp_path / "lmstudio/.hidden.gguf").rename(tmp_path / "hidden")
    assert paths(tmp_path) == {"m-Q4_K_M": str(file)}


@pytest.mark.usefixtures("engines")
def test_the_cache_of_hugging_face_has_one_revision_of_each_model(tmp_path: Path) -> None:
    for model, revisions in (("models--Qwen--Qwen3-8B", ("aaa", "bbb")), ("models--org--other", ("ccc",))):
        for revision in revisions:
            (tmp_path / model / "snapshots").mkdir(parents=True, exist_ok=True)
            hugging_face(tmp_path / model / "snapshots" / revision)
    (tmp_path / "models--Qwen--Qwen3-8B/refs").mkdir()
    (tmp_path / "models--Qwen--Qwen3-8B/refs/main").write_text("aaa")
    (tmp_path / "models--Qwen--Qwen3-8B/blobs").mkdir()
    assert paths(tmp_path) == {
        "Qwen3-8B": str(tmp_path / "models--Qwen--Qwen3-8B/snapshots/aaa"),
        "other": str(tmp_path / "models--org--other/snapshots/ccc"),
    }


@pytest.mark.usefixtures("engines")
def test_ollamas_store_has_the_names_of_ollama(tmp_path: Path) -> None:
    blobs, manifests = tmp_path / "blobs", tmp_path / "manifests/registry.ollama.ai"
    blobs.mkdir()
    write_gguf(blobs / "sha256-aa")
    write_gguf(blobs / "sha256-bb")
    kinds = (("model", "sha256:aa"), ("projector", "sha256:bb"), ("license", "sha256:cc"))
    layers = [{"mediaType": f"application/vnd.ollama.image.{kind}", "digest": digest} for kind, digest in kinds]
    for name in ("library/llama3.2/1b", "someone/own/latest"):
        (manifests / name).parent.mkdir(parents=True)
        (manifests / name).write_text(json.dumps({"layers": layers}))
    (manifests / "library/llama3.2/cloud").write_text(json.dumps({"layers": layers[2:]}))
    found = served_files([tmp_path], DRIVERS)
    assert found.models["llama3.2:1b"] == {
        "driver": "llamacpp",
        "path": str(blobs / "sha256-aa"),
        "options": {"mmproj": str(blobs / "sha256-bb")},
    }
    assert [problem.partition(" and ")[0] for problem in found.skipped] == []
    assert set(found.models) == {"llama3.2:1b", "someone/own:latest"}


def test_a_path_without_models_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ConfigError, match=r"notes.txt has no model .*give GGUF files"):
        served_files([tmp_path / "notes.txt"], DRIVERS)


@pytest.mark.usefixtures("engines")
def test_of_two_models_of_one_name_in_a_folder_the_second_is_left_out(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_gguf(tmp_path / name / "m.gguf")
    found = served_files([tmp_path], DRIVERS)
    assert found.models["m"]["path"] == str(tmp_path / "one/m.gguf")
    assert "two/m.gguf are both called 'm': the second is left out" in found.skipped[0]
    with pytest.raises(ConfigError, match=r"one/m.gguf and .*two/m.gguf are both called 'm' .*rename"):
        served_files([tmp_path / "one/m.gguf", tmp_path / "two/m.gguf"], DRIVERS)


@pytest.mark.usefixtures("engines")
def test_a_file_that_is_no_model_is_left_out_until_it_is_one(tmp_path: Path) -> None:
    write_gguf(tmp_path / "good.gguf")
    pointer = tmp_path / "bad.gguf"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\n")
    found = served_files([tmp_path], DRIVERS)
    assert (list(found.models), found.skipped) == (
        ["good"],
        [f"{pointer} cannot be read as a GGUF file: it does not begin with GGUF"],
    )
    with pytest.raises(ConfigError, match=r"it does not begin with GGUF .*Git LFS"):
        served_files([pointer], DRIVERS)
    write_gguf(pointer)
    assert list(served_files([tmp_path], DRIVERS).models) == ["bad", "good"]


@pytest.mark.usefixtures("engines")
def test_only_the_wanted_models_are_served(tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        write_gguf(tmp_path / f"{name}.gguf")
    assert list(served_files([tmp_path], DRIVERS, ["three", "one"]).models) == ["one", "three"]
    with pytest.raises(ConfigError, match=r"there is no model 'thre' .*three"):
        served_files([tmp_path], DRIVERS, ["thre"])


def test_the_engine_whose_program_is_there_serves_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = hugging_face(tmp_path / "m")
    program(tmp_path, "other-engine", monkeypatch)
    drivers = InstalledEngines({**DRIVERS.drivers, "other": Other()})
    assert served_files([folder], drivers).models["m"]["driver"] == "other"
    program(tmp_path, "vllm", monkeypatch)
    assert served_files([folder], drivers).models["m"]["driver"] == "vllm"


def test_missing_programs_are_named_with_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gguf(tmp_path / "a.gguf")
    hugging_face(tmp_path / "b")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = served_files([tmp_path], DRIVERS)
    assert re.search(r"'llama-server' .*\(`brew install llama.cpp`.*'vllm' .*\(`pip install vllm`\)", found.problem)
    assert list(found.models) == ["a", "b"]
    program(tmp_path, "vllm", monkeypatch)
    found = served_files([tmp_path], DRIVERS)
    assert (list(found.models), found.problem) == (["b"], "")
    assert found.skipped[0].startswith(f"a at {tmp_path / 'a.gguf'}: ")
    assert "brew install llama.cpp" in found.skipped[0]


def test_any_driver_may_find_models(tmp_path: Path) -> None:
    class Finder(SupportsLaunch):
        def command(self, spec: LaunchSpec) -> Sequence[str]:
            return [sys.executable, str(spec.port)]

        def find_models(self, path: Path) -> Sequence[FoundModel]:
            return [FoundModel(name=path.name, path=str(path), options={})]

    assert served_files([tmp_path], InstalledEngines({"finder": Finder()})).models[tmp_path.name]["driver"] == "finder"
