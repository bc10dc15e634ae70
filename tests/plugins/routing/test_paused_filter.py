from __future__ import annotations

from enginehouse_kit.testing import candidate, check_filter, requirements
from enginehouse_routing.needs import ErrorShareFilter
from enginehouse_routing.structs import ErrorShareConfig
from tests.support.routing import make_router, make_snapshot, take_route


def test_a_share_of_errors_conforms_too() -> None:
    check_filter(lambda: ErrorShareFilter(ErrorShareConfig(0.2)))


def test_a_paused_replica_is_passed_over_unless_it_is_the_only_one() -> None:
    paused, able, unable = (
        candidate("a", paused="it said so"),
        candidate("b", priority=9),
        candidate("c", draining=True),
    )
    router = make_router("priority_only")
    model = requirements(model=paused.model)
    assert take_route(router, model, make_snapshot(paused, able)).chosen is able
    assert take_route(router, model, make_snapshot(paused, unable)).chosen is paused
    explained = router.explain(model, make_snapshot(paused, able)).candidates
    assert [(each.dropped_by, each.why) for each in explained] == [("paused", "it said so"), (None, None)]
    assert router.explain(model, make_snapshot(paused)).chosen == paused.replica
