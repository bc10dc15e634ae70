"""``python -m enginehouse_sim``: the simulated engine as a server process."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from enginehouse import parse_duration
from enginehouse_sim.server.settings import Settings


def _seconds(ctx: click.Context, param: click.Parameter, text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


_duration_option = partial(click.option, callback=_seconds, metavar="DURATION")
_PORT = click.IntRange(0, 65535)
_POSITIVE = click.IntRange(min=1)


@click.command(name="python -m enginehouse_sim", context_settings={"show_default": True})
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--port", type=_PORT, default=8000, help="Port to listen on; 0 picks a free one, which is printed.")
@click.option("--control-port", type=_PORT, help="A second port, which answers while a 'refuse' fault is set.")
@click.option("--model", "models", multiple=True, default=("sim",), help="Name to serve; may be given several times.")
@_duration_option("--ttft", default="50ms", help="Time to the first token of a request that runs.")
@_duration_option("--tpot", default="10ms", help="Time from one token to the next.")
@click.option("--concurrency", type=_POSITIVE, default=256, help="Most requests that run at once; others wait.")
@click.option("--context-length", type=_POSITIVE, default=8192, help="Most tokens of a prompt and its answer.")
@click.option("--seed", type=int, default=0, help="What all text and vectors are made from.")
@click.option("--api-key", help="Ask for this key on all pages under /v1.")
@_duration_option("--start-delay", default="0", help="Time until it listens, as if a model were loaded.")
@click.option("--vision/--no-vision", default=None, help="Publish whether images are understood.")
@click.option("--tools/--no-tools", default=None, help="Publish whether tools are understood.")
@click.option("--json-mode/--no-json-mode", default=None, help="Publish whether JSON can be asked for.")
def main(**flags: Any) -> None:
    """Serve simulated models over the OpenAI API: deterministic text, at the pace asked for, without a GPU."""
    from enginehouse_sim.server.process import run  # after the flags are checked: this brings the whole server in

    try:
        run(Settings(**flags), click.echo)
    except OSError as error:
        raise click.ClickException(f"cannot listen on {flags['host']}, port {flags['port']}: {error}") from error


if __name__ == "__main__":
    main()
