"""A plugin that counts requests, and fails with that: it costs the requests of its callers, and leaves nothing held."""

from __future__ import annotations

from typing import ClassVar

import pytest

from enginehouse import Authenticator, Headers, Requirements
from enginehouse.callers import (
    Accounting,
    AdmittedCaller,
    AuditEntry,
    Caller,
    CountedGateway,
)
from enginehouse.interfaces.authenticators import Reserved
from enginehouse.plugin_manager.registry import Registry
from enginehouse.records import RequestFacts
from enginehouse.requests import Tokens
from tests.support.registries import registry_with
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway


class Counts(Authenticator, Accounting):
    """Knows everyone as ``ann``, an operator."""

    fails_at: ClassVar[str] = ""

    def join(self, gateway: CountedGateway) -> None:
        gateway.count(self, None, ask_streams=False)

    def caller(self, headers: Headers) -> Caller:
        return Caller("ann", admin=True)

    def counted(self, name: str, caller: Caller) -> AdmittedCaller:
        return CountedCaller(name, admin=True)

    def add(self, facts: RequestFacts, model: str, prompt: int) -> None:
        fail_at("add")

    def note(self, entry: AuditEntry) -> None:
        fail_at("note")


class CountedCaller(AdmittedCaller):
    def admit(self, requirements: Requirements, answer_limit: int | None) -> Reserved | None:
        fail_at("admit")
        return Room()


class Room:
    lines = b"x-room: 1\r\n"

    def settle(self, prompt: int, answer: tuple[int, int, Tokens | None], model: str) -> None:
        fail_at("settle")


def fail_at(step: str) -> None:
    if Counts.fails_at == step:
        raise KeyError(step)


@pytest.fixture(scope="module")
def registry() -> Registry:
    return registry_with("authenticator", "counts", Counts, instead_of="callers")


@pytest.mark.parametrize(
    ("step", "status", "said"),
    [
        ("", 200, ""),
        ("admit", 500, "failed with KeyError"),
        ("settle", 200, "failed to count a request out"),
        ("add", 200, "failed to add a request to the usage"),
    ],
)
async def test_a_request_ends_whatever_fails_to_count_it(
    house: OpenGateway,
    engine: StartEngine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    step: str,
    status: int,
    said: str,
) -> None:
    monkeypatch.setattr(Counts, "fails_at", step)
    monkeypatch.setattr("enginehouse.telemetry.plugin_failures._limit._last", {})
    gateway = await house(await engine())
    answer = await gateway.ask()
    assert answer.status == status
    assert (answer.header("x-room") == "1") is (status == 200)
    if status == 500:
        assert answer.error["code"] == "plugin_failed"
        assert answer.error["details"] == {"kind": "authenticator", "type": "counts", "plugin": "acme"}
    await gateway.quiet()
    assert gateway.pending() == {"a": 0}
    assert not said or said in caplog.text
    page = await gateway.ask(gateway.get("/api/requests"))
    assert page.status == 200


async def test_an_act_of_an_operator_is_done_if_nobody_can_keep_it(
    house: OpenGateway, engine: StartEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Counts, "fails_at", "note")
    gateway = await house(await engine())
    drained = await gateway.ask(gateway.get("/api/backends/a/drain", b"content-length: 0", method="POST"))
    assert drained.status == 200, drained.body
    assert "failed to keep an act of an operator" in caplog.text
