from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import grpc
import pytest

from enginehouse_kit.engines import SimEngine
from tests.support.llumlet import PROMPT, Instance, Open, Start, Stream, until

STEADY, SLOW = "5ms", "200ms"


def start(stack: ExitStack, **flags: Any) -> Instance:
    engine = stack.enter_context(SimEngine(llumlet_port=0, **flags))
    found = Instance(engine, stack.enter_context(grpc.insecure_channel(engine.llumlet)))
    stack.callback(found.http.close)
    return found


@pytest.fixture(scope="module")
def idle() -> Iterator[dict[str, list[Instance]]]:
    """Engines without flags but their pace, which several tests use one after the other."""
    with ExitStack() as stack:
        yield {pace: [start(stack, tpot=pace) for _ in range(3)] for pace in (STEADY, SLOW)}


@pytest.fixture
def instance(idle: dict[str, list[Instance]]) -> Iterator[Start]:
    """Engines that make a token every 5 ms, or so slowly that no stream ends before the test has moved it.

    Those with flags, and an ``own`` one, which is to die, are started for the test.
    """
    used: list[Instance] = []
    with ExitStack() as stack:

        def instance_with(*, slow: bool = False, own: bool = False, **flags: Any) -> Instance:
            pace = SLOW if slow else STEADY
            if flags or own:
                return start(stack, tpot=pace, **flags)
            used.append(next(each for each in idle[pace] if each not in used))
            return used[-1]

        yield instance_with
        for each in used:
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
