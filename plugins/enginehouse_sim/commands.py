"""The commands of ``enginehouse sim``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from enginehouse import ConfigError, EnginehouseError
from enginehouse_sim.simulator.core.options import POSITIVE, core_options
from enginehouse_sim.simulator.core.settings import CoreSettings
from enginehouse_sim.simulator.serve.command import serve
from enginehouse_sim.simulator.steps.latency_files import first_token_file, output_token_file
from enginehouse_sim.simulator.steps.profile import load_profile


@click.group(name="sim")
def sim() -> None:
    """Simulate an inference engine, without a GPU and without a model."""


sim.add_command(serve)


_trace = click.argument("trace", type=click.Path(path_type=Path))
_limit = click.option("--limit", type=POSITIVE, help="Only so many requests of the trace.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@sim.command(context_settings={"show_default": True})
@_trace
@core_options
@_limit
@_json
@click.option("--plot", "picture", type=click.Path(path_type=Path), help="Draw the figures: an .svg or .png file.")
def replay(trace: Path, core: CoreSettings, limit: int | None, as_json: bool, picture: Path | None) -> None:
    """Run the requests of TRACE through the engine on a virtual clock, and report latencies and throughput.

    TRACE is a CSV or JSON lines file with arrival (seconds), input_length, output_length and optionally prefix_ids, or
    an Azure or Mooncake trace as published.
    """
    from enginehouse_sim.simulator.replay.command import run_replay

    _report_errors(run_replay, trace, core, limit, as_json, picture)


@sim.command(context_settings={"show_default": True})
@_trace
@core_options
@_limit
@_json
def steps(trace: Path, core: CoreSettings, limit: int | None, as_json: bool) -> None:
    """Print what the scheduler plans for each step of TRACE; with --json the whole plan, one object in each line."""
    from enginehouse_sim.simulator.replay.command import run_steps

    _report_errors(run_steps, trace, core, limit, as_json)


@sim.command(context_settings={"show_default": True})
@click.argument("name", metavar="PROFILE")
@click.option("--ttft", type=click.Path(path_type=Path), required=True, help="The file for times to first token.")
@click.option("--tpot", type=click.Path(path_type=Path), required=True, help="The file for times per output token.")
@click.option("--kv-tokens", type=POSITIVE, default=262144, help="Tokens in the KV cache.")
def profile(name: str, ttft: Path, tpot: Path, kv_tokens: int) -> None:
    """Write the speed PROFILE as two files that [rescheduling] can predict latencies with.

    PROFILE is a bundled profile or a .toml file; ttft_profile and tpot_profile take the files, which have Llumnix's
    form.
    """
    _report_errors(_write_profile, name, ttft, tpot, kv_tokens)


def _write_profile(name: str, ttft: Path, tpot: Path, kv_tokens: int) -> None:
    found = load_profile(name)
    metadata = {"model": name, "timestamp": "", "description": f"{found.description}. {found.source}"}
    _write(ttft, first_token_file(found.steps, metadata))
    _write(tpot, output_token_file(found.steps, metadata, kv_tokens))


def _write(path: Path, content: dict[str, Any]) -> None:
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(path)) from None


def _report_errors(run: Callable[..., None], *arguments: object) -> None:
    try:
        run(*arguments)
    except EnginehouseError as error:
        raise click.ClickException(str(error)) from error
