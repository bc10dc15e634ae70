"""Simulated engines that move requests, and clients that read streams from them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any

import grpc
import httpx

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.llumlet.llumlet_pb2 import MigrateRequest, MigrateResponse
from tests.support import plain_httpx as http
from tests.support.sampled_text import generate

PROMPT = "all aboard " * 40


class Instance:
    """A simulated engine that can be told to move its requests."""

    def __init__(self, engine: SimEngine, channel: grpc.Channel) -> None:
        self.engine = engine
        self.http = http.Client(base_url=engine.url, timeout=30)
        self._migrate = channel.unary_unary(
            "/llumlet.Llumlet/Migrate",
            request_serializer=MigrateRequest.SerializeToString,
            response_deserializer=MigrateResponse.FromString,
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
        response: MigrateResponse = self._migrate(command, timeout=60)
        return response

    def computed_tokens(self) -> float:
        """The tokens of all steps so far."""
        return self.engine.metric("iteration_tokens_total_sum")

    def is_clean(self) -> bool:
        """Whether all requests have ended, and all migrations; what was cached is dropped."""
        figures = self.status()
        busy = figures["num_running_requests"] + figures["num_waiting_requests"]
        moving = figures["num_migrate_in_reqs"] + figures["num_migrate_out_reqs"]
        if busy or moving:
            return False
        dropped: bool = self.http.post("/reset_prefix_cache").json()["success"]
        return dropped

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
            assert self._came.wait_for(lambda: self.pieces >= pieces or self.ended, timeout=60)
        assert not self.ended, self.ended

    def leave(self) -> None:
        self._left.set()

    def finish(self) -> str:
        self._done.result(timeout=60)
        return self.text


Start = Callable[..., Instance]
Open = Callable[..., Stream]


def until(holds: Callable[[], bool]) -> None:
    """Ask real processes again and again; each time costs them a request."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "it never happened"


def expected(max_tokens: int) -> str:
    """The answer to ``PROMPT``, wherever it is generated."""
    return "".join(islice(generate(0, PROMPT), max_tokens))
