from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import grpc
import pytest

from enginehouse_kit.engines import SimEngine
from tests.support.llumlet import PROMPT, Instance, Open, Start, Stream, until


def start(stack: ExitStack, **flags: Any) -> Instance:
    engine = stack.enter_context(SimEngine(llumlet_port=0, **{"tpot": "5ms", **flags}))
    found = Instance(engine, stack.enter_context(grpc.insecure_channel(engine.llumlet)))
    stack.callback(found.http.close)
    return found


@pytest.fixture(scope="module")
def idle() -> Iterator[list[Instance]]:
    """Engines without flags of their own, which several tests use one after the other."""
    with ExitStack() as stack:
        yield [start(stack) for _ in range(3)]


@pytest.fixture
def instance(idle: list[Instance]) -> Iterator[Start]:
    """Engines that make a token every 5 ms; those with flags are started for the test."""
    used = 0
    with ExitStack() as stack:

        def instance_with(**flags: Any) -> Instance:
            nonlocal used
            if flags:
                return start(stack, **flags)
            used += 1
            return idle[used - 1]

        yield instance_with
        for each in idle[:used]:
            until(each.is_clean)


@pytest.fixture
def stream() -> Iterator[Open]:
    """Streams: ``stream(instance, max_tokens, name)``. Those that the test does not finish are left at its end."""
    opened = []
    with ThreadPoolExecutor(max_workers=16) as pool:

        def open_stream(instance: Instance, max_tokens: int, name: str = "a", prompt: str = PROMPT) -> Stream:
            opened.append(Stream(instance, pool, max_tokens, name, prompt))
            return opened[-1]

        yield open_stream
        for each in opened:
            each.leave()
