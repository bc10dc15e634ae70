"""Authenticators of plugins: who gets in, and that nothing that fails lets anyone in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from enginehouse import Authenticator, ConfigError, Headers, InvalidRequest, PluginError
from enginehouse.app import Gateway, rehearse_start
from enginehouse.callers import Caller, LimitAmounts
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.domain.errors import Forbidden
from enginehouse.errors import Overloaded, PluginFailed, Unauthorized
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registered, Registry
from enginehouse.processes.workers.shared_memory import WorkerMemory
from enginehouse.services import Configured
from enginehouse_callers.accounts import KeyHolder
from enginehouse_callers.kept_key import NewKey
from tests.support import plain_httpx
from tests.support.changed_config import prepare
from tests.support.keys import callers_of
from tests.support.plugins import Install
from tests.support.virtual_time import Run

ADMIN = {"x-name": "boss"}


class Names(Authenticator):
    """Knows ``ann`` and ``boss``, who need no password."""

    active: object = True
    raises: BaseException | None = None
    returns: object = None

    def prepare(self, configured: Configured) -> bool:
        return self.active  # type: ignore[return-value]

    def caller(self, head: Headers) -> Caller | None:
        if self.raises is not None:
            raise self.raises
        if self.returns is not None:
            return self.returns  # type: ignore[return-value]
        name = dict(head).get(b"x-name", b"").decode()
        if name == "mallory":
            raise Unauthorized("mallory has no right")
        if name == "late":
            return Caller(name, admin=True, until=time.time() - 1)
        return Caller(name, admin=name == "boss", limits=LimitAmounts(requests_per_minute=1)) if name else None


class Others(Names):
    """Knows those who show another header."""

    def caller(self, head: Headers) -> Caller | None:
        return Caller("other", admin=True) if dict(head).get(b"x-other") else None


class Opens(Names):
    """Needs no credential while ``opened``."""

    opened = True
    fails: BaseException | None = None
    asked = 0

    def is_open(self) -> bool:
        Opens.asked += 1
        if self.fails is not None:
            raise self.fails
        return self.opened


class Operators(Names):
    """Some of those whom it knows are operators."""

    def has_operators(self) -> bool:
        return True


Open = Callable[..., httpx.AsyncClient]


def gateway(*types: type[Authenticator], **sections: object) -> Gateway:
    return Gateway(msgspec.convert(sections, Config), registry_with(*types))


def registry_with(*types: type[Authenticator]) -> Registry:
    registry = load_plugins(PluginSettings()).registry
    origin = {"entry_point": "acme", "module": "acme", "distribution": "acme", "version": "1"}
    for each in types:
        registry.add([Registered(kind="authenticator", type=each.__name__.lower(), factory=each, **origin)])
    return registry


async def status(house: Gateway, **headers: str) -> int:
    transport = httpx.ASGITransport(house.application)
    async with plain_httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        shown = {name.replace("_", "-"): value for name, value in headers.items()}
        return (await client.get("/api/status", headers=shown)).status_code


@pytest.mark.parametrize(
    ("types", "more"),
    [((), ""), ((Names, Operators), ", or a credential that the authenticator 'names' or 'operators' knows")],
)
def test_a_request_without_a_credential_learns_which_there_are(types: Sequence[type[Authenticator]], more: str) -> None:
    house = gateway(*types, auth={"keys": [{"name": "a", "key": "secret-of-a"}]})
    with pytest.raises(Unauthorized) as refused:
        house.callers.authentication.caller([])
    assert refused.value.message == f"No API key: send it as 'Authorization: Bearer KEY'{more}"


async def test_whom_an_authenticator_knows_gets_in_and_nobody_else() -> None:
    house = gateway(Names)
    assert await status(house) == 401
    assert await status(house, x_name="boss") == 200
    assert await status(house, x_name="ann") == 403
    assert await status(house, x_name="mallory") == 401
    assert await status(house, x_name="late") == 401
    assert await status(house, authorization="Bearer x") == 401


async def test_one_credential_of_several_is_enough() -> None:
    house = gateway(Names, Others, auth={"keys": [{"name": "ops", "key": "secret-of-ops", "admin": True}]})
    assert await status(house, x_name="mallory", x_other="1") == 200
    assert await status(house, x_name="mallory", authorization="Bearer secret-of-ops") == 200
    assert await status(house, x_name="boss", authorization="Bearer wrong") == 200
    assert await status(house, x_name="mallory", authorization="Bearer wrong") == 401


def test_a_name_stands_behind_the_type_and_has_limits_of_its_own() -> None:
    keyring = gateway(Names).callers.authentication
    ann = keyring.caller([(b"x-name", b"ann")])
    assert ann is not None
    assert isinstance(ann, KeyHolder)
    assert ann.name == "names/ann"
    assert keyring.caller([(b"x-name", b"ann")]) is ann
    assert ann.account.name == "names/ann"
    assert not ann.account.is_free
    long = keyring.caller([(b"x-name", b"n" * 10_000)])
    assert long is not None
    assert len(long.name) < 600


def test_no_key_may_have_a_name_of_an_authenticators_callers() -> None:
    with pytest.raises(ConfigError, match=r"'names/ann' begins as names of callers"):
        gateway(Names, auth={"keys": [{"name": "names/ann", "key": "secret-of-ann"}]})
    with pytest.raises(InvalidRequest, match="begins with none of key/, jwt/, address/, names/"):
        callers_of(gateway(Names))._kept.new(NewKey(name="names/ann"), first=False)


@pytest.mark.parametrize("returns", ["boss", True, ("boss",), {"name": "boss", "admin": True}])
async def test_one_that_returns_anything_else_lets_nobody_in(returns: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Names, "returns", returns)
    assert await status(gateway(Names), x_name="boss") == 500


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": 3},
        {"models": None},
        {"models": "m"},
        {"models": [1]},
        {"priority": "high"},
        {"weight": 0},
        {"limits": {"requests_per_minute": 1}},
    ],
)
def test_a_caller_with_values_of_other_types_is_named_as_the_plugins_fault(
    wrong: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Names, "returns", Caller(**{"name": "ann", **wrong}))
    with pytest.raises(PluginFailed, match="authenticator 'names' of plugin 'acme' returned a Caller") as failed:
        gateway(Names).callers.authentication.caller([])
    assert failed.value.details == {"kind": "authenticator", "type": "names", "plugin": "acme"}


def test_the_models_of_a_caller_may_be_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Names, "returns", Caller("ann", ["m"]))  # type: ignore[arg-type]
    authentication = gateway(Names).callers.authentication
    ann = authentication.caller([])
    assert ann is not None
    assert (ann.may_use("m"), ann.may_use("n")) == (True, False)
    assert authentication.caller([]) is ann


@pytest.mark.parametrize("error", [KeyError("x"), SystemExit(), RuntimeError("secret")])
async def test_one_that_raises_lets_nobody_in(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Names, "raises", error)
    assert await status(gateway(Names), x_name="boss") == 500
    assert await status(gateway(Names)) == 500


async def test_one_that_closes_and_says_so_lets_nobody_in_without_a_credential(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = gateway(Opens)
    house.callers.open(tmp_path)  # from then on, its authenticators are heard
    monkeypatch.setattr(Opens, "asked", 0)
    assert [await status(house) for _ in range(3)] == [200, 200, 200]
    assert Opens.asked == 1, "it is asked again only when something may have changed"
    opens = next(each.authenticator for each in house.callers._made if isinstance(each.authenticator, Opens))
    monkeypatch.setattr(Opens, "opened", False)
    opens.changed()
    assert (await status(house), await status(house, x_name="boss")) == (401, 200)


def test_one_that_closes_without_a_word_lets_nobody_in_two_seconds_later(
    monkeypatch: pytest.MonkeyPatch, in_virtual_time: Run
) -> None:
    async def scenario() -> None:
        house = gateway(Opens)
        await house.callers.start()
        assert await status(house) == 200
        monkeypatch.setattr(Opens, "opened", False)
        await asyncio.sleep(2)
        assert await status(house) == 401
        await house.callers.close()

    in_virtual_time(scenario())


@pytest.mark.parametrize(
    ("type", "admin", "warns"),
    [(Names, None, True), (Names, False, True), (Names, True, False), (Operators, None, False), (Opens, None, False)],
)
def test_a_start_warns_if_nobody_can_be_an_operator(
    type: type[Authenticator], admin: bool | None, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    keys = [] if admin is None else [{"name": "ann", "key": "secret-of-ann", "admin": admin}]
    rehearse_start(msgspec.convert({"auth": {"keys": keys}}, Config), registry_with(type))
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert ["Nobody can use operators' pages" in text for text in said] == [True] * warns


async def test_the_first_key_closes_all_processes_at_once(tmp_path: Path) -> None:
    registry = load_plugins(PluginSettings()).registry
    memory = WorkerMemory(1, registry)
    processes = [Gateway(Config(), registry, shared=memory.accounts(number)) for number in range(2)]
    for each in processes:
        each.callers.open(tmp_path)
    assert [await status(each) for each in processes] == [200, 200]
    secret = callers_of(processes[0])._kept.new(NewKey(name="boss", admin=True), first=True)
    assert [await status(each) for each in processes] == [401, 401]
    assert [await status(each, x_api_key=secret) for each in processes] == [200, 200]
    callers_of(processes[1])._kept.rotate("boss")
    assert [await status(each, x_api_key=secret) for each in processes] == [401, 401]


@pytest.mark.parametrize(("error", "code"), [(RuntimeError("no"), 500), (Overloaded("later"), 503)])
async def test_one_that_cannot_tell_whether_it_is_open_lets_nobody_in_until_it_can(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = gateway(Opens)
    monkeypatch.setattr(Opens, "fails", error)
    assert [await status(house) for _ in range(2)] == [code, code]
    monkeypatch.setattr(Opens, "fails", None)
    assert await status(house) == 200


@pytest.mark.parametrize(("active", "code"), [(True, 401), (None, 401), (0, 401), (False, 200)])
async def test_only_one_that_says_so_is_not_active(active: object, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Names, "active", active)
    assert await status(gateway(Names)) == code


async def test_one_that_fails_with_another_configuration_keeps_the_gateway_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = gateway(Names)

    def fails(self: Names, configured: Configured) -> bool:
        raise RuntimeError("no")

    monkeypatch.setattr(Names, "prepare", fails)
    with pytest.raises(PluginError, match="authenticator 'names' cannot be prepared"):
        prepare(house, Config())
    house.callers.configure(Config())
    assert await status(house) == 401


def test_one_that_cannot_be_made_or_loaded_is_never_left_out(install: Install) -> None:
    class Unmade(Names):
        def __init__(self) -> None:
            raise RuntimeError("no")

    with pytest.raises(PluginError, match="cannot be made"):
        gateway(Unmade, plugins={"on_error": "skip"})
    install("acme", "raise RuntimeError('no')\ndef register_authenticators(register): ...\n")
    with pytest.raises(PluginError, match=r"cannot be imported.*it may have an authenticator, so it is not left out"):
        load_plugins(PluginSettings(on_error="skip"))


def test_one_whose_hook_is_in_another_module_is_not_left_out_either(install: Install, tmp_path: Path) -> None:
    install("acme", "", module="enginehouse_acme")
    (tmp_path / "enginehouse_acme.py").unlink()
    (tmp_path / "enginehouse_acme").mkdir()
    (tmp_path / "enginehouse_acme" / "__init__.py").write_text("from enginehouse_acme.hooks import *\n")
    (tmp_path / "enginehouse_acme" / "hooks.py").write_text(
        "import is_not_there\ndef register_authenticators(register): ...\n"
    )
    with pytest.raises(PluginError, match=r"cannot be imported.*it may have an authenticator, so it is not left out"):
        load_plugins(PluginSettings(on_error="skip"))


async def test_a_caller_who_is_not_there_keeps_name_rights_and_limits() -> None:
    house = gateway(Names, auth={"keys": [{"name": "gate", "key": "k", "gateway": True}]})
    keyring = house.admission.authentication
    ann = keyring.absent("names/ann", ["m"])
    assert isinstance(ann, KeyHolder)
    assert (ann.name, ann.models, ann.admin, ann.account.is_free) == ("names/ann", ("m",), False, True)
    assert (keyring.absent("bob", ["m"], "gate").name, keyring.absent("gate", ()).models) == ("bob", ("*",))
    for name in ("bob", "others/ann"):
        with pytest.raises(Forbidden, match="does not exist any more"):
            keyring.absent(name, ["m"])
