"""``enginehouse reschedule`` moves the streams of a gateway that runs elsewhere; two of them do no harm."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.parallel import all_of
from tests.support.stream_reader import Reader
from tests.support.waiting import until

COUNT, TOKENS = 8, 160
GATEWAY = """
[routing]
strategy = "priority_only"

[rescheduling]
enabled = true
mode = "standalone"
interval = "50ms"

[backends.a]
driver = "sim"
url = "{a}"

[backends.b]
driver = "sim"
url = "{b}"
priority = 1
"""
PLANS = """
[rescheduling]
enabled = true
interval = "50ms"
policies = ["neutral_load"]
neutral_load_metric = "num_requests"
neutral_load_threshold = 0
load_balance_threshold = 2
req_select_rule = "NUM_REQ"
req_select_value = 2
cool_down = "0s"
"""


@contextmanager
def reschedulers(number: int, folder: Path, gateway: str) -> Iterator[list[Path]]:
    """Yields the files that have what each one says."""
    (folder / "plans.toml").write_text(PLANS)
    command = [sys.executable, "-u", "-m", "enginehouse", "reschedule", "--config", str(folder / "plans.toml")]
    said = [folder / f"said-{each}" for each in range(number)]
    with ExitStack() as stack:
        for file in said:
            output = stack.enter_context(file.open("w"))
            each = subprocess.Popen([*command, "--gateway", gateway], stdout=output, stderr=subprocess.STDOUT)
            stack.callback(each.wait)
            stack.callback(each.terminate)
        yield said


@pytest.mark.long
async def test_two_at_once_move_streams_and_break_none(tmp_path: Path) -> None:
    a, b = SimEngine("m", tpot="500ms"), SimEngine("m", tpot="10ms")
    with all_of(a, b), RunningGateway(GATEWAY.format(a=a.url, b=b.url)) as gateway:
        gateway.until_health(a="healthy", b="healthy")
        async with plain_httpx.AsyncClient() as client:
            with reschedulers(2, tmp_path, gateway.url) as said:
                await until(lambda: all(each.read_text().startswith(f"watching {gateway.url} ") for each in said))
                readers = [Reader(number, TOKENS) for number in range(COUNT)]
                reading = [asyncio.ensure_future(each.read(client, gateway.url)) for each in readers]
                await until(lambda: any("neutral_load: a -> b: " in each.read_text() for each in said))
                await client.post(f"{gateway.url}/api/backends/a/drain")  # the rest would take more than a minute there
                seen = await asyncio.gather(*reading)
            metrics = (await client.get(f"{gateway.url}/metrics")).text
            whole = await asyncio.gather(*(Reader(n, TOKENS).read(client, b.url) for n in range(COUNT)))
    assert [(*each.answer, each.counts) for each in seen] == [(*each.answer, each.counts) for each in whole]
    assert 'outcome="tokens",reason="moved"' in metrics


async def test_a_request_that_is_being_moved_is_not_moved_again() -> None:
    a, b = SimEngine("m", tpot="500ms"), SimEngine("m")
    with all_of(a, b), RunningGateway(GATEWAY.format(a=a.url, b=b.url)) as gateway:
        gateway.until_health(a="healthy", b="healthy")
        async with plain_httpx.AsyncClient(base_url=gateway.url) as client:
            reader = Reader(0, TOKENS)
            reading = asyncio.ensure_future(reader.read(client, gateway.url))
            await until(lambda: reader.wire.count(b"data: ") >= 2)
            b.fault("hang")
            moving = asyncio.ensure_future(client.post("/api/requests/r0/move", json={"to": "b"}))
            await until(b.requests)
            refused = await client.post("/api/requests/r0/move", json={"to": "b"})
            b.clear()
            assert (await moving).status_code == 200
            assert (await reading).ended
    assert refused.status_code == 409
    error = refused.json()["error"]
    assert (error["code"], error["message"]) == ("cannot_continue", "The request is being moved already")
