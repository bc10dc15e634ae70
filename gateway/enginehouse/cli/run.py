"""``enginehouse run``: serves models' files without a configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import tomli_w

from enginehouse.app.watch import FolderWatch
from enginehouse.cli.model_files import check_programs, models_document
from enginehouse.cli.options import take_over_option
from enginehouse.cli.serve import adjusted, serve_loaded
from enginehouse.config.load_config import LoadedConfig, read_document
from enginehouse.config.schema import PluginSettings
from enginehouse.interfaces.driver_support import support_of
from enginehouse.interfaces.drivers import SupportsLaunch
from enginehouse.plugin_manager.discovery import load_plugins


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--host", help="Address to listen on; 127.0.0.1 by default.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 8080 by default, 0 picks one.")
@click.option("--print-config", is_flag=True, help="Print the configuration that this uses, and do not serve.")
@take_over_option
def run(paths: Sequence[Path], host: str | None, port: int | None, print_config: bool, take_over: bool) -> None:
    """Serve models without a configuration file: GGUF files, folders of Hugging Face models, or folders of these.

    A model has the name of its file without the ending, or of its folder. All shards of a model are one model, and its
    mmproj file belongs to it. Models are loaded on demand, one at a time. New models in a folder are served too.
    """
    drivers = _drivers()

    def read() -> LoadedConfig:
        loaded = read_document(models_document(paths, drivers), None, os.environ)
        return loaded._replace(config=adjusted(loaded.config, host, port, watch=True))

    document = models_document(paths, drivers)
    if print_config:
        click.echo(tomli_w.dumps(document), nl=False)
        return
    check_programs(document, drivers)
    serve_loaded(read, watch=FolderWatch([path for path in paths if path.is_dir()]), take_over=take_over)


def _drivers() -> Mapping[str, SupportsLaunch]:
    registry = load_plugins(PluginSettings()).registry
    return {type: support_of(registry.create("driver", type)).launch for type in registry.types("driver")}
