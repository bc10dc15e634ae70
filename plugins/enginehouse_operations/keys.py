"""``enginehouse keys``: keys of clients, made and revoked while the gateway runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
import msgspec

from enginehouse.callers import LimitAmounts
from enginehouse_kit.gateway_client import GatewayClient, gateway_options
from enginehouse_kit.output import print_answer, print_json, print_table
from enginehouse_operations.options import answer_as_json, utc_time

_AMOUNTS = LimitAmounts.__struct_fields__


class _Keys(msgspec.Struct):
    keys: list[dict[str, Any]]


class _MadeKey(msgspec.Struct):
    name: str
    key: str


@click.group()
def keys() -> None:
    """Make, list, revoke and rotate keys of clients."""


@keys.command()
@click.argument("name")
@gateway_options
@click.option("--models", multiple=True, help="A model that the key may use, or a pattern; may be repeated.")
@click.option("--admin", is_flag=True, help="The key may use operators' pages.")
@click.option("--expires", help="Date or time in ISO 8601 from which on the key is refused.")
@click.option("--requests-per-minute", type=click.IntRange(0), help="Limit of requests per minute.")
@click.option("--tokens-per-minute", type=click.IntRange(0), help="Limit of tokens of prompts and answers per minute.")
@click.option("--tokens-per-day", type=click.IntRange(0), help="Limit of tokens per day, in UTC.")
@click.option("--budget-per-day", type=click.FloatRange(0), help="Limit of costs per day, in the currency of [prices].")
@click.option("--budget-per-month", type=click.FloatRange(0), help="Limit of costs per month.")
@click.option("--max-concurrent", type=click.IntRange(0), help="Limit of concurrent requests.")
@answer_as_json
def new(
    gateway: GatewayClient,
    name: str,
    models: tuple[str, ...],
    admin: bool,
    expires: str | None,
    as_json: bool,
    **amounts: float | None,
) -> None:
    """Make the key NAME and print its secret, which is shown only once."""
    asked: dict[str, Any] = {key: amount for key, amount in amounts.items() if amount is not None}
    asked |= {"name": name, "admin": admin}
    if models:
        asked["models"] = list(models)
    if expires:
        asked["expires"] = expires
    _print_secret(gateway, gateway.post("api", "keys", body=asked), as_json)


@keys.command()
@click.argument("name")
@gateway_options
@answer_as_json
def rotate(gateway: GatewayClient, name: str, as_json: bool) -> None:
    """Give the key NAME another secret and print it. The old one is refused at once."""
    _print_secret(gateway, gateway.post("api", "keys", name, "rotate"), as_json)


@keys.command()
@click.argument("name")
@gateway_options
@answer_as_json
def revoke(gateway: GatewayClient, name: str, as_json: bool) -> None:
    """Delete the key NAME. It is refused at once."""
    print_answer(gateway.delete("api", "keys", name), as_json, f"revoked: {name}")


@keys.command("list")
@gateway_options
@answer_as_json
def list_keys(gateway: GatewayClient, as_json: bool) -> None:
    """List all keys, without their secrets."""
    answer = gateway.get("/api/keys")
    if as_json:
        print_json(answer)
        return
    rows = []
    for row in gateway.read(answer, _Keys).keys:
        limits = "; ".join(filter(None, (_amounts(row), *map(_scoped, row.get("limits", ())))))
        used = "" if row["last_used"] is None else utc_time(row["last_used"])
        admin = "yes" if row.get("admin") else ""
        models = ", ".join(row.get("models", ()))
        rows.append((row["name"], row["source"], models, admin, limits, row.get("expires", ""), used))
    print_table(("name", "from", "models", "admin", "limits", "expires", "last used"), rows, lines=False)


def _amounts(limits: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {limits[key]:.15g}" for key in _AMOUNTS if limits.get(key))


def _scoped(limits: Mapping[str, Any]) -> str:
    """The limits of a key for some models, or for each of its end users."""
    whose = "each user, " if limits["per"] == "user" else ""
    return f"{whose}{', '.join(limits['models'])}: {_amounts(limits)}"


def _print_secret(gateway: GatewayClient, answer: bytes, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    made = gateway.read(answer, _MadeKey)
    click.echo(made.key)
    click.echo(f"This is the secret of '{made.name}'. It cannot be shown again.", err=True)
