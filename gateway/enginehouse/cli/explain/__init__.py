"""``enginehouse explain``: explains decisions without a running gateway."""

from __future__ import annotations

import click

from enginehouse.cli.explain.rescheduling import rescheduling
from enginehouse.cli.explain.route import route
from enginehouse.cli.explain.swap import swap


@click.group()
def explain() -> None:
    """Explain decisions, without a running gateway."""


explain.add_command(route)
explain.add_command(swap)
explain.add_command(rescheduling)
