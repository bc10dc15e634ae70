"""An import of Nexus's configuration never moves a backend or a model into another privacy zone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import tomli_w
from click.testing import CliRunner

from enginehouse import ConfigError
from enginehouse.cli import enginehouse
from enginehouse_importers import nexus
from enginehouse_importers.kit.table import Converted

RESTRICTED = {"model_pattern": "med-*", "privacy": "restricted"}
HOME = {"name": "home", "url": "http://10.0.0.2:8000", "type": "vllm"}


def converted(backend: dict[str, Any], *policies: dict[str, Any]) -> Converted:
    backends = [{"name": "b", "url": "http://10.0.0.1:8000", **backend}, HOME]
    return nexus.convert(tomli_w.dumps({"backends": backends, "routing": {"policies": list(policies)}}), "nexus.toml")


def dropped(config: dict[str, Any], model: str, folder: Path) -> set[str]:
    """The backends where a request for ``model`` may not go, as the gateway's own explanation says."""
    for backend in config["backends"].values():
        backend["models"] = [model]
    file, request = folder / "enginehouse.toml", folder / "request.json"
    file.write_text(tomli_w.dumps(config), "utf-8")
    request.write_bytes(msgspec.json.encode({"model": model, "messages": [{"role": "user", "content": "hi"}]}))
    words = ["explain", "route", "--config", str(file), "--request", str(request), "--json"]
    done = CliRunner(env={"KEY": "k"}).invoke(enginehouse, words)
    found = msgspec.json.decode(done.stdout)
    return {each["backend"] for each in found["candidates"] if each["dropped_by"] == "zone"}


@pytest.mark.parametrize("zone", ["Open", "open", "OPEN"])
def test_an_open_backend_gets_no_restricted_request(zone: str, tmp_path: Path) -> None:
    config = converted({"type": "vllm", "zone": zone}, RESTRICTED).config
    assert dropped(config, "med-1", tmp_path) == {"b"}
    assert dropped(config, "other", tmp_path) == set()


@pytest.mark.parametrize("zone", ["Restricted", "restricted"])
def test_a_restricted_backend_with_a_key_gets_them(zone: str, tmp_path: Path) -> None:
    config = converted({"type": "openai", "zone": zone, "api_key_env": "KEY"}, RESTRICTED).config
    assert dropped(config, "med-1", tmp_path) == set()


@pytest.mark.parametrize("privacy", ["restricted", "Restricted"])
@pytest.mark.parametrize("kind", ["openai", "anthropic", "google"])
def test_without_a_zone_the_type_decides_and_no_key(privacy: str, kind: str, tmp_path: Path) -> None:
    config = converted({"type": kind}, {**RESTRICTED, "privacy": privacy}).config
    assert dropped(config, "med-1", tmp_path) == {"b"}
    local = converted({"type": "lmstudio", "api_key_env": "KEY"}, RESTRICTED).config
    assert dropped(local, "med-1", tmp_path) == set()


@pytest.mark.parametrize(
    ("backend", "policy", "key"),
    [
        ({"type": "vllm", "zone": "confidential"}, RESTRICTED, "backends[0].zone"),
        ({"type": "vllm", "zone": ""}, RESTRICTED, "backends[0].zone"),
        ({"type": "vllm", "zone": ["Open"]}, RESTRICTED, "backends[0].zone"),
        ({"type": "strange"}, RESTRICTED, "backends[0].type"),
        ({}, RESTRICTED, "backends[0].type"),
        ({"type": "vllm"}, {**RESTRICTED, "privacy": "private"}, "routing.policies[0].privacy"),
        ({"type": "vllm"}, {**RESTRICTED, "privacy": True}, "routing.policies[0].privacy"),
        ({"type": "vllm"}, {"privacy": "restricted"}, "routing.policies[0].model_pattern"),
        ({"type": "vllm"}, {**RESTRICTED, "model_pattern": "{med,law}-*"}, "routing.policies[0].model_pattern"),
        ({"type": "vllm"}, {**RESTRICTED, "model_pattern": "[^a]*"}, "routing.policies[0].model_pattern"),
    ],
)
def test_what_nobody_knows_is_an_error(backend: dict[str, Any], policy: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as found:
        converted(backend, policy)
    assert (found.value.key, found.value.file) == (key, "nexus.toml")


def test_a_table_of_policies_is_an_error() -> None:
    with pytest.raises(ConfigError, match="expected a list"):
        nexus.convert(tomli_w.dumps({"routing": {"policies": RESTRICTED}}))


def test_a_policy_before_a_restricted_one_does_not_open_it(tmp_path: Path) -> None:
    found = converted({"type": "openai"}, {"model_pattern": "med-public*"}, RESTRICTED)
    assert dropped(found.config, "med-public-1", tmp_path) == {"b"}
    assert ("routing.policies[1]", 'models of "med-public*" that it matches too are restricted') in [
        (note.key, note.note.split(", though")[0]) for note in found.notes
    ]
