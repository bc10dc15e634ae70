"""``enginehouse bench``: measures what the gateway costs on this machine."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import click
import msgspec

from enginehouse import parse_size
from enginehouse_bench.engine import MODEL


def _counts(ctx: click.Context, param: click.Parameter, text: str) -> list[int]:
    try:
        counts = [int(each) for each in text.split(",") if each]
    except ValueError:
        counts = [0]
    if any(count < 1 for count in counts):
        raise click.BadParameter(f"'{text}' is not a list of numbers above 0, such as 1,32", ctx, param)
    return counts


def _bytes(ctx: click.Context, param: click.Parameter, text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _variants(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> dict[str, dict[str, str]]:
    variants = {text: dict(part.partition("=")[::2] for part in shlex.split(text)) for text in texts}
    for text, keys in variants.items():
        if not all("." in key and value for key, value in keys.items()):
            raise click.BadParameter(f"'{text}' must be SECTION.KEY=VALUE, more of them after a space", ctx, param)
    return variants


@click.command()
@click.option(
    "--against", multiple=True, metavar="URL", help="Another gateway in front of the same engine; may be repeated."
)
@click.option("--engine", metavar="URL", help="The engine for all gateways, in place of a minimal one.")
@click.option("--model", default=MODEL, show_default=True, help="The model that requests name.")
@click.option("--key", default="", help="An API key that every request carries.")
@click.option("--set", "variants", multiple=True, callback=_variants, metavar="KEY=VALUE...",
              help="Also measure the gateway with these keys, such as routing.strategy=random.")  # fmt: skip
@click.option(
    "--connections", default="1,32", show_default=True, callback=_counts, help="Numbers of concurrent clients."
)
@click.option(
    "--streams", default="100", show_default=True, callback=_counts, help="Numbers of concurrent streams; '' for none."
)
@click.option("--body", default="200B", show_default=True, callback=_bytes, metavar="SIZE", help="Size of a request.")
@click.option("--unique-heads", is_flag=True, help="Give each request a traceparent of its own.")
@click.option(
    "--seconds", default=1.0, show_default=True, type=click.FloatRange(min=0.05), help="Duration of one measurement."
)
@click.option(
    "--rounds", default=5, show_default=True, type=click.IntRange(min=1), help="Measurements of each gateway."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def bench(
    against: Sequence[str], engine: str | None, model: str, key: str, variants: Mapping[str, Mapping[str, str]],
    connections: Sequence[int], streams: Sequence[int], body: int, unique_heads: bool, seconds: float, rounds: int,
    as_json: bool,
) -> None:  # fmt: skip
    """Measure what a gateway costs.

    It compares the gateway with its engine alone and with other gateways.

    The gateway that it starts has a core to itself if there are two. In each round, all get requests in turn.
    """
    from enginehouse_bench.clients import Question  # these take longer to import than `--help` should
    from enginehouse_bench.report import run, show
    from enginehouse_bench.rounds import Workload

    question = Question(model, body, unique_heads, {"authorization": f"Bearer {key}"} if key else {})
    workloads = [Workload("requests", count, seconds) for count in connections]
    workloads += [Workload("streams", count) for count in streams]
    report = run(engine, against, variants, question, workloads, rounds)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(report), indent=2))
    else:
        show(report)
