"""What came of copies is shown, whichever process has sent them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway


async def comparison(gateway: ServedGateway, same: int, differs: int) -> dict[str, Any]:
    """The figures of the only mirror, once so many copies were answered. Workers report once a second."""
    found: dict[str, Any] = {}
    while (found.get("same"), found.get("differs")) != (same, differs):
        await asyncio.sleep(0.01)
        [found] = msgspec.json.decode((await gateway.ask(gateway.get("/api/status"))).body)["mirrors"]
    return found


async def test_copies_are_counted_and_timed(mirroring: OpenGateway, engine: StartEngine) -> None:
    real, new = await engine(), await engine()
    twin = {"twin": {"url": new.url, "models": ["m-new"]}}
    gateway = await mirroring(real, backends=twin, routing={"mirrors": {"m": {"to": "m-new"}}}, checks={"failures": 10})
    new.otherwise((new.answer(b"{}", 500),))
    for number in range(4):
        await gateway.ask()
        await gateway.until(lambda: len(new.calls) == number + 1)  # noqa: B023
    await comparison(gateway, 0, 4)
    new.otherwise((new.answer(),))
    await gateway.ask()
    found = await comparison(gateway, 1, 4)
    assert found["skipped"] == 0
    assert found["statuses"] == [
        {"real": 200, "mirror": 200, "requests": 1},
        {"real": 200, "mirror": 500, "requests": 4},
    ]
    assert all(value > 0 for value in found["first_byte_ms"].values())
    page = (await gateway.ask(gateway.get("/metrics"))).body
    for line in (
        b'enginehouse_mirrored_requests_total{model="m",outcome="differs",to="m-new"} 4.0',
        b'enginehouse_mirror_statuses_total{mirror="500",model="m",real="200",to="m-new"} 4.0',
        b'enginehouse_mirror_duration_seconds_count{model="m",side="mirror",to="m-new"} 1.0',
    ):
        assert line in page
