from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from enginehouse import HostedReplica, HostFacts, Swapper
from enginehouse.testing import create

GIB = 1024**3


@pytest.fixture(scope="session")
def host() -> Callable[..., HostFacts]:
    """A host with one replica of each model, called like the model; sizes in GiB."""

    def build(
        *models: str,
        memory: float | None = None,
        sizes: dict[str, float] | None = None,
        pinned: tuple[str, ...] = (),
        twins: dict[str, str] | None = None,
        **fields: Any,
    ) -> HostFacts:
        sizes = sizes or {}
        model_of = {model: model for model in models} | (twins or {})
        replicas = {
            replica: HostedReplica(
                replica=replica,
                model=model,
                memory=int(sizes[replica] * GIB) if replica in sizes else None,
                pin=replica in pinned,
            )
            for replica, model in model_of.items()
        }
        budget = None if memory is None else int(memory * GIB)
        return HostFacts(name="local", memory=budget, replicas=replicas, **fields)

    return build


@pytest.fixture(scope="session")
def swapper() -> Callable[..., Swapper]:
    """An installed swapper that knows its host."""

    def build(type: str, host: HostFacts, **parameters: Any) -> Swapper:
        made: Swapper = create("swapper", type, parameters)
        made.prepare(host)
        return made

    return build
