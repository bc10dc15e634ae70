"""Reloads one after the other, and never of a gateway that stops: with a source that the test holds in its hands."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enginehouse.app import Gateway
from enginehouse.app import reload as reload_module
from enginehouse.app.reload import ConfigSource, Reloader
from enginehouse.config.environment import STATE_DIR
from enginehouse.config.load_config import LoadedConfig
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.domain.errors import ConfigError, ShuttingDown
from enginehouse.domain.usage import AuditEntry
from enginehouse.plugin_manager.discovery import load_plugins
from tests.support.waiting import until


def config(retries: int = 0, **server: Any) -> Config:
    return msgspec.convert({"routing": {"max_retries": retries}, "server": server}, Config)


class Text:
    """What the file says, and whether it can be read now."""

    def __init__(self) -> None:
        self.says: Config | Exception = config()
        self.reads = 0
        self.may_be_read = threading.Event()
        self.may_be_read.set()

    def read(self) -> LoadedConfig:
        said = self.says
        self.reads += 1
        assert self.may_be_read.wait(10)
        if isinstance(said, Exception):
            raise said
        return LoadedConfig(said, None, ("odd",))


@pytest.fixture
def text() -> Text:
    return Text()


@pytest.fixture
async def gateway(text: Text, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gateway]:
    monkeypatch.setenv(STATE_DIR, str(tmp_path))
    monkeypatch.setattr(reload_module, "_LOOK_EVERY_S", 0.005)
    monkeypatch.setattr(reload_module, "_QUIET_S", 0.005)
    monkeypatch.setattr(reload_module, "_EMPTY_S", 0.005)
    (tmp_path / "file").write_text("")
    source = ConfigSource(text.read, tmp_path / "file")
    gateway = Gateway(config(watch=True), load_plugins(PluginSettings(enabled=[])).registry, source=source)
    await gateway.start()
    await gateway.settled()
    yield gateway
    text.may_be_read.set()
    await gateway.stop()


async def test_who_asks_while_another_one_is_served_waits_for_a_turn_and_reads_anew(
    gateway: Gateway, text: Text
) -> None:
    text.says = config(5)
    text.may_be_read.clear()
    first = asyncio.ensure_future(gateway.reloader.reload())
    await until(lambda: text.reads == 1)
    text.says = config(6)
    second = asyncio.ensure_future(gateway.reloader.reload())
    await asyncio.sleep(0.01)
    assert text.reads == 1
    text.may_be_read.set()
    assert [(await each).changes.settings[0] for each in (first, second)][1] == "routing.max_retries"
    assert gateway.relay.context.config.routing.max_retries == gateway.config.routing.max_retries == 6


async def test_a_gateway_that_stops_is_not_changed_any_more(gateway: Gateway, text: Text) -> None:
    text.says = config(5)
    text.may_be_read.clear()
    reload = asyncio.ensure_future(gateway.reloader.reload())
    await until(lambda: text.reads == 1)
    gateway.relay.refuse_new()
    text.may_be_read.set()
    with pytest.raises(ShuttingDown):
        await reload
    with pytest.raises(ShuttingDown):
        await gateway.reloader.reload()
    assert gateway.relay.context.config.routing.max_retries == 0


async def test_a_gateway_that_was_not_started_cannot_be_changed(text: Text) -> None:
    gateway = Gateway(config(), load_plugins(PluginSettings(enabled=[])).registry, source=ConfigSource(text.read, None))
    with pytest.raises(ShuttingDown):
        await gateway.reloader.reload()


async def test_after_an_error_the_next_one_has_its_turn(gateway: Gateway, text: Text) -> None:
    text.says = ConfigError("wrong", file="f", key="k")
    with pytest.raises(ConfigError, match="wrong"):
        await gateway.reloader.reload()
    text.says = config(3)
    assert (await gateway.reloader.reload()).warnings == ("odd",)
    assert gateway.relay.context.config.routing.max_retries == 3


async def test_a_defect_is_logged_and_harms_nobody(
    gateway: Gateway, text: Text, caplog: pytest.LogCaptureFixture
) -> None:
    text.says = ZeroDivisionError("a defect")
    gateway.reloader.start_reload("somebody wants it")
    await until(lambda: "a defect" in caplog.text)
    assert "Traceback" in caplog.text
    assert gateway.relay.context.config.routing.max_retries == 0
    text.says = config(2)
    gateway.reloader.start_reload("somebody wants it")
    await until(lambda: gateway.relay.context.config.routing.max_retries == 2)


async def test_a_reload_that_no_request_asked_for_is_an_act_too(gateway: Gateway, text: Text) -> None:
    entries: list[AuditEntry] = []
    reloader = Reloader(gateway.current, gateway.services, ConfigSource(text.read, None), entries.append)
    reloader.open()
    await reloader.start_reload("SIGHUP")
    text.says = ConfigError("wrong")
    await reloader.start_reload("the file changed")
    reloader.close()
    assert [(each.act, each.status, each.outcome) for each in entries] == [
        ("reload: SIGHUP", 200, "done"),
        ("reload: the file changed", 400, "refused"),
    ]


async def test_tokens_without_their_library_change_nothing(
    gateway: Gateway, text: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    tokens = {"jwt": {"issuer": "https://login.example.org", "audience": "house"}}
    text.says = msgspec.convert({"routing": {"max_retries": 7}, "auth": tokens}, Config)
    with pytest.raises(ConfigError, match="PyJWT"):
        await gateway.reloader.reload()
    assert (gateway.relay.context.config.routing.max_retries, gateway.config.auth.jwt) == (0, None)


async def test_the_file_is_looked_at_while_it_is_watched(gateway: Gateway, text: Text, tmp_path: Path) -> None:
    text.says = config(1)
    (tmp_path / "file").write_text("changed")
    await until(lambda: gateway.relay.context.config.routing.max_retries == 1)
    reads = text.reads
    (tmp_path / "file").write_text("changed again")
    await asyncio.sleep(0.05)
    assert text.reads == reads, "the new configuration does not say watch"


async def test_a_configuration_that_stays_changes_no_part(gateway: Gateway, text: Text) -> None:
    text.says = gateway.config
    relay = gateway.relay
    before = (relay.context.router, relay.context.upstreams, gateway.fleet.snapshot)
    await gateway.reloader.reload()
    assert relay.context.router is before[0]
    assert (relay.context.upstreams, gateway.fleet.snapshot) == before[1:]


async def test_a_router_goes_on_unless_routing_changes(gateway: Gateway, text: Text) -> None:
    router = gateway.relay.context.router
    text.says = msgspec.convert({"checks": {"interval": 9.0}, "routing": {"max_retries": 7}}, Config)
    await gateway.reloader.reload()
    assert gateway.relay.context.router is router
    text.says = msgspec.convert({"routing": {"strategy": "random"}}, Config)
    await gateway.reloader.reload()
    assert gateway.relay.context.router is not router


async def test_a_file_that_is_empty_for_a_moment_is_not_read_then(
    gateway: Gateway, text: Text, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload_module, "_EMPTY_S", 3600.0)
    (tmp_path / "file").write_text("")
    reads = text.reads
    with pytest.raises(ConfigError, match="is still being written"):
        await gateway.reloader.reload()
    assert text.reads == reads
    text.says = config(9)
    reload = asyncio.ensure_future(gateway.reloader.reload())
    await asyncio.sleep(0)
    (tmp_path / "file").write_text("written")
    await reload
    assert gateway.relay.context.config.routing.max_retries == 9


async def test_a_file_that_stays_empty_is_meant(gateway: Gateway, text: Text, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    text.says = config(3)
    await gateway.reloader.reload()
    assert gateway.relay.context.config.routing.max_retries == 3


async def test_a_file_that_changes_while_it_is_read_is_read_again(gateway: Gateway, text: Text, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("some")
    text.may_be_read.clear()
    text.says = config(1)
    reads = text.reads
    reload = asyncio.ensure_future(gateway.reloader.reload())
    await until(lambda: text.reads > reads)
    (tmp_path / "file").write_text("more")
    text.says = config(2)
    text.may_be_read.set()
    await reload
    assert gateway.relay.context.config.routing.max_retries == 2
