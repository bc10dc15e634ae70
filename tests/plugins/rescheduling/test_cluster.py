from __future__ import annotations

from typing import Any, NamedTuple, cast

import msgspec
import pytest

from enginehouse import Health, ReplicaState, Role
from enginehouse.domain.instance import InstanceReport
from enginehouse.rescheduling import InstanceMetadata, InstanceStatus, RequestView
from enginehouse_kit.request_ids import gateway_request_ids
from enginehouse_kit.rescheduling import InFlight
from enginehouse_kit.testing import FakeServiceGateway
from enginehouse_rescheduling.cluster import NONE_RESERVED, Cluster, Reservations, instance_view, reserve
from enginehouse_rescheduling.placed_requests import LiveFigures, PlacedRequests, in_flight
from tests.support.backend_status import backend_status
from tests.support.cluster_views import instance

NOW = 100.0
BACKEND = backend_status(name="gpu-1", url="http://gpu-1", role=Role.DECODE, models=("m", "n"))
REPORT = InstanceReport(
    InstanceStatus(instance_id="gpu-1", num_running_requests=2),
    InstanceMetadata(node_id="engine-node", unit_id="engine-unit", block_size=16, ip="10.0.0.1", llumlet_port=7),
    asked_at=NOW - 1,
)


def live(name: str, age: float = 0.5, tokens: int = 10) -> LiveFigures:
    view = RequestView(id=name, prompt_tokens=tokens)
    return LiveFigures(view, NOW - age, lambda: msgspec.structs.replace(view, output_tokens=5))


def count(figures: list[LiveFigures], role: Role = Role.NEUTRAL, **status: Any) -> InFlight:
    return in_flight(figures, role, InstanceStatus(**status), asked_at=NOW - 1, now=NOW)


def test_the_place_of_an_engine_has_labels_of_its_own() -> None:
    placed = msgspec.structs.replace(BACKEND, node="ray-7", unit="rack-2")
    view = instance_view(placed, REPORT, [], NOW)
    assert (view.node, view.unit) == ("ray-7", "rack-2")


def test_an_instance_has_labels_figures_and_requests() -> None:
    view = instance_view(msgspec.structs.replace(BACKEND, node="n1"), REPORT, [live("r")], NOW)

    assert (view.id, view.role, view.models) == ("gpu-1", Role.DECODE, ("m", "n"))
    assert (view.node, view.unit, view.block_size) == ("n1", "engine-unit", 16)
    assert (view.address.ip, view.address.llumlet_port) == ("10.0.0.1", 7)
    assert view.status.num_running_requests == 2
    assert [each.id for each in view.requests] == ["r"]
    assert view.inflight.num_inflight_dispatch_decode_requests == 1


def test_a_request_waits_if_the_engine_says_so() -> None:
    report = REPORT._replace(status=InstanceStatus(waiting_requests=("chatcmpl-w", "cmpl-x-0")))
    view = instance_view(BACKEND, report, [live("r"), live("w"), live("x")], NOW)

    assert [each.running for each in view.requests] == [True, False, False]


class Placed(NamedTuple):
    """Two requests at each of the instances ``a`` and ``b``."""

    async def by_instance(self) -> dict[str, list[LiveFigures]]:
        return {name: [live(f"{name}-{number}") for number in range(2)] for name in "ab"}


async def test_streams_are_read_where_that_is_wanted() -> None:
    gateway = FakeServiceGateway()
    gateway.statuses = [msgspec.structs.replace(BACKEND, name=name) for name in "ab"]
    gateway.reports = {"a": REPORT, "b": REPORT._replace(status=InstanceStatus(waiting_requests=("cmpl-b-1",)))}
    cluster = Cluster(gateway, cast(PlacedRequests, Placed()))
    view = await cluster.view(lambda instance: instance.id == "b")

    requests = [each for instance in view.instances for each in instance.requests]
    assert [(each.id, each.output_tokens, each.running) for each in requests] == [
        ("a-0", 0, True),
        ("a-1", 0, True),
        ("b-0", 5, True),
        ("b-1", 5, False),
    ]


