"""Streams leave an engine that is to stop, where another one can continue them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from click.testing import CliRunner

from enginehouse.cli import enginehouse
from enginehouse_kit.engines import SimEngine
from tests.support.operated_gateway import ADMIN_KEY, OperatedGateway, Serve, simulated_table
from tests.support.seen_stream import SeenStream, read_stream

BODY = {"model": "m", "prompt": "Tell", "max_tokens": 600, "stream": True, "stream_options": {"include_usage": True}}


@pytest.fixture(scope="module")
def far() -> Iterator[SimEngine]:
    with SimEngine("m", ttft="1ms", tpot="1ms") as engine:
        yield engine


def config(far: SimEngine, tpot: str) -> str:
    slow = simulated_table("m", args=f'["--ttft", "1ms", "--tpot", "{tpot}"]')
    return f'{slow}{simulated_table("other")}[backends.far]\nurl = "{far.url}"\ndriver = "sim"\npriority = 90\n'


class Reading:
    """A stream that began at the slow engine of ``m``, where it takes a minute."""

    def __init__(self, gateway: OperatedGateway, pool: ThreadPoolExecutor) -> None:
        assert gateway.operate("/api/models/m/load").status_code == 200
        self._whole: Future[SeenStream] = pool.submit(self._read, gateway)
        gateway.until(lambda _: [(each["replica"], each["stays"]) for each in gateway.requests()] == [("m@m", None)])

    @staticmethod
    def _read(gateway: OperatedGateway) -> SeenStream:
        return read_stream(gateway.http.post("/v1/completions", json=BODY).content)

    def ends_as(self, far: SimEngine, gateway: OperatedGateway) -> None:
        seen, whole = (
            self._whole.result(),
            read_stream(gateway.http.post(f"{far.url}/v1/completions", json=BODY).content),
        )
        assert (seen.text, seen.counts, seen.ended) == (whole.text, whole.counts, True)


def test_streams_leave_an_engine_that_is_launched_anew_evicted_or_drained(serve: Serve, far: SimEngine) -> None:
    gateway = serve(config(far, "100ms"))
    gateway.until_health(far="healthy")
    with ThreadPoolExecutor() as pool:
        reading = Reading(gateway, pool)
        gateway.reconfigure(config(far, "101ms"))
        reading.ends_as(far, gateway)
        gateway.until_running()

        reading = Reading(gateway, pool)
        assert gateway.ask("other").status_code == 200
        assert gateway.running() == {"other": "ready"}
        reading.ends_as(far, gateway)

        reading = Reading(gateway, pool)
        arguments = ["drain", "m", "--stop", "--url", gateway.process.url, "--key", ADMIN_KEY]
        drained = CliRunner().invoke(enginehouse, arguments)
        first, *_, last = drained.stdout.splitlines()
        assert (first, last) == ("m gets no new requests", "m has stopped")
        assert gateway.running() == {}
        reading.ends_as(far, gateway)
    assert gateway.went_to("m") == "far"
    assert "The gateway did not launch backend 'far'" in gateway.operate("/api/backends/far/stop").text
