from __future__ import annotations

from pathlib import Path

import pytest

from enginehouse import ConfigError
from enginehouse.backends import FoundBackend
from enginehouse_discovery.static import StaticConfig, StaticDiscoverer, read_list
from enginehouse_kit.testing import PlayedServer, check_discoverer

TOML = b'[backends.a]\nurl = "http://a:1"\npriority = 2\n[backends.a.models.m]\ntools = true\n'
JSON = b'{"backends": {"a": {"url": "http://a:1", "priority": 2, "models": {"m": {"tools": true}}}}}'
A = FoundBackend(url="http://a:1", priority=2, models={"m": {"tools": True}})


class ListServer(PlayedServer):
    def get(self, path: str) -> tuple[int, object]:
        return (200, JSON) if path == "/list" else (404, {})


def test_it_conforms(tmp_path: Path) -> None:
    file = tmp_path / "backends.toml"
    file.write_bytes(TOML)
    check_discoverer(lambda: StaticDiscoverer(StaticConfig(file=str(file))))


@pytest.mark.parametrize("text", [TOML, JSON, b"\n  " + JSON])
def test_a_list_is_toml_or_json(text: bytes) -> None:
    assert read_list(text, "x") == {"a": A}


@pytest.mark.parametrize(
    "text",
    [
        b"[backends",
        b"{",
        b"\xff",
        b'{"backends": {"a": {}}}',
        b'{"backends": {"a": {"url": "x", "prio": 1}}}',
        b"a = 1",
    ],
)
def test_any_other_text_is_an_error_that_names_its_place(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"^/etc/list: "):
        read_list(text, "/etc/list")


@pytest.mark.parametrize(
    "config", [StaticConfig(), StaticConfig(file="x", url="http://y"), StaticConfig(url="file:///etc/passwd")]
)
def test_it_takes_a_file_or_an_http_address(config: StaticConfig) -> None:
    with pytest.raises(ConfigError):
        StaticDiscoverer(config)


async def test_a_list_at_a_url() -> None:
    with ListServer() as server:
        watch = StaticDiscoverer(StaticConfig(url=f"{server.url}/list", interval=0.001)).watch()
        assert await anext(watch) == await anext(watch) == {"a": A}


def test_an_empty_file_is_one_that_is_being_written() -> None:
    with pytest.raises(ValueError, match=r"/etc/list is empty: an empty table 'backends' withdraws them all"):
        read_list(b"\n", "/etc/list")
    assert read_list(b"[backends]", "/etc/list") == {}
