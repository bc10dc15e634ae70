"""Gateways with several workers: what is true of one process is true of all of them together."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import httpx
import psutil
import pytest

from enginehouse_kit.engines import SimEngine
from tests.support import plain_httpx
from tests.support.operated_gateway import ADMIN_KEY, OperatedGateway, ServeAlone

WORKERS = 4
SETTINGS = f"""
[server]
workers = {WORKERS}
[checks]
interval = "100ms"
"""
KEYS = f"""
[[auth.keys]]
name = "admin"
key = "{ADMIN_KEY}"
admin = true
[[auth.keys]]
name = "few"
key = "k-few"
requests_per_minute = 10
[[auth.keys]]
name = "two"
key = "k-two"
max_concurrent = 2
"""


def backend(name: str, engine: SimEngine) -> str:
    return f'[backends.{name}]\ndriver = "sim"\nurl = "{engine.url}"\n'


@pytest.fixture
def slow_engines() -> Iterator[tuple[SimEngine, SimEngine]]:
    """Two engines whose streams last until they are ended."""
    with ExitStack() as stack:
        a, b = (stack.enter_context(SimEngine("m", tpot="20ms", context_length=100_000)) for _ in range(2))
        yield a, b


@pytest.fixture
def reading_engines() -> Iterator[tuple[SimEngine, SimEngine]]:
    """Two engines that need time to read a prompt: else nothing is gained by one that has it in its cache."""
    with ExitStack() as stack:
        a, b = (stack.enter_context(SimEngine("m", profile="polynomial", context_length=100_000)) for _ in range(2))
        yield a, b


def fresh(gateway: OperatedGateway, path: str, method: str = "GET", **more: Any) -> httpx.Response:
    """Ask on a connection of its own, which any worker may accept."""
    headers = {"x-api-key": ADMIN_KEY, **more.pop("headers", {})}
    url = f"{gateway.process.url}{path}"
    with plain_httpx.Client() as client:
        answer: httpx.Response = client.request(method, url, headers=headers, **more)
        return answer


def whole(gateway: OperatedGateway, path: str) -> httpx.Response:
    """A page with the figures of all workers, for which it waits for a second at most."""
    while (answer := fresh(gateway, path)).elapsed.total_seconds() > 0.9:
        pass
    return answer


def chat(gateway: OperatedGateway, model: str = "m", key: str = ADMIN_KEY, **more: Any) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2, **more}
    return fresh(gateway, "/v1/chat/completions", "POST", json=body, headers={"x-api-key": key})


class Stream:
    """A stream that is read in a thread of its own. ``ended`` is set when it has ended."""

    def __init__(self, gateway: OperatedGateway, name: str, key: str = ADMIN_KEY) -> None:
        self.name = name
        self.text = ""
        self.status = 0
        self.failed = ""
        self.begun, self.ended = threading.Event(), threading.Event()
        self._gateway, self._key = gateway, key
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        body = {
            "model": "m",
            "stream": True,
            "max_tokens": 50_000,
            "messages": [{"role": "user", "content": self.name}],
        }
        headers = {"x-api-key": self._key, "x-request-id": self.name}
        url = f"{self._gateway.process.url}/v1/chat/completions"
        try:
            with plain_httpx.stream("POST", url, json=body, headers=headers) as answer:
                self.status = answer.status_code
                for piece in answer.iter_text():
                    self.text += piece
                    self.begun.set()
        except httpx.HTTPError as error:
            self.failed = str(error)
        finally:
            self.begun.set()
            self.ended.set()


@contextmanager
def streams(gateway: OperatedGateway, count: int) -> Iterator[list[Stream]]:
    found = [Stream(gateway, f"stream-{number}") for number in range(count)]
    for each in found:
        assert each.begun.wait(60)
    yield found


def metric(text: str, name: str) -> float:
    return sum(map(float, re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)))


def until(holds: Callable[[], bool], timeout: float = 60.0) -> None:
    end = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.02)


def test_pages_are_the_same_from_every_connection(
    serve_alone: ServeAlone, slow_engines: tuple[SimEngine, SimEngine], pool: ThreadPoolExecutor
) -> None:
    a, b = slow_engines
    gateway = serve_alone(SETTINGS + backend("a", a) + backend("b", b))
    status = gateway.until_health(a="healthy", b="healthy")
    assert len({each["pid"] for each in status["workers"]}) == WORKERS
    assert all(each["config_version"] == 1 for each in status["workers"])
    assert all(each.status_code == 200 for each in pool.map(lambda _: chat(gateway), range(24)))
    counted = [metric(whole(gateway, "/metrics").text, "enginehouse_requests_total") for _ in range(20)]
    assert counted == [24.0] * 20
    with streams(gateway, 6):
        for _ in range(20):
            shown = whole(gateway, "/api/requests").json()["requests"]
            assert sorted(each["id"] for each in shown) == [f"stream-{number}" for number in range(6)]
        status = whole(gateway, "/api/status").json()
        assert sum(each["requests"] for each in status["workers"]) == 6
        assert sum(each["pending"] for each in status["backends"]) == 6
        history = whole(gateway, "/api/history").json()
        assert history["count"] == 24
        assert len(whole(gateway, "/api/decisions").json()["decisions"]) == 30
        for number in range(6):
            answer = fresh(gateway, f"/api/requests/stream-{number}", "DELETE")
            assert answer.json() == {"cancelled": f"stream-{number}", "requests": 1}
        until(lambda: fresh(gateway, "/api/requests").json()["requests"] == [])


def test_streams_are_moved_and_drained_from_any_connection(
    serve_alone: ServeAlone, slow_engines: tuple[SimEngine, SimEngine]
) -> None:
    a, b = slow_engines
    gateway = serve_alone(SETTINGS + backend("a", a) + backend("b", b))
    gateway.until_health(a="healthy", b="healthy")
    with streams(gateway, 4) as live:
        for number in range(4):
            row = next(
                each for each in fresh(gateway, "/api/requests").json()["requests"] if each["id"] == f"stream-{number}"
            )
            there = "b" if row["replica"] == "m@a" else "a"
            moved = fresh(gateway, f"/api/requests/stream-{number}/move", "POST", json={"to": there})
            assert moved.status_code == 200, moved.text
            assert (moved.json()["from"], moved.json()["to"]) == (row["replica"].partition("@")[2], there)
        assert fresh(gateway, "/api/requests/stream-0/move", "POST", json={"to": "no"}).status_code == 404
        assert fresh(gateway, "/api/backends/a/drain", "POST").status_code == 200
        until(lambda: {each["replica"] for each in gateway.requests()} == {"m@b"})
        assert {chat(gateway).headers["x-enginehouse-backend"] for _ in range(8)} == {"b"}
        assert not any(each.failed for each in live)


def test_limits_of_keys_hold_for_all_workers_together(
    serve_alone: ServeAlone, slow_engines: tuple[SimEngine, SimEngine], pool: ThreadPoolExecutor
) -> None:
    a, _ = slow_engines
    gateway = serve_alone(SETTINGS + KEYS + backend("a", a))
    gateway.until_health(a="healthy")
    began = time.monotonic()
    answers = list(pool.map(lambda _: chat(gateway, key="k-few").status_code, range(40)))
    refilled = (time.monotonic() - began) * 10 / 60
    assert 10 <= answers.count(200) <= 10 + max(1, refilled)
    assert answers.count(200) + answers.count(429) == 40
    live = [Stream(gateway, f"stream-{number}", "k-two") for number in range(8)]
    assert all(each.begun.wait(60) for each in live)
    assert sorted(each.status for each in live) == [200, 200, *[429] * 6]


def test_a_model_is_launched_once(serve_alone: ServeAlone, pool: ThreadPoolExecutor) -> None:
    gateway = serve_alone(SETTINGS + '[models.m]\ndriver = "sim"\nconcurrency = 2\nargs = ["--ttft", "50ms"]\n')
    answers = list(pool.map(lambda _: chat(gateway).status_code, range(16)))
    assert answers == [200] * 16
    assert len(gateway.engines()) == 1
    assert gateway.loads("m") == 1
    assert metric(whole(gateway, "/metrics").text, "enginehouse_requests_total") == 16
    assert gateway.operate("/api/models/m/unload").status_code == 200
    until(lambda: gateway.running() == {})


def test_a_worker_that_is_killed_takes_only_its_own_streams(
    serve_alone: ServeAlone, slow_engines: tuple[SimEngine, SimEngine]
) -> None:
    a, b = slow_engines
    gateway = serve_alone(SETTINGS + KEYS + backend("a", a) + backend("b", b) + "concurrency = 8\n")
    gateway.until_health(a="healthy", b="healthy")
    with streams(gateway, 8) as live:
        before = gateway.until(lambda status: sum(each["requests"] for each in status["workers"]) == 8)["workers"]
        victim = max(before, key=lambda each: each["requests"])
        os.kill(victim["pid"], signal.SIGKILL)
        killed = time.monotonic()
        left = 8 - victim["requests"]

        def replaced(status: dict[str, Any]) -> bool:
            pids = {each["pid"] for each in status["workers"] if each["config_version"]}
            return len(pids) == WORKERS and victim["pid"] not in pids

        gateway.until(replaced)
        print(f"replaced after {time.monotonic() - killed:.2f} s")
        status = gateway.until(lambda status: status["requests"] == left)
        assert sum(each["pending"] for each in status["backends"]) == left
        until(lambda: sum(each.ended.is_set() for each in live) == victim["requests"])
        text = whole(gateway, "/metrics").text
        assert metric(text, "enginehouse_workers_replaced_total") == 1
        assert all(chat(gateway).status_code == 200 for _ in range(12))


def runs(process: psutil.Process) -> bool:
    return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)


def none_runs(processes: list[psutil.Process]) -> bool:
    return not any(map(runs, processes))


def has_spare(forking: psutil.Process) -> bool:
    return len(forking.children()) == WORKERS + 1


def test_workers_are_replaced_after_the_process_that_forks_them_was_killed(
    serve_alone: ServeAlone, slow_engines: tuple[SimEngine, SimEngine]
) -> None:
    a, _ = slow_engines
    gateway = serve_alone(SETTINGS + KEYS + backend("a", a))
    gateway.until_health(a="healthy")
    for _ in range(2):
        workers = [psutil.Process(each["pid"]) for each in gateway.process.status()["workers"]]
        forking, old = psutil.Process(workers[0].ppid()), {each.pid for each in workers}
        until(partial(has_spare, forking))
        for each in (forking, *workers):
            each.kill()
        until(partial(none_runs, workers))

        def replaced(status: dict[str, Any], old: set[int] = old) -> bool:
            pids = {each["pid"] for each in status["workers"] if each["config_version"]}
            return len(pids) == WORKERS and not pids & old

        gateway.until(replaced)
        assert chat(gateway).status_code == 200


def test_a_gateway_that_can_start_no_worker_any_more_ends(
    serve_alone: ServeAlone, slow_engines: tuple[SimEngine, SimEngine]
) -> None:
    a, _ = slow_engines
    gateway = serve_alone(SETTINGS + KEYS + backend("a", a))
    gateway.until_health(a="healthy")
    owner = psutil.Process(gateway.process.pid)
    others = owner.children(recursive=True)
    for each in others:
        each.suspend()  # so that none has time to replace another
    for each in others:
        each.kill()
    until(lambda: not runs(owner))
    assert "No worker is left" in gateway.log


def test_a_worker_that_hangs_is_replaced(serve_alone: ServeAlone, slow_engines: tuple[SimEngine, SimEngine]) -> None:
    a, _ = slow_engines
    config = SETTINGS.replace("[checks]", 'worker_timeout = "1s"\n[checks]') + backend("a", a)
    gateway = serve_alone(config)
    gateway.until_health(a="healthy")
    [victim, *_] = gateway.process.status()["workers"]
    os.kill(victim["pid"], signal.SIGSTOP)
    gateway.until(lambda status: victim["pid"] not in {each["pid"] for each in status["workers"]})
    assert re.search(r'enginehouse_workers_replaced_total\{reason="hung"\} [1-9]', fresh(gateway, "/metrics").text)


def test_workers_of_a_dead_owner_finish_what_they_relay_and_end(
    serve_alone: ServeAlone, slow_engines: tuple[SimEngine, SimEngine]
) -> None:
    a, _ = slow_engines
    config = SETTINGS.replace("[checks]", 'drain_timeout = "2s"\n[checks]') + backend("a", a)
    gateway = serve_alone(config)
    gateway.until_health(a="healthy")
    workers = [psutil.Process(each["pid"]) for each in gateway.process.status()["workers"]]
    with streams(gateway, 3) as live:
        gateway.process.kill()
        pieces = [len(each.text) for each in live]
        until(lambda: all(len(each.text) > before for each, before in zip(live, pieces, strict=True)))
        with pytest.raises(httpx.NetworkError):  # a connection that nobody accepts any more is reset
            until(lambda: fresh(gateway, "/health").status_code == 0)
        _, alive = psutil.wait_procs(workers, timeout=60)
        assert not alive
        assert all("shutting_down" in each.text for each in live)


def test_every_worker_takes_a_new_configuration(
    serve_alone: ServeAlone, slow_engines: tuple[SimEngine, SimEngine]
) -> None:
    a, b = slow_engines
    gateway = serve_alone(SETTINGS + backend("a", a))
    gateway.until_health(a="healthy")
    gateway.reconfigure(SETTINGS + backend("b", b))
    gateway.until(lambda status: [each["config_version"] for each in status["workers"]] == [2] * WORKERS)
    gateway.until_health(b="healthy")
    assert {chat(gateway).headers["x-enginehouse-backend"] for _ in range(12)} == {"b"}


@pytest.mark.slow
def test_a_worker_that_comes_after_a_reload_logs_as_that_says(serve_alone: ServeAlone) -> None:
    with SimEngine("m") as engine:
        config = SETTINGS.replace("100ms", "1h") + backend("a", engine)
        gateway = serve_alone(config)
        gateway.until_health(a="healthy")
        old = {each["pid"] for each in gateway.process.status()["workers"]}
        gateway.reconfigure(f'{config}[telemetry]\nlog_format = "json"\n')
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        gateway.until(
            lambda status: (
                [each["config_version"] for each in status["workers"] if each["pid"] not in old] == [2] * WORKERS
            )
        )
        engine.stop()
        for _ in range(12):
            chat(gateway)
    until(lambda: '"request_id"' in fresh(gateway, "/logs").text)
    line, *_ = [
        each for each in fresh(gateway, "/logs").text.splitlines() if "unhealthy" in each and "request_id" in each
    ]
    assert json.loads(line)["message"].startswith("Backend 'a' is unhealthy: ")


def test_every_worker_knows_what_any_has_sent_where(
    serve_alone: ServeAlone, reading_engines: tuple[SimEngine, SimEngine]
) -> None:
    a, b = reading_engines
    gateway = serve_alone(SETTINGS + backend("a", a) + backend("b", b))
    gateway.until_health(a="healthy", b="healthy")
    for number in range(3):
        prompt = [{"role": "user", "content": f"{number} " + "a long prompt " * 2000}]
        first = chat(gateway, messages=prompt).headers["x-enginehouse-backend"]

        def known(prompt: object = prompt, first: str = first) -> bool:
            answer = fresh(gateway, "/api/explain/route", "POST", json={"model": "m", "messages": prompt}).json()
            cached = {each["backend"]: each["cached_tokens"] for each in answer["candidates"]}
            return bool(cached[first] > 4000)

        until(known)
        whole(gateway, "/api/status")  # so all have heard what the owner passed on before
        others = [chat(gateway, messages=prompt).headers["x-enginehouse-backend"] for _ in range(8)]
        assert others == [first] * 8


def test_the_stream_of_events_has_the_requests_of_all_workers(
    serve_alone: ServeAlone, slow_engines: tuple[SimEngine, SimEngine]
) -> None:
    a, _ = slow_engines
    gateway = serve_alone(SETTINGS + backend("a", a))
    gateway.until_health(a="healthy")
    seen: list[str] = []

    def read() -> None:
        url = f"{gateway.process.url}/api/events"
        with plain_httpx.stream("GET", url, headers={"x-api-key": ADMIN_KEY}) as answer:
            for line in answer.iter_lines():
                seen.append(line)
                if all(seen.count(f"event: request_{what}") >= 4 for what in ("routed", "finished")):
                    return

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    until(lambda: "event: snapshot" in seen)
    until(lambda: chat(gateway).status_code == 200 and not reader.is_alive())
    assert any('"replica":"m@a","status":200' in each for each in seen)
