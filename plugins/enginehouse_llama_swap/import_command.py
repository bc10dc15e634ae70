"""``enginehouse import llama-swap``: converts llama-swap's configuration."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from enginehouse import ConfigError

if TYPE_CHECKING:
    from enginehouse_llama_swap.table import Note

_KEYS_SHOWN = 3


@click.command("llama-swap")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the configuration to this new file, not to standard output.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: the configuration and the notes.")
def llama_swap(file: Path, output: Path | None, as_json: bool) -> None:
    """Convert llama-swap's YAML file FILE to our configuration, with notes on what has no equivalent.

    The notes go to standard error, one line each. API keys that FILE holds in plain text are in the output too.
    """
    import tomli_w  # these take longer to import than `--help` should

    from enginehouse_llama_swap.convert import convert

    config, notes = convert(_read(file), str(file))
    text = tomli_w.dumps(config, multiline_strings=True)
    if output is not None:
        _write(output, text)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode({"config": config, "notes": notes}), indent=2))
        return
    if output is None:
        click.echo(text, nl=False)
    for line in _lines(notes):
        click.secho(f"note: {line}", err=True, fg="yellow")


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(file)) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text (byte {error.start})", file=str(file)) from None


def _write(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise ConfigError("is there already", file=str(file), remedy="name a new file") from None
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(file)) from None


def _lines(notes: Iterable[Note]) -> list[str]:
    """A line for each different note, with the keys that it concerns."""
    keys: dict[str, list[str]] = {}
    for note in notes:
        keys.setdefault(note.note, []).append(note.key)
    return [f"{_listed(places)}: {text}" for text, places in keys.items()]


def _listed(keys: list[str]) -> str:
    rest = len(keys) - _KEYS_SHOWN
    return ", ".join(keys) if rest <= 1 else f"{', '.join(keys[:_KEYS_SHOWN])} and {rest} more"
