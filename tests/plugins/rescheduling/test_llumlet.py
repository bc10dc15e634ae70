"""The migrator ``llumlet``: what it commands, and how streams leave their source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from enginehouse.drivers import EngineClient
from enginehouse.errors import CannotContinue, NotFound, UpstreamError
from enginehouse.rescheduling import InstanceAddress, RequestView
from enginehouse_kit.llumlet.llumlet_pb2 import MigrateResponse
from enginehouse_kit.rescheduling import Migration
from enginehouse_rescheduling import migrators
from tests.support.cluster_views import instance, view
from tests.support.held_port import held_port


class FakeMeans:
    """A gateway that can join all streams but the one named ``plain``."""

    def __init__(self) -> None:
        self.joined: list[tuple[str, str, str]] = []
        self.noted: list[tuple[str, str]] = []

    def live(self, instance: str) -> Sequence[RequestView]:
        raise AssertionError("the source chooses")

    async def move(self, request: str, destination: str) -> None:
        raise AssertionError("the engines move them")

    async def join(self, request: str, destination: str, engine_request: str) -> None:
        if request == "plain":
            raise CannotContinue("The engine cannot be asked")
        if request != "r1":
            raise NotFound(f"There is no live request '{request}'")
        self.joined.append((request, destination, engine_request))

    def moved_by_engine(self, request: str, destination: str) -> None:
        self.noted.append((request, destination))

    def engine(self, instance: str) -> EngineClient:
        raise AssertionError("engines are not asked over HTTP")

    def address(self, instance: str) -> InstanceAddress:
        return ADDRESSES[instance]

    def kv_tokens(self, instance: str) -> int:
        return 100


ADDRESSES = {
    "a": InstanceAddress(ip="10.0.0.1", llumlet_port=1, kvt_port=2),
    "b": InstanceAddress(ip="10.0.0.2", llumlet_port=3, kvt_port=4),
}
ORDER = Migration(policy="decode_load", source="a", destination="b", rule="TOKEN", order="SR", value=1024)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, str]]:
    """The commands that were sent, with the address; the source moves two requests."""
    commands: list[tuple[Any, str]] = []

    async def send(command: Any, address: str) -> Any:
        commands.append((command, address))
        if command.migration_type == "RATIO":
            return MigrateResponse(success=False, message="No request could be moved.")
        return MigrateResponse(success=True, request_ids=["chatcmpl-r1-0-9f", "cmpl-plain", "other"])

    monkeypatch.setattr(migrators, "_send", send)
    return commands


async def test_the_destination_serves_the_rest_if_it_can_be_asked(sent: list[tuple[Any, str]]) -> None:
    means, llumlet = FakeMeans(), migrators.Llumlet()
    llumlet.prepare(means)
    migrated = await llumlet.migrate(ORDER)

    assert migrated.moved == ("r1", "plain", "other")
    assert means.joined == [("r1", "b", "chatcmpl-r1-0-9f")]
    assert means.noted == [("plain", "b")], "its stream still comes through the source"
    [(command, address)] = sent
    assert address == "10.0.0.1:1"
    assert (command.dst_engine_ip, command.dst_engine_port, command.num_tokens) == ("10.0.0.2", 4, 1024)
    assert (command.migration_req_policy, command.trigger_policy) == ("SR", "decode_load")


async def test_an_address_of_ipv6_is_in_brackets(sent: list[tuple[Any, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ADDRESSES, "a", InstanceAddress(ip="fd00::1", llumlet_port=1, kvt_port=2))
    llumlet = migrators.Llumlet()
    llumlet.prepare(FakeMeans())
    await llumlet.migrate(ORDER)
    assert sent[0][1] == "[fd00::1]:1"


async def test_a_source_that_moves_nothing_is_an_error(sent: list[tuple[Any, str]]) -> None:
    llumlet = migrators.Llumlet()
    llumlet.prepare(FakeMeans())
    ratio = Migration(policy="p", source="a", destination="b", rule="RATIO", order="SR", value=0.5)
    with pytest.raises(NotFound, match="moved nothing: No request could be moved"):
        await llumlet.migrate(ratio)
    assert sent[0][0].kv_cache_usage_ratio == 0.5


async def test_a_llumlet_that_is_gone_is_an_error_with_its_code() -> None:
    with (
        held_port() as port,
        pytest.raises(UpstreamError, match=f"The llumlet at 127.0.0.1:{port} failed: UNAVAILABLE: "),
    ):
        await migrators._send(migrators._command(ORDER, ADDRESSES["b"]), f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("rule", "value", "field", "sent"),
    [
        ("NUM_REQ", -1, "num_reqs", -1),
        ("TOKEN", 1024.9, "num_tokens", 1024),
        ("RATIO", 0.25, "kv_cache_usage_ratio", 0.25),
    ],
)
def test_a_command_names_both_ends_and_one_value(rule: str, value: float, field: str, sent: float) -> None:
    order = Migration(policy="p", source="a", destination="b", rule=rule, order="LR", value=value, requests=("r",))
    command = migrators._command(order, ADDRESSES["b"])
    assert (command.src_engine_id, command.dst_engine_id) == ("a", "b")
    assert command.WhichOneof("migration_value") == field
    assert getattr(command, field) == sent
    assert list(command.request_ids) == ["r"]


def test_both_instances_need_addresses() -> None:
    llumlet = migrators.Llumlet()
    llumlet.prepare(FakeMeans())
    a, b, bare = (instance(name, address=ADDRESSES.get(name, InstanceAddress())) for name in ("a", "b", "bare"))

    def why(source: str, destination: str) -> str:
        order = Migration(policy="p", source=source, destination=destination, rule="NUM_REQ", order="SR", value=1)
        return llumlet.why_not(order, view(a, b, bare))

    assert why("a", "b") == ""
    assert why("bare", "b") == "bare has no llumlet"
    assert why("a", "bare") == "bare accepts no requests of other engines"
    assert why("a", "gone") == "the view does not have both instances"
