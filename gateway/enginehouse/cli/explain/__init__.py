"""``enginehouse explain``: explains decisions without a running gateway."""

from __future__ import annotations

import click

from enginehouse.cli.explain.rescheduling import rescheduling
from enginehouse.cli.explain.route import route
from enginehouse.cli.explain.scale import scale
from enginehouse.cli.explain.swap import swap


@click.group()
def explain() -> None:
    """Explain decisions; all but those of scale without a running gateway."""


explain.add_command(route)
explain.add_command(swap)
explain.add_command(rescheduling)
explain.add_command(scale)
