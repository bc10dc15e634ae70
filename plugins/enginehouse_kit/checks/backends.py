"""The conformance checks of what finds, counts and fills backends: discoverers, scalers and sources of models."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

from enginehouse import ModelSource
from enginehouse.backends import FoundBackend
from enginehouse_kit.discoverers import Discoverer
from enginehouse_kit.expect import expect, expect_sequence
from enginehouse_kit.scalers import ModelLoad, Scaler, ScaleView, WantedReplicas


def check_discoverer(factory: Callable[[], Discoverer], timeout: float = 10.0) -> None:
    """Check that ``watch`` first yields all backends by name, and can be closed. Call it in a synchronous test.

    ``timeout``: seconds until the first backends. The source must be reachable, or a fake.
    """
    asyncio.run(_check_watch(factory(), timeout))


async def _check_watch(it: Discoverer, timeout: float) -> None:
    watch: Any = it.watch()
    expect(hasattr(watch, "__anext__"), f"watch must be an async generator, got {watch!r}")
    try:
        found = await asyncio.wait_for(watch.__anext__(), timeout)
    except (asyncio.TimeoutError, StopAsyncIteration):
        raise AssertionError(f"watch must yield all backends within {timeout:g} seconds, even if none") from None
    expect(isinstance(found, Mapping), f"watch must yield a mapping of names to FoundBackend, got {found!r}")
    for name, backend in found.items():
        expect(isinstance(name, str) and name != "", f"a backend must have a name, got {name!r}")
        expect(isinstance(backend, FoundBackend), f"'{name}' must be a FoundBackend, got {backend!r}")
        url = backend.url
        expect(url.startswith(("http://", "https://")), f"the url of '{name}' must begin with http, got {url!r}")
    if close := getattr(watch, "aclose", None):
        await asyncio.wait_for(close(), timeout)


def check_scaler(factory: Callable[[], Scaler]) -> None:
    """Check a scaler against the rules of its interface. Raises ``AssertionError``.

    It must want a number of replicas for each model, with a reason, between ``least`` and ``most``. The same view must
    get the same answer, and an idle model whose replicas were not needed for very long must not get more.
    """
    for view in _scale_views():
        it = factory()
        plan = it.plan(view)
        expect_sequence("plan", plan)
        expect(list(plan) == list(it.plan(view)), f"the same view must get the same answer, first {plan}")
        expect(
            [each.model for each in plan] == [each.model for each in view.models],
            f"plan must name each model of the view once, in their order, got {[each.model for each in plan]}",
        )
        for decided, load in zip(plan, view.models, strict=True):
            _check_decision(decided, load)


def _check_decision(decided: WantedReplicas, load: ModelLoad) -> None:
    expect(isinstance(decided, WantedReplicas), f"plan must return WantedReplicas, got {decided!r}")
    wanted = decided.wanted
    expect(type(wanted) is int, f"wanted must be a whole number, got {wanted!r}")
    expect(load.least <= wanted <= load.most, f"wanted must be from {load.least} to {load.most}, got {decided}")
    expect(bool(decided.why), f"every decision must have a reason, got {decided}")
    idle = not load.serving and not load.waiting and load.replicas >= load.least
    expect(not idle or wanted <= load.replicas, f"an idle model must not get more replicas, got {decided} for {load}")


def _scale_views() -> Iterator[ScaleView]:
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


_OTHERS = ("", " ", "/", "..", "../../etc/passwd", "no such place:// ?", "a/b/c/d/e", "\x00")
"""No names of models."""


def check_model_source(factory: Callable[[], ModelSource]) -> None:
    """Check that ``takes`` tells a source's names from others, at each call the same. Downloads nothing."""
    it = factory()
    for name in _OTHERS:
        taken = it.takes(name)
        expect(isinstance(taken, bool), f"takes must return a bool, got {taken!r} for {name!r}")
        expect(not taken, f"takes must refuse {name!r}: it is not the name of a model")
        expect(it.takes(name) is taken, f"takes must say the same at each call, for {name!r}")