@pytest.mark.parametrize(
    ("changes", "schedulable"),
    [
        ({}, True),
        ({"health": Health.UNHEALTHY}, False),
        ({"health": Health.UNKNOWN}, False),
        ({"state": ReplicaState.STOPPING}, False),
        ({"draining": True}, False),
    ],
)
def test_an_instance_is_schedulable_if_the_gateway_sends_requests_there(
    changes: dict[str, Any], schedulable: bool
) -> None:
    view = instance_view(msgspec.structs.replace(BACKEND, **changes), REPORT, [], NOW)

    assert view.status.schedulable is schedulable


def test_an_engine_can_refuse_requests_itself() -> None:
    report = REPORT._replace(status=InstanceStatus(schedulable=False))

    assert not instance_view(BACKEND, report, [], NOW).status.schedulable


def test_requests_that_the_status_names_are_counted_by_the_engine() -> None:
    figures = [live("recent"), live("waiting"), live("unseen"), live("old", age=10)]
    found = count(figures, recent_waiting_requests=("chatcmpl-recent", "other"), waiting_requests=("cmpl-waiting",))

    assert found.num_inflight_dispatch_requests == 1
    assert found.num_tokens_inflight_dispatch_decode_requests == 10


def test_an_engine_that_names_no_requests_has_those_sent_before_it_was_asked() -> None:
    assert count([live("before", age=2), live("after", age=0.5, tokens=7)]) == InFlight(
        num_inflight_dispatch_requests=1,
        num_inflight_dispatch_prefill_requests=1,
        num_inflight_dispatch_decode_requests=1,
        num_uncomputed_tokens_inflight_dispatch_prefill_requests=7,
        num_tokens_inflight_dispatch_decode_requests=7,
    )


@pytest.mark.parametrize(("role", "prefill", "decode"), [(Role.PREFILL, 10, 0), (Role.DECODE, 0, 10)])
def test_a_request_counts_by_the_role_of_its_instance(role: Role, prefill: int, decode: int) -> None:
    found = count([live("r")], role)

    assert found.num_inflight_dispatch_requests == 1
    assert found.num_uncomputed_tokens_inflight_dispatch_prefill_requests == prefill
    assert found.num_tokens_inflight_dispatch_decode_requests == decode
    assert (found.num_inflight_dispatch_prefill_requests, found.num_inflight_dispatch_decode_requests) == (
        prefill // 10,
        decode // 10,
    )


@pytest.mark.parametrize(
    ("engine_id", "ids"),
    [
        ("cmpl-a", ["a"]),
        ("cmpl-a-0", ["a-0", "a"]),
        ("chatcmpl-a-b-1f", ["a-b-1f", "a-b", "a"]),
        ("a+2", ["a+2", "a"]),
        ("resp_a", ["resp_a"]),
    ],
)
def test_the_gateways_id_of_an_engines_request(engine_id: str, ids: list[str]) -> None:
    assert gateway_request_ids(engine_id) == ids


def busy(name: str, prompts: int, decodes: int) -> Any:
    return instance(
        name,
        num_uncomputed_tokens_all_waiting_prefills=prompts,
        scheduler_running_to_decode_requests_num=decodes,
    )


def test_the_instance_with_the_fewest_prompts_is_kept_for_decode_and_another_for_prefill() -> None:
    assert reserve([busy("a", 5, 0), busy("b", 0, 9), busy("c", 0, 4)], NONE_RESERVED) == Reservations("a", "b")
    assert reserve([busy("a", 5, 3), busy("b", 4, 9), busy("c", 6, 2)], NONE_RESERVED) == Reservations("c", "b")


def test_a_reservation_stays_until_its_instance_is_gone() -> None:
    instances = [busy("a", 5, 9), busy("b", 0, 0), busy("c", 1, 1)]

    assert reserve(instances, Reservations("a", "c")) == Reservations("a", "c")
    assert reserve(instances[:2], Reservations("a", "c")) == Reservations("a", "b")
    assert reserve([], Reservations("a", "c")) == NONE_RESERVED


def test_one_instance_is_not_kept_for_both() -> None:
    assert reserve([busy("a", 0, 0)], NONE_RESERVED) == Reservations("", "a")
