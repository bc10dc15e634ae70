"""A gateway in front of engines that speak only OpenAI's chats, completions and embeddings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway


@pytest.fixture(scope="package")
def engines() -> Iterator[tuple[SimEngine, SimEngine]]:
    with SimEngine("m", tpot="5ms") as one, SimEngine("m", tpot="5ms") as other:
        yield one, other


@pytest.fixture(scope="package")
def gateway(engines: tuple[SimEngine, SimEngine]) -> Iterator[RunningGateway]:
    backends = "".join(
        f'[backends.{name}]\ndriver = "openai"\nurl = "{engine.url}"\nmodels = ["m"]\n'
        for name, engine in zip(("one", "other"), engines, strict=True)
    )
    with RunningGateway(f"{backends}[checks]\nfailures = 1000\n") as gateway:
        gateway.until_health(one="healthy", other="healthy")
        yield gateway
