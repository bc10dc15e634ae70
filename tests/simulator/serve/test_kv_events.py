"""KV events over ZeroMQ, as a router that follows vLLM reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import pytest
import zmq

from enginehouse_kit.engines import SimEngine
from tests.support import plain_httpx as http

END = (-1).to_bytes(8, "big", signed=True)


@pytest.fixture
def addresses(tmp_path: Path) -> tuple[str, str]:
    return f"ipc://{tmp_path}/events", f"ipc://{tmp_path}/replay"


@pytest.fixture
def engine(addresses: tuple[str, str]) -> Iterator[SimEngine]:
    config = {"endpoint": addresses[0], "replay_endpoint": addresses[1], "topic": "kv"}
    with SimEngine("tiny", block_size=4, kv_events_config=msgspec.json.encode(config).decode()) as engine:
        yield engine


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    with zmq.Context() as context:
        yield context


def ask(engine: SimEngine, prompt: str) -> None:
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 2}
    assert http.post(f"{engine.url}/v1/completions", json=body).status_code == 200


def test_stored_blocks_are_published_and_can_be_replayed(
    engine: SimEngine, addresses: tuple[str, str], context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    with context.socket(zmq.SUB) as events:
        events.subscribe("kv")
        events.connect(addresses[0])
        topic, number, payload = first_message(engine, events)
    timestamp, [stored, *_], rank = msgspec.msgpack.decode(payload)
    assert (topic, rank, stored["type"]) == (b"kv", 0, "BlockStored")
    assert timestamp > 1e9
    assert (stored["block_size"], len(stored["token_ids"]), len(stored["block_hashes"])) == (4, 4, 1)
    assert stored["medium"] == "GPU"
    with context.socket(zmq.DEALER) as replay:
        replay.connect(addresses[1])
        replay.send_multipart((b"", number))
        assert replay.recv_multipart() == [b"", b"kv", number, payload]
        while replay.recv_multipart()[2] != END:
            pass


def first_message(engine: SimEngine, events: zmq.Socket[bytes]) -> list[bytes]:
    """The first message after a subscription, which takes a moment: until then each prompt is a new one."""
    deadline = monotonic() + 30
    for number in count():
        ask(engine, f"number {number} " * 20)
        if events.poll(100):
            return events.recv_multipart()
        assert monotonic() < deadline, "no event came"
    raise AssertionError


@pytest.mark.parametrize("config", ['{"publisher": "kafka"}', '{"endpoints": "tcp://*:1"}', "[]"])
def test_a_configuration_that_cannot_be_understood_is_refused(config: str, capfd: Any) -> None:
    with pytest.raises(RuntimeError, match="did not start"):
        SimEngine("tiny", kv_events_config=config).start()
    assert re.search("Invalid value for '--kv-events-config'", capfd.readouterr().err)
