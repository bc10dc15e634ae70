"""The conformance check of scalers: many loads, idle and crowded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

from enginehouse_kit.expect import expect, expect_sequence
from enginehouse_kit.scalers import ModelLoad, Scaler, ScaleView, WantedReplicas


def check_scaler(factory: Callable[[], Scaler]) -> None:
    """Check a scaler against the rules of its interface. Raises ``AssertionError``.

    It must want a number of replicas for each model, with a reason, between ``least`` and ``most``. The same view must
    get the same answer, and an idle model whose replicas were not needed for very long must not get more.
    """
    for view in _views():
        it = factory()
        plan = it.plan(view)
        expect_sequence("plan", plan)
        expect(list(plan) == list(it.plan(view)), f"the same view must get the same answer, first {plan}")
        expect(
            [each.model for each in plan] == [each.model for each in view.models],
            f"plan must name each model of the view once, in their order, got {[each.model for each in plan]}",
        )
        for decided, load in zip(plan, view.models, strict=True):
            _check(decided, load)


def _check(decided: WantedReplicas, load: ModelLoad) -> None:
    expect(isinstance(decided, WantedReplicas), f"plan must return WantedReplicas, got {decided!r}")
    wanted = decided.wanted
    expect(type(wanted) is int, f"wanted must be a whole number, got {wanted!r}")
    expect(load.least <= wanted <= load.most, f"wanted must be from {load.least} to {load.most}, got {decided}")
    expect(bool(decided.why), f"every decision must have a reason, got {decided}")
    idle = not load.serving and not load.waiting and load.replicas >= load.least
    expect(not idle or wanted <= load.replicas, f"an idle model must not get more replicas, got {decided} for {load}")


def _views() -> Iterator[ScaleView]:
    yield ScaleView(now=0.0, models=())
    loads = [*_loads()]
    for load in loads:
        yield ScaleView(now=1.0, models=(load,))
    yield ScaleView(now=2.0, models=tuple(loads))


def _loads() -> Iterator[ModelLoad]:
    sizes = [(replicas, ready) for replicas in (0, 1, 4) for ready in {0, replicas}]
    cases = product(sizes, ((0, 4), (1, 1), (2, 4)), (0, 2), ((0, 0), (2, 0), (8, 50)), (0.0, 1e6))
    for number, ((replicas, ready), (least, most), slots, (serving, waiting), spare) in enumerate(cases):
        yield ModelLoad(
            model=f"m{number}",
            replicas=replicas,
            ready=ready,
            least=least,
            most=most,
            slots=slots,
            serving=serving if ready else 0,
            waiting=waiting,
            expected_wait_s=float(waiting),
            spare_s=0.0 if serving or waiting else spare,
        )
