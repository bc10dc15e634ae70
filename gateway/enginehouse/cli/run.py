"""``enginehouse run``: serves models' files without a configuration."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import click
import psutil
import tomli_w

from enginehouse.app.watch import FolderWatch
from enginehouse.cli.model_folders import model_places
from enginehouse.cli.options import take_over_option
from enginehouse.cli.serve import adjusted, serve_loaded
from enginehouse.cli.served_files import ServedFiles, served_files
from enginehouse.config.load_config import LoadedConfig, read_document
from enginehouse.config.schema import PluginSettings
from enginehouse.domain.errors import ConfigError
from enginehouse.engines.gpus.nvml import Nvml
from enginehouse.interfaces.driver_support import support_of
from enginehouse.interfaces.drivers import SupportsLaunch
from enginehouse.plugin_manager.discovery import load_plugins

_SHARE_OF_MEMORY = 0.8
"""Of main memory, for the engines; the rest is the system's."""


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--models", "only", metavar="NAMES", help="Serve only these of the models: a,b.")
@click.option("--host", help="Address to listen on; 127.0.0.1 by default.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 8080 by default, 0 picks one.")
@click.option("--print-config", is_flag=True, help="Print the configuration that this uses, and do not serve.")
@click.option(
    "--save",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write that configuration to the new file FILE, and do not serve.",
)
@take_over_option
def run(
    paths: Sequence[Path],
    only: str | None,
    host: str | None,
    port: int | None,
    print_config: bool,
    save: Path | None,
    take_over: bool,
) -> None:
    """Serve models without a configuration file.

    PATHS are GGUF files, folders of Hugging Face models, and folders with such at any depth: also those of LM Studio,
    of Ollama (~/.ollama/models) and of the Hugging Face cache (~/.cache/huggingface/hub).

    A model has the name of its file without the ending, or of its folder. All shards of a model are one model, and its
    mmproj file belongs to it. Models are loaded on demand, as many at once as memory has room for; the least recently
    used stop first. New models in a folder are served too.
    """
    drivers, memory = _drivers(), _memory()
    names = [name.strip() for name in only.split(",")] if only else ()
    find = partial(served_files, paths, drivers, names)

    def read() -> LoadedConfig:
        loaded = read_document(find().document(memory), None, os.environ)
        return loaded._replace(config=adjusted(loaded.config, host, port, watch=True))

    found = find()
    text = tomli_w.dumps(found.document(memory))
    if print_config:
        click.echo(text, nl=False)
    elif save is not None:
        _save(save, text)
    else:
        _tell(found)
        if found.problem:
            raise ConfigError(found.problem)
        greeting = partial(_greeting, next(iter(found.models)))
        serve_loaded(read, FolderWatch(lambda: _folders(paths)), take_over=take_over, greeting=greeting)


def _drivers() -> Mapping[str, SupportsLaunch]:
    registry = load_plugins(PluginSettings()).registry
    return {type: support_of(registry.create("driver", type)).launch for type in registry.types("driver")}


def _memory() -> int:
    """The bytes that engines may take together: those of the GPUs, else most of main memory."""
    gpus = sum(gpu.total for gpu in Nvml().read())
    return gpus or int(psutil.virtual_memory().total * _SHARE_OF_MEMORY)


def _folders(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from model_places(path)


def _save(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise ConfigError("is there already", file=str(file), remedy="give the name of a new file") from None
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(file)) from None
    click.echo(f"Wrote {file}. Serve it: enginehouse serve --config {click.format_filename(file)}")


def _tell(found: ServedFiles) -> None:
    """Say what was found, and what is not served."""
    for name, table in found.models.items():
        click.echo(f"  {name}  ({table['driver']}, {table['path']})", err=True)
    for problem in found.skipped:
        click.secho(f"  left out: {problem}", err=True, fg="yellow")


def _greeting(model: str, url: str) -> str:
    return f"""\
Enginehouse is listening on {url}

Talk to a model:
  {url}/dashboard
  enginehouse chat {model} --url {url}
  curl -N {url}/v1/chat/completions -H 'content-type: application/json' \\
    -d '{{"model": "{model}", "stream": true, "messages": [{{"role": "user", "content": "Hello"}}]}}'
"""
