"""``enginehouse explain swap``: which models would stop so that another can run."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from enginehouse.app import build_swapper
from enginehouse.cli.options import config_option
from enginehouse.cli.output import print_json, warn
from enginehouse.config.embedded import load_config_or_embedded
from enginehouse.config.managed import hosts_of_model
from enginehouse.config.rules import LOCAL_HOST
from enginehouse.config.schema import Config
from enginehouse.interfaces.swappers import SwapPlan
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.scheduling.explain import explain_swap
from enginehouse.scheduling.facts import host_facts


@click.command()
@config_option
@click.option("--target", metavar="MODEL", required=True, help="The model to run.")
@click.option("--running", metavar="A,B", default="", help="Running models, least recently used first.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def swap(config: Path | None, target: str, running: str, as_json: bool) -> None:
    """Show which models would stop so that another can run.

    Also which models would then run, and by which rule.

    A model that cannot run is an error.
    """
    loaded = load_config_or_embedded(config, os.environ)
    for warning in loaded.warnings:
        warn(warning)
    names = [name.strip() for name in running.split(",") if name.strip()]
    plan = _explain(loaded.config, target, names)
    if as_json:
        print_json(msgspec.json.encode(plan))
    else:
        click.echo(_verdict(plan))


def _explain(config: Config, target: str, running: list[str]) -> SwapPlan:
    model = config.models.get(target)
    host = host_facts(config, hosts_of_model(model)[0] if model else LOCAL_HOST)
    swapper = build_swapper(config, load_plugins(config.plugins).registry, host)
    return explain_swap(swapper, host, target, running)


def _verdict(plan: SwapPlan) -> str:
    stops = f"stops {', '.join(plan.evict)}" if plan.evict else "stops nothing"
    rule = f", set '{plan.set_name}'" if plan.set_name is not None else ""
    cost = f", cost {plan.cost}" if plan.cost is not None else ""
    return f"'{plan.target}' {stops}; then run: {', '.join(plan.set)}{rule}{cost}"
