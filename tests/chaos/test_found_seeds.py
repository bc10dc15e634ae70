"""Seeds that failed, or never ended, when they were run first."""

from __future__ import annotations

import pytest

from tests.chaos.processes import chaos

SEEDS = {
    2701: "the bench reads a flooded answer",
    3890: "a call to an engine's page finds its model unloaded",
    29723: "and is told so in pieces",
    32536: "an operator waits for an unload when the gateway stops",
    49166: "a reload gives a running engine another driver",
    54115: "a flood that arrives slowly outlasts the faults",
    65922: "a client of HTTP/1.0 reads too slowly",
    76456: "requests wait behind an answer that is not read when their client ends",
    621852: "the gateway stops while a server that loads models itself unloads one, and hangs",
    665924: "a reload removes a model that is being loaded, and another one needs its memory in the same step",
    699443: "a stream that progress has begun, under another name, is answered with JSON",
    1100132: "the client of a WebSocket leaves when its engine has sent messages and its farewell",
    2090127: "the gateway stops while a server unloads a model whose load was cancelled before it was ready",
}


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_was_found_stays_mended() -> None:
    said = chaos("--only", *map(str, SEEDS))
    assert f"{len(SEEDS)} seeds, " in said
