"""Facts of a gateway for the pages of plugins."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from enginehouse.pages import PageFacts


def page_facts(**known: Any) -> PageFacts:
    """Facts of a gateway that has done nothing yet, with those that are ``known``."""
    idle = {
        "epoch": lambda: 0.0,
        "totals": lambda: (),
        "gauges": lambda: (),
        "ended": lambda: iter(()),
        "ended_count": lambda: 0,
        "session_headers": lambda: (),
        "logs": dict,
        "since": 0.0,
        "shows_metrics": True,
        "metrics": tuple,
        "engine_metrics": tuple,
        "engine": _nothing,
        "models": dict,
        "unknown_model": _nothing,
        "aliases": _nothing,
        "table": _nothing,
        "model_facts": dict,
        "protocols": tuple,
        "usage": _nothing,
        "limits": lambda name: (),
        "cost": lambda *tokens: 0.0,
        "audit": _nothing,
        "caller": lambda headers: "",
        "sender": lambda headers: None,
        "pulled": _nothing,
        "observe": lambda observer: None,
        "ignore": lambda observer: None,
        "folder": lambda: Path(),
        "closing": asyncio.Event(),
        "gateway": None,
    }
    return PageFacts(**{**idle, **known})


async def _nothing(*asked: Any) -> Any:
    return ()
