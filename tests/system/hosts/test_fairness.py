"""Constant traffic to one model does not keep others waiting for longer than ``max_wait``."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.operated_gateway import OperatedGateway, Serve, table

MAX_WAIT_S = 0.6
A_TURN_S = 10.0
"""More than a load and the answers under way take together, also on a busy machine."""
LIMITS = f'[scheduling]\nmax_wait = "{MAX_WAIT_S}s"\n'
LENGTHS = (130, 170, 230, 310)
"""Of answers, in tokens that take 1 ms each: they do not all end at once."""


@contextmanager
def constant_traffic(gateway: OperatedGateway, models: str) -> Iterator[Counter[tuple[str, int]]]:
    """Keep each model from ever having nothing to do; counts the answers by model and status."""
    answers: Counter[tuple[str, int]] = Counter()
    enough = threading.Event()

    def keep_asking(model: str, tokens: int) -> None:
        while not enough.is_set():
            answers[model, gateway.ask(model, max_tokens=tokens).status_code] += 1

    threads = [threading.Thread(target=keep_asking, args=(model, tokens)) for model in models for tokens in LENGTHS]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        enough.set()
        for thread in threads:
            thread.join()


def test_constant_traffic_to_one_model_does_not_starve_another(serve: Serve) -> None:
    gateway = serve(LIMITS + table("a") + table("b"))
    gateway.operate("/api/models/a/load")
    with constant_traffic(gateway, "a") as answers:
        gateway.until(lambda _: answers["a", 200] >= len(LENGTHS))
        began = time.monotonic()
        assert gateway.ask("b").status_code == 200
        waited = time.monotonic() - began
        served = answers["a", 200]
        gateway.until(lambda _: answers["a", 200] > served + len(LENGTHS))
    assert waited < MAX_WAIT_S + A_TURN_S
    assert {status for _, status in answers} == {200}
    assert (gateway.loads("a"), gateway.loads("b")) == (2, 1)


def test_models_with_constant_traffic_take_turns(serve: Serve) -> None:
    gateway = serve(LIMITS + "".join(table(model) for model in "ab"))
    began = time.monotonic()
    with constant_traffic(gateway, "ab") as answers:
        gateway.until(lambda _: all(gateway.loads(model) >= 2 for model in "ab"))
    turns = sum(gateway.loads(model) for model in "ab")
    assert {status for _, status in answers} == {200}
    assert time.monotonic() - began < turns * (MAX_WAIT_S + A_TURN_S)
    assert all(answers[model, 200] >= 2 * len(LENGTHS) for model in "ab")
