"""What an actor does on its node, without Ray."""

from __future__ import annotations

import asyncio
import signal

import pytest
from enginehouse_ray.engine_actor import EngineActor


@pytest.mark.parametrize("stop_command", ["no-such-stopper", "false"])
def test_after_a_stop_command_that_fails_the_signal_follows(stop_command: str) -> None:
    async def ended() -> int | None:
        actor = EngineActor("mine")
        assert not await actor.start(["sleep", "3600"], {}, ())
        await asyncio.wait_for(actor.stop(3600, [stop_command], {}), 60)
        return (await actor.news(0, 0))[2]

    assert asyncio.run(ended()) == -signal.SIGTERM
