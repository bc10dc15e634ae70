from __future__ import annotations

from inspect import signature

from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.llumlet.messages import MovedRequest


def test_a_moved_request_has_all_that_its_client_asked_for() -> None:
    fields = [*signature(RequestState).parameters]
    asked_for = fields[: fields.index("status")]
    assert {*MovedRequest.__struct_fields__} == {*asked_for, "output_token_ids"}
