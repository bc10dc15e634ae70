"""Models of the Hugging Face hub.

Source: https://huggingface.co/docs/hub/api (the list of files) and https://huggingface.co/docs/hub/gguf.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import quote

import msgspec

from enginehouse import ModelSource
from enginehouse.errors import PullFailed
from enginehouse.model_sources import PulledModel, PullProgress, PullSettings
from enginehouse_pull.download import RemoteFile, download, inner_path, refusal
from enginehouse_pull.web import Refused, read

HUB = "https://huggingface.co"
_NAME = re.compile(
    r"(?:https?://)?(?:hf\.co|huggingface\.co)/(?P<repo>\w[\w.-]*/\w[\w.-]*)(?::(?P<quant>[\w.-]+))?/?", re.ASCII
)
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})$")
_PREFERRED = ("Q4_K_M", "Q4_K_S", "Q4_0", "Q5_K_M", "Q8_0", "F16", "BF16")
"""What is taken where the name has no quantisation, the best compromise of size and quality first."""
_FOLDER_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.tiktoken", "*.py")
_NEXT_PAGE = re.compile(r'<([^>]+)>;\s*rel="next"')
_MOST_PAGES = 100


class _Large(msgspec.Struct):
    oid: str
    size: int


class _Entry(msgspec.Struct):
    type: str
    path: str
    size: int = 0
    lfs: _Large | None = None


class _Repository(msgspec.Struct):
    sha: str


class HuggingFace(ModelSource):
    """``hf.co/ORG/REPO[:QUANT]``: the GGUF file of that quantisation, else the folder of a Hugging Face model."""

    def takes(self, name: str) -> bool:
        return _NAME.fullmatch(name) is not None

    def pull(self, name: str, settings: PullSettings, folder: Path, progress: PullProgress) -> PulledModel:
        found = _NAME.fullmatch(name)
        assert found is not None
        hub, token = _hub(settings), os.environ.get("HF_TOKEN", "")
        try:
            files = _Listing(hub, found["repo"], token).files(found["quant"])
        except Refused as error:
            remedy = (
                "HF_TOKEN is set, but that account may not read it: accept the model's terms on its page"
                if token
                else f"accept the model's terms at {hub}/{found['repo']}, and set HF_TOKEN to a token of your account"
            )
            raise refusal(error, f"'{name}'", remedy) from None
        pulled = download(files, folder, progress, token)
        first = next((each.path for each in pulled if each.path.lower().endswith(".gguf")), "")
        return PulledModel(path=first or inner_path(found["repo"]), files=pulled)


def _hub(settings: PullSettings) -> str:
    return (settings.hub or os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")


class _Listing:
    """The files of a repository, as they are now: what is pulled does not mix two revisions."""

    def __init__(self, hub: str, repo: str, token: str) -> None:
        self._hub = hub
        self._repo = repo
        self._token = token

    def files(self, quant: str | None) -> Sequence[RemoteFile]:
        """The files to download. Raises ``PullFailed`` if there are none."""
        revision = read(f"{self._hub}/api/models/{self._repo}", _Repository, token=self._token)[0].sha
        listed = [entry for entry in self._entries(revision) if entry.type == "file"]
        chosen = _gguf_files(self._repo, listed, quant) if _ggufs(listed) else _folder_files(self._repo, listed, quant)
        return [self._remote(entry, revision) for entry in chosen]

    def _entries(self, revision: str) -> Iterator[_Entry]:
        page: str | None = f"{self._hub}/api/models/{self._repo}/tree/{revision}?recursive=true"
        for _ in range(_MOST_PAGES):
            if page is None:
                return
            entries, headers = read(page, list[_Entry], token=self._token)
            yield from entries
            link = _NEXT_PAGE.search(headers.get("link", ""))
            page = link[1] if link and link[1].startswith(self._hub + "/") else None

    def _remote(self, entry: _Entry, revision: str) -> RemoteFile:
        large = entry.lfs
        return RemoteFile(
            url=f"{self._hub}/{self._repo}/resolve/{revision}/{quote(inner_path(entry.path))}",
            path=inner_path(self._repo, inner_path(entry.path)),
            size=large.size if large else entry.size,
            sha256=large.oid if large else "",
        )


def _ggufs(entries: Sequence[_Entry]) -> list[_Entry]:
    return sorted(
        (entry for entry in entries if entry.path.lower().endswith(".gguf")), key=lambda entry: entry.path.lower()
    )


def _gguf_files(repo: str, entries: Sequence[_Entry], quant: str | None) -> list[_Entry]:
    """All shards of one model, and its projector if there is one."""
    ggufs = _ggufs(entries)
    models: dict[str, list[_Entry]] = {}
    for entry in ggufs:
        if "mmproj" not in entry.path.lower():
            models.setdefault(_SHARD.sub("", entry.path[: -len(".gguf")]), []).append(entry)
    chosen = _chosen(repo, models, quant)
    projectors = [entry for entry in ggufs if "mmproj" in entry.path.lower()]
    best = sorted(projectors, key=lambda entry: "f16" not in entry.path.lower().replace("bf16", ""))
    return [*models[chosen], *best[:1]]


def _chosen(repo: str, models: dict[str, list[_Entry]], quant: str | None) -> str:
    """The model of that quantisation; of several, the one with the shortest name."""
    for wanted in [quant] if quant else _PREFERRED:
        ends = re.compile(rf"(^|[-._/]){re.escape(wanted)}$", re.IGNORECASE)
        if fitting := [name for name in models if ends.search(name)]:
            return min(fitting, key=len)
    if quant or not models:
        known = ", ".join(sorted(PurePosixPath(name).name for name in models)) or "none"
        raise PullFailed(f"hf.co/{repo} has no model of the quantisation '{quant}'; its GGUF files are: {known}")
    return min(models, key=lambda name: sum(entry.size for entry in models[name]))


def _folder_files(repo: str, entries: Sequence[_Entry], quant: str | None) -> list[_Entry]:
    """The files at the root of the repository that engines read."""
    root = [entry for entry in entries if "/" not in entry.path]
    files = [entry for entry in root if any(PurePosixPath(entry.path).match(each) for each in _FOLDER_FILES)]
    if quant or not any(entry.path.endswith(".safetensors") for entry in files):
        missing = f"no GGUF file, so no quantisation '{quant}'" if quant else "neither a GGUF file nor safetensors"
        raise PullFailed(f"hf.co/{repo} has {missing}")
    return files
