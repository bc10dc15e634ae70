"""``enginehouse schema``: the JSON schema of the configuration."""

from __future__ import annotations

import json

import click

from enginehouse_offline.render import json_schema


@click.command()
def schema() -> None:
    """Print the JSON schema of enginehouse.toml, for editors."""
    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
