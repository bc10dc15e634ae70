"""The commands ``enginehouse import NAME``. What converts is imported when a command runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from enginehouse import ConfigError
from enginehouse_kit.new_file import write_new_file

if TYPE_CHECKING:
    from enginehouse_importers.kit.table import Converted, Note

_KEYS_SHOWN = 3
MOST_BYTES = 1 << 20
"""The longest file that an importer reads."""
_NOTES = "Notes name each setting that has no equivalent."


def file_command(name: str, what: str, converter: Callable[[], Convert]) -> click.Command:
    """The command that converts a file. ``what``: for its help; ``converter`` imports what converts."""

    @click.command(name, help=f"Convert {what} FILE.\n\n{_NOTES}")
    @click.argument("file", type=click.Path(path_type=Path))
    @output_options
    def command(file: Path, output: Path | None, as_json: bool) -> None:
        put_out(converter()(read_text(file), str(file)), output, as_json)

    return command


def arguments_command(name: str, what: str, converter: Callable[[], Convert]) -> click.Command:
    """The command that converts the command line of another program, which follows behind ``--``."""
    text = f"Convert the command line of {what}.\n\n{_NOTES}"

    @click.command(name, help=text, context_settings={"ignore_unknown_options": True})
    @click.argument("arguments", nargs=-1, required=True, type=click.UNPROCESSED)
    @output_options
    def command(arguments: tuple[str, ...], output: Path | None, as_json: bool) -> None:
        put_out(converter()("\n".join(arguments), name), output, as_json)

    return command


def output_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--output`` and ``--json``."""
    command = click.option("--json", "as_json", is_flag=True, help="Print one JSON object: configuration and notes.")(
        command
    )
    return click.option(
        "--output",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Write the configuration to this new file, not to standard output.",
    )(command)


def put_out(converted: Converted, output: Path | None, as_json: bool) -> None:
    """Print or write a converted configuration. The notes go to standard error, one line each."""
    import tomli_w  # takes longer to import than `--help` should

    config, notes = converted
    text = tomli_w.dumps(config, multiline_strings=True)
    if output is not None:
        write_new_file(output, text)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode({"config": config, "notes": notes}), indent=2))
        return
    if output is None:
        click.echo(text, nl=False)
    for line in _lines(notes):
        click.secho(f"note: {line}", err=True, fg="yellow")


def read_text(file: Path) -> str:
    """The text of ``file``. Raises ``ConfigError``."""
    try:
        with file.open("rb") as source:
            found = source.read(MOST_BYTES + 1)
        if len(found) > MOST_BYTES:
            raise ConfigError(f"is longer than {MOST_BYTES} bytes", file=str(file))
        return found.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(file)) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text (byte {error.start})", file=str(file)) from None


def _lines(notes: Iterable[Note]) -> list[str]:
    """A line for each different note, with the keys that it concerns."""
    keys: dict[str, list[str]] = {}
    for note in notes:
        keys.setdefault(note.note, []).append(note.key)
    return [f"{_listed(places)}: {text}" for text, places in keys.items()]


def _listed(keys: list[str]) -> str:
    rest = len(keys) - _KEYS_SHOWN
    return ", ".join(keys) if rest <= 1 else f"{', '.join(keys[:_KEYS_SHOWN])} and {rest} more"


def _at(place: str) -> Callable[[], Convert]:
    """Imports the function at ``place``, ``module:name`` in this package."""

    def converter() -> Convert:
        module, _, name = place.partition(":")
        found: Convert = getattr(import_module(f"enginehouse_importers.{module}"), name)
        return found

    return converter


@click.command()
@click.argument("source", default="http://127.0.0.1:11434", metavar="[URL | MODELFILE]")
@output_options
def ollama(source: str, output: Path | None, as_json: bool) -> None:
    """Convert Ollama's models or a Modelfile.

    The models are those of a server at URL.
    """
    from enginehouse_importers.ollama import ask_server, convert_modelfile, convert_server

    if source.startswith(("http://", "https://")):
        converted = convert_server(source, ask_server(source))
    else:
        converted = convert_modelfile(read_text(Path(source)), source)
    put_out(converted, output, as_json)


llama_swap = file_command("llama-swap", "llama-swap's YAML file", _at("llama_swap.convert:convert"))
litellm = file_command("litellm", "LiteLLM's config.yaml", _at("litellm:convert"))
olla = file_command("olla", "Olla's YAML file", _at("olla:convert"))
nexus = file_command("nexus", "Nexus's nexus.toml", _at("nexus:convert"))
vllm_router = arguments_command("vllm-router", "vllm-router", _at("router_commands:convert_vllm_router"))
sglang_router = arguments_command("sglang-router", "sglang-router", _at("router_commands:convert_sglang_router"))
llama_server = file_command("llama-server", "llama-server's presets, the INI file", _at("presets:convert"))


Convert = Callable[[str, str], "Converted"]
"""Converts a text; the second argument is the name of its file in errors."""
