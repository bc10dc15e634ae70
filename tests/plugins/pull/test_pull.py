"""Models are downloaded from servers that play the hub and the registry, also with faults."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from enginehouse.engines.pulled_models import PulledModels
from enginehouse.errors import PullFailed
from enginehouse.model_sources import PullSettings
from enginehouse_kit.testing import check_model_source, create
from tests.support.played_hub import PlayedHub, played_hub

WEIGHTS = bytes(range(256)) * 9000
"""2.3 MB: more than one piece."""
TYPES = ("hugging_face", "ollama", "url")
GEMMA = "hf.co/google/gemma-GGUF"


@pytest.fixture
def hub() -> Iterator[PlayedHub]:
    with played_hub() as hub:
        hub.repositories["google/gemma-GGUF"] = {
            "README.md": b"# Gemma",
            "gemma-Q8_0.gguf": b"eight" + WEIGHTS,
            "gemma-Q4_K_M.gguf": b"four" + WEIGHTS,
            "mmproj-gemma-f16.gguf": b"projector",
        }
        hub.repositories["big/sharded-GGUF"] = {
            f"Q4_K_M/sharded-Q4_K_M-0000{n}-of-00002.gguf": b"shard %d" % n for n in (1, 2)
        }
        hub.repositories["meta/llama"] = {
            "config.json": b"{}",
            "model.safetensors": WEIGHTS,
            "pytorch_model.bin": b"the same again",
            "onnx/model.onnx": b"and again",
        }
        hub.models["library/llama3.2:1b"] = [("model", WEIGHTS), ("template", b"{{ }}"), ("projector", b"eyes")]
        yield hub


class Puller(NamedTuple):
    models: PulledModels
    seen: list[tuple[int, int | None]]

    def pull(self, name: str) -> Path:
        return self.models.pull(name, lambda done, total: self.seen.append((done, total)))


@pytest.fixture
def puller(hub: PlayedHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Puller:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    settings = PullSettings(hub=hub.url, registry=hub.url, folder=str(tmp_path / "models"))
    return Puller(PulledModels(settings, [create("model_source", type) for type in TYPES]), [])


def files(hub: PlayedHub) -> list[str]:
    """The paths of the files that were asked for."""
    return [path for path, _ in hub.asked if "/resolve/" in path or "/blobs/" in path or "/files/" in path]


@pytest.mark.parametrize("type", TYPES)
def test_sources_keep_the_rules(type: str) -> None:
    check_model_source(lambda: create("model_source", type))


def test_a_quantisation_is_pulled_with_its_projector(puller: Puller, hub: PlayedHub) -> None:
    path = puller.pull(GEMMA + ":q8_0")

    assert path.read_bytes() == b"eight" + WEIGHTS
    assert (path.parent / "mmproj-gemma-f16.gguf").read_bytes() == b"projector"
    assert len(files(hub)) == 2
    assert puller.seen[-1] == (5 + len(WEIGHTS) + 9,) * 2


def test_without_a_quantisation_the_usual_one_is_pulled(puller: Puller) -> None:
    assert puller.pull(GEMMA).name == "gemma-Q4_K_M.gguf"


def test_an_unknown_quantisation_names_those_that_are_there(puller: Puller) -> None:
    with pytest.raises(PullFailed, match=r"'Q2_K'; its GGUF files are: gemma-Q4_K_M, gemma-Q8_0"):
        puller.pull(GEMMA + ":Q2_K")


def test_all_shards_are_pulled(puller: Puller) -> None:
    path = puller.pull("hf.co/big/sharded-GGUF")

    assert path.name == "sharded-Q4_K_M-00001-of-00002.gguf"
    assert path.with_name("sharded-Q4_K_M-00002-of-00002.gguf").read_bytes() == b"shard 2"


def test_a_repository_without_gguf_becomes_a_folder(puller: Puller) -> None:
    folder = puller.pull("huggingface.co/meta/llama")

    assert {file.name for file in folder.iterdir()} == {"config.json", "model.safetensors"}


def test_a_model_of_ollamas_registry_is_a_gguf_file(puller: Puller) -> None:
    path = puller.pull("llama3.2:1b")

    assert path.name == "llama3.2-1b.gguf"
    assert path.read_bytes() == WEIGHTS
    assert (path.parent / "mmproj-llama3.2-1b.gguf").read_bytes() == b"eyes"
    assert puller.pull("ollama.com/llama3.2:1b") == path


def test_a_file_of_any_address_is_pulled(puller: Puller, hub: PlayedHub) -> None:
    path = puller.pull(f"{hub.url}/google/gemma-GGUF/resolve/main/gemma-Q8_0.gguf")

    assert path.read_bytes() == b"eight" + WEIGHTS


def test_files_of_one_name_and_host_are_different_models(puller: Puller, hub: PlayedHub) -> None:
    contents = {"a/x": b"first" + WEIGHTS, "b/x": b"second"}
    hub.repositories |= {name: {"model.gguf": content} for name, content in contents.items()}
    paths = {name: puller.pull(f"{hub.url}/{name}/resolve/main/model.gguf") for name in contents}
    assert {name: path.read_bytes() for name, path in paths.items()} == contents
    told = {note.name.split("/")[3]: note.files[0].sha256 for note in puller.models.all()}
    assert told == {name[0]: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    puller.models.remove(puller.models.get(f"{hub.url}/a/x/resolve/main/model.gguf"))
    assert paths["b/x"].read_bytes() == b"second"


def test_what_is_left_of_a_file_of_an_unknown_size_is_no_model(puller: Puller, hub: PlayedHub) -> None:
    address = f"{hub.url}/google/gemma-GGUF/resolve/main/gemma-Q8_0.gguf"
    path = puller.pull(address)
    path.write_bytes(b"cut")
    assert puller.pull(address).read_bytes() == b"eight" + WEIGHTS


def test_another_file_of_the_same_size_is_replaced(puller: Puller, hub: PlayedHub) -> None:
    path = puller.models.folder / "google/gemma-GGUF/gemma-Q8_0.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"other" + WEIGHTS)
    assert puller.pull(GEMMA + ":Q8_0") == path
    assert path.read_bytes() == b"eight" + WEIGHTS


@pytest.mark.parametrize("left", ["config.json", "config.json.part"])
def test_a_file_without_a_checksum_is_not_that_of_an_older_revision(puller: Puller, left: str) -> None:
    folder = puller.models.folder / "meta/llama"
    folder.mkdir(parents=True)
    (folder / left).write_bytes(b"[]" if left == "config.json" else b"[")
    puller.pull("hf.co/meta/llama")
    [note] = puller.models.all()
    assert (folder / "config.json").read_bytes() == b"{}"
    told = {file.path: file.sha256 for file in note.files}["meta/llama/config.json"]
    assert told == hashlib.sha256(b"{}").hexdigest()


def test_a_file_may_have_any_name(puller: Puller, hub: PlayedHub) -> None:
    hub.repositories["google/gemma-GGUF"] = {"Géma 1#2 50%.GGUF": b"weights"}
    assert puller.pull(GEMMA).read_bytes() == b"weights"
    address = f"{hub.url}/google/gemma-GGUF/resolve/main/"
    assert puller.pull(f"{address}Géma 1%232 50%25.GGUF").read_bytes() == b"weights"


def test_a_hub_behind_a_proxy_has_several_pages_too(puller: Puller, hub: PlayedHub) -> None:
    """Some write the names of headers in small letters."""
    hub.link = "link"
    assert {file.name for file in puller.pull("hf.co/meta/llama").iterdir()} == {"config.json", "model.safetensors"}


def test_a_folder_that_cannot_be_written_is_told(hub: PlayedHub, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings = PullSettings(hub=hub.url, folder=str(tmp_path / "file" / "models"))
    models = PulledModels(settings, [create("model_source", "hugging_face")])
    with pytest.raises(PullFailed, match="models cannot be written: Not a directory"):
        models.pull(GEMMA, lambda done, total: None)


@pytest.mark.parametrize("name", ["http://[x/model.gguf", "modèle", "hf.co/orgé/repo"])
def test_a_name_that_no_address_can_have_is_no_model(puller: Puller, name: str) -> None:
    with pytest.raises(PullFailed, match="is not the name of a model"):
        puller.pull(name)


def test_no_name_is_no_model(puller: Puller) -> None:
    puller.pull("ollama.com/llama3.2:1b")
    puller.pull("llama3.2:1b")
    for note in puller.models.all()[1:]:
        puller.models.remove(note)
    with pytest.raises(PullFailed, match="No downloaded model is called ''"):
        puller.models.get("")


def test_what_is_there_is_not_pulled_again(puller: Puller, hub: PlayedHub) -> None:
    puller.pull(GEMMA)
    hub.asked.clear()

    puller.pull(GEMMA)

    assert hub.asked == []


def test_a_download_that_breaks_off_goes_on(puller: Puller, hub: PlayedHub) -> None:
    hub.breaks_after = [1_500_000, 400_000]

    path = puller.pull(GEMMA + ":Q8_0")

    assert path.read_bytes() == b"eight" + WEIGHTS
    ranges = [headers.get("Range") for path, headers in hub.asked if "Q8_0" in path]
    assert ranges == [None, "bytes=1500000-", "bytes=1900000-"]


def test_an_address_without_a_known_size_is_pulled_whole(puller: Puller, hub: PlayedHub) -> None:
    hub.breaks_after = [1_500_000]

    path = puller.pull(f"{hub.url}/google/gemma-GGUF/resolve/main/gemma-Q8_0.gguf")

    assert path.read_bytes() == b"eight" + WEIGHTS


def test_a_server_without_ranges_begins_anew(puller: Puller, hub: PlayedHub) -> None:
    hub.breaks_after, hub.ranges = [1_500_000], False

    assert puller.pull(GEMMA + ":Q8_0").read_bytes() == b"eight" + WEIGHTS


def test_a_server_that_gives_nothing_more_is_given_up_and_later_continued(
    puller: Puller, hub: PlayedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    hub.breaks_after = [1_500_000, 0, 0, 0, 0, 0]
    with pytest.raises(PullFailed, match="ended after 1500000 of"):
        puller.pull(GEMMA + ":Q8_0")
    assert puller.models.all() == []
    assert pauses == [0, 1, 2, 3, 4]

    hub.asked.clear()
    assert puller.pull(GEMMA + ":Q8_0").read_bytes() == b"eight" + WEIGHTS
    assert [headers.get("Range") for path, headers in hub.asked if "Q8_0" in path] == ["bytes=1500000-"]


def test_a_large_part_is_read_only_while_somebody_waits(
    puller: Puller, hub: PlayedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    hub.breaks_after = [2_200_000, 0, 0, 0, 0, 0]
    with pytest.raises(PullFailed):
        puller.pull(GEMMA + ":Q8_0")

    class Left(Exception):
        pass

    def leave(done: int, total: int | None) -> None:
        raise Left(f"at {done}")

    hub.asked.clear()
    with pytest.raises(Left, match=f"at {1 << 20}"):
        puller.models.pull(GEMMA + ":Q8_0", leave)
    assert files(hub) == []


def test_a_wrong_checksum_leaves_nothing(puller: Puller, hub: PlayedHub) -> None:
    hub.claims["gemma-Q8_0.gguf"] = {"oid": "0" * 64}

    with pytest.raises(PullFailed, match=r"gemma-Q8_0\.gguf is damaged"):
        puller.pull(GEMMA + ":Q8_0")
    assert not list(puller.models.folder.rglob("*Q8_0*"))


@pytest.mark.timeout(120)
def test_an_endless_file_ends(puller: Puller, hub: PlayedHub) -> None:
    hub.endless = True

    with pytest.raises(PullFailed, match="sends more than its"):
        puller.pull(GEMMA + ":Q8_0")


def test_a_full_disk_is_seen_before(puller: Puller, monkeypatch: pytest.MonkeyPatch, hub: PlayedHub) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 10**6))

    with pytest.raises(PullFailed, match=r"has 0\.0 GB free, and 0\.3 GB are needed"):
        puller.pull(GEMMA)
    assert files(hub) == []


def test_a_token_opens_a_gated_model_and_stays_with_the_hub(
    puller: Puller, hub: PlayedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories["google/gemma-GGUF"] = {"gemma-Q8_0.gguf": b"small"}
    hub.gated.add("google/gemma-GGUF")
    with pytest.raises(PullFailed, match=r"accept the model's terms .* set HF_TOKEN"):
        puller.pull(GEMMA)

    monkeypatch.setenv("HF_TOKEN", hub.token)
    with played_hub() as elsewhere:
        hub.elsewhere = elsewhere
        assert puller.pull(GEMMA).read_bytes() == b"small"

        assert files(elsewhere)
        assert all("Authorization" not in headers for _, headers in elsewhere.asked)


def test_an_unknown_model_is_told(puller: Puller) -> None:
    with pytest.raises(PullFailed, match=r"'hf\.co/no/such' does not exist"):
        puller.pull("hf.co/no/such")
    with pytest.raises(PullFailed, match=r"write hf\.co/ORG/REPO"):
        puller.pull("org/repo")


@pytest.mark.parametrize("name", ["../../evil.gguf", "/etc/evil.gguf", "a/../../evil.gguf"])
def test_no_file_lies_outside_of_the_folder(puller: Puller, hub: PlayedHub, name: str) -> None:
    hub.repositories["google/gemma-GGUF"] = {name: b"evil"}

    with pytest.raises(PullFailed, match="outside of the folder"):
        puller.pull(GEMMA)


def test_a_removed_model_leaves_what_others_share(puller: Puller) -> None:
    first, second = puller.pull(GEMMA + ":Q8_0"), puller.pull(GEMMA + ":Q4_K_M")

    puller.models.remove(puller.models.get(GEMMA + ":Q8_0"))

    assert not first.exists()
    assert second.exists()
    assert (second.parent / "mmproj-gemma-f16.gguf").exists()
    puller.models.remove(puller.models.get("gemma-Q4_K_M"))
    assert [path.name for path in puller.models.folder.iterdir()] == [".pulled"]
