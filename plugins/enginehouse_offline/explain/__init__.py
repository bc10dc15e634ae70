"""``enginehouse explain``: explains decisions without a running gateway."""

from __future__ import annotations

import click

from enginehouse_offline.explain.rescheduling import rescheduling
from enginehouse_offline.explain.route import route
from enginehouse_offline.explain.scale import scale
from enginehouse_offline.explain.swap import swap


@click.group()
def explain() -> None:
    """Explain decisions.

    All but those of scale need no running gateway."""


explain.add_command(route)
explain.add_command(swap)
explain.add_command(rescheduling)
explain.add_command(scale)
