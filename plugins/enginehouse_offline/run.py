"""``enginehouse run``: serves models' files without a configuration."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import tomli_w

from enginehouse import ConfigError
from enginehouse.cli.options import take_over_option
from enginehouse_kit.new_file import write_new_file
from enginehouse_offline.served_files import InstalledEngines, ServedFiles, model_places, served_files


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

    PATHS are GGUF files, folders of Hugging Face models, and folders that contain these at any depth, such as those of
    LM Studio, of Ollama (~/.ollama/models) and of the Hugging Face cache (~/.cache/huggingface/hub).

    A model has the name of its file without the ending, or of its folder. All shards of a model are one model, and its
    mmproj file belongs to it. Models are loaded on demand, as many at once as memory has room for; the least recently
    used stop first. New models in a folder are served too.
    """
    built = _find_built_engines()
    engines = InstalledEngines()
    memory = engines.memory()
    names = [name.strip() for name in only.split(",")] if only else ()
    find = partial(served_files, paths, engines, names)

    found = find()
    _tell(found)
    listens = {key: value for key, value in (("host", host), ("port", port)) if value is not None}
    text = tomli_w.dumps({**({"server": listens} if listens else {}), **_with_path(found.document(memory), built)})
    if save is not None:
        write_new_file(save, text)
        hint = f"Wrote {save}. Serve it: enginehouse serve --config {click.format_filename(save)}"
        click.echo(hint, err=print_config)
    if print_config:
        click.echo(text, nl=False)
    if not print_config and save is None:
        if found.problem:
            raise ConfigError(found.problem)
        greeting = partial(_greeting, next(iter(found.models)))
        from enginehouse_offline.served_folders import serve_document  # the whole gateway, which the help does not need

        serve_document(
            lambda: find().document(memory),
            lambda: _folders(paths),
            host=host,
            port=port,
            take_over=take_over,
            greeting=greeting,
        )


def _find_built_engines() -> str:
    """Look for programs also where a checkout's ``make engines`` puts them, behind those of the PATH.

    Returns that folder, empty if there is none.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(cache) / "enginehouse" / "engines"
    if not folder.is_dir():
        return ""
    os.environ["PATH"] = os.pathsep.join([*filter(None, [os.environ.get("PATH")]), str(folder)])
    return str(folder)


def _with_path(document: Mapping[str, Any], built: str) -> Mapping[str, Any]:
    """``document`` for ``enginehouse serve``, which looks into the folder ``built`` only if a model says so."""
    if not built:
        return document
    path = {"env": {"PATH": f"${{env:PATH}}{os.pathsep}{built}"}}
    return {**document, "models": {name: {**table, **path} for name, table in document["models"].items()}}


def _folders(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from model_places(path)


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
