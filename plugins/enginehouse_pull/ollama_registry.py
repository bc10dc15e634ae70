"""Models of Ollama's registry, which speaks the protocol of container registries.

Source: https://github.com/opencontainers/distribution-spec, and the media types of Ollama's manifests.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from enginehouse import ModelSource
from enginehouse.errors import PullFailed
from enginehouse.model_sources import PulledModel, PullProgress, PullSettings
from enginehouse_pull.download import RemoteFile, download, inner_path, refusal
from enginehouse_pull.web import Refused, read

_NAME = re.compile(
    r"(?:(?:https?://)?(?:ollama\.com|registry\.ollama\.ai)/(?:(?P<user>\w[\w.-]*)/)?)?"
    r"(?P<model>\w[\w.-]*)(?::(?P<tag>[\w.-]+))?",
    re.ASCII,
)
_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_MODEL, _PROJECTOR = "application/vnd.ollama.image.model", "application/vnd.ollama.image.projector"
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


class _Layer(msgspec.Struct, rename="camel"):
    media_type: str
    digest: str
    size: int


class _Manifest(msgspec.Struct):
    layers: list[_Layer]


class OllamaRegistry(ModelSource):
    """``ollama.com/[USER/]MODEL[:TAG]``, or ``MODEL[:TAG]`` alone: the model as a GGUF file, with its projector."""

    def takes(self, name: str) -> bool:
        return _NAME.fullmatch(name) is not None

    def pull(self, name: str, settings: PullSettings, folder: Path, progress: PullProgress) -> PulledModel:
        found = _NAME.fullmatch(name)
        assert found is not None
        user, model, tag = found["user"] or "library", found["model"], found["tag"] or "latest"
        address = f"{settings.registry.rstrip('/')}/v2/{user}/{model}"
        try:
            manifest, _ = read(f"{address}/manifests/{tag}", _Manifest, {"Accept": _MANIFEST})
        except Refused as error:
            raise refusal(error, f"'{name}'", "the registry keeps it private") from None
        place = inner_path("ollama", user, f"{model}-{tag}")
        pulled = download(_files(name, manifest, address, place, f"{model}-{tag}"), folder, progress)
        return PulledModel(path=pulled[0].path, files=pulled)


def _files(name: str, manifest: _Manifest, address: str, place: str, stem: str) -> Sequence[RemoteFile]:
    """The weights, then the projectors."""
    models = [layer for layer in manifest.layers if layer.media_type == _MODEL]
    if len(models) != 1:
        raise PullFailed(
            f"'{name}' has {len(models)} files of weights: it runs on a server of Ollama, or is of a new kind"
        )
    projectors = [layer for layer in manifest.layers if layer.media_type == _PROJECTOR]
    files = [(models[0], f"{stem}.gguf"), *((each, f"mmproj-{stem}.gguf") for each in projectors[:1])]
    return [_remote(layer, address, inner_path(place, file)) for layer, file in files]


def _remote(layer: _Layer, address: str, path: str) -> RemoteFile:
    found = _DIGEST.fullmatch(layer.digest)
    if found is None:
        raise PullFailed(f"{address} has a file with an unknown kind of checksum: {layer.digest}")
    return RemoteFile(url=f"{address}/blobs/{layer.digest}", path=path, size=layer.size, sha256=found[1])
