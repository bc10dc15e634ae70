from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import grpc
import httpx
import pytest

from enginehouse.testing.engines import SimEngine
from enginehouse_sim.llumlet.llumlet_pb2 import AbortRequests, AbortResponse, MigrateRequest, MigrateResponse

PROMPT = "all aboard " * 40


class Instance:
    """A simulated engine that can be told to move its requests."""

    def __init__(self, engine: SimEngine, channel: grpc.Channel) -> None:
        self.engine = engine
        self.http = httpx.Client(base_url=engine.url, timeout=30, trust_env=False)
        self._migrate = channel.unary_unary(
            "/llumlet.Llumlet/Migrate",
            request_serializer=MigrateRequest.SerializeToString,
            response_deserializer=MigrateResponse.FromString,
        )
        self._abort = channel.unary_unary(
            "/llumlet.Llumlet/Abort",
            request_serializer=AbortRequests.SerializeToString,
            response_deserializer=AbortResponse.FromString,
        )

    def migrate(self, to: Instance, rule: str = "NUM_REQ", order: str = "FCR", **value: Any) -> MigrateResponse:
        host, port = to.engine.llumlet.split(":")
        command = MigrateRequest(
            src_engine_id="here",
            dst_engine_id="there",
            dst_engine_ip=host,
            dst_engine_port=int(port),
            migration_type=rule,
            migration_req_policy=order,
            **(value or {"num_reqs": 1}),
        )
        response: MigrateResponse = self._migrate(command, timeout=20)
        return response

    def abort(self, *request_ids: str) -> AbortResponse:
        response: AbortResponse = self._abort(AbortRequests(request_ids=request_ids), timeout=20)
        return response

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get("/instance_status").json()
        return found


class Stream:
    """A client that reads a stream in a thread of its own."""

    def __init__(self, instance: Instance, pool: ThreadPoolExecutor, max_tokens: int, name: str, prompt: str) -> None:
        self.text = ""
        self.ended = ""
        self.pieces = 0
        self._came = threading.Condition()
        self._left = threading.Event()
        self._body = {
            "model": "sim",
            "prompt": prompt,
            "max_tokens": max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        self.cached_tokens = 0
        self._done: Future[None] = pool.submit(self._read, instance.http, name)

    def _read(self, http: httpx.Client, name: str) -> None:
        try:
            with http.stream("POST", "/v1/completions", json=self._body, headers={"x-request-id": name}) as response:
                for line in response.iter_lines():
                    if self._left.is_set():
                        return
                    if line.startswith("data: "):
                        self._take(line.removeprefix("data: "))
        except httpx.HTTPError as error:
            self._note("broken", repr(error))

    def _take(self, data: str) -> None:
        if data == "[DONE]":
            self._note("done")
            return
        event = json.loads(data)
        if "error" in event:
            self._note("error", event["error"]["message"])
            return
        with self._came:
            for choice in event["choices"]:
                self.text += choice["text"]
                self.pieces += 1
            self._came.notify_all()

    def _note(self, how: str, why: str = "") -> None:
        with self._came:
            self.ended = self.ended or f"{how} {why}".strip()
            self._came.notify_all()

    def until(self, pieces: int) -> None:
        with self._came:
            assert self._came.wait_for(lambda: self.pieces >= pieces or self.ended, timeout=20)
        assert not self.ended, self.ended

    def leave(self) -> None:
        self._left.set()

    def finish(self) -> str:
        self._done.result(timeout=30)
        return self.text


Start = Callable[..., Instance]
Open = Callable[..., Stream]


@pytest.fixture
def instance() -> Iterator[Start]:
    """Engines that make a token every 5 ms, unless told otherwise."""
    with ExitStack() as stack:

        def start(**flags: Any) -> Instance:
            engine = stack.enter_context(SimEngine(llumlet_port=0, **{"tpot": "5ms", **flags}))
            found = Instance(engine, stack.enter_context(grpc.insecure_channel(engine.llumlet)))
            stack.callback(found.http.close)
            return found

        yield start


@pytest.fixture
def stream() -> Iterator[Open]:
    """Streams: ``stream(instance, max_tokens, name)``."""
    with ThreadPoolExecutor(max_workers=16) as pool:

        def open_stream(instance: Instance, max_tokens: int, name: str = "a", prompt: str = PROMPT) -> Stream:
            return Stream(instance, pool, max_tokens, name, prompt)

        yield open_stream
