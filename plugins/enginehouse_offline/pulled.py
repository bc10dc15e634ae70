"""``enginehouse pull``, ``list``, ``show`` and ``rm``: the models that were downloaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from enginehouse.commands import config_option
from enginehouse.model_sources import PulledFile, PulledModels, PulledNote
from enginehouse_kit.output import print_answer, print_json, print_table, printable


@click.command()
@config_option
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def pull(config: Path | None, model: str, as_json: bool) -> None:
    """Download MODEL from a hub, a registry or a URL.

    MODEL is hf.co/ORG/REPO[:QUANT], ollama.com/NAME[:TAG], or the URL of a GGUF file. An interrupted download is
    resumed. HF_TOKEN opens gated models of Hugging Face.
    """
    models = _models(config)
    models.check(model)
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(TextColumn(printable(model)), *columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(model, total=None)
        path = models.pull(model, lambda done, total: bar.update(task, completed=done, total=total))
    facts = msgspec.json.encode(_facts(models, models.get(model)))
    print_answer(facts, as_json, f"{path}\nServe it: enginehouse run {click.format_filename(path)}")


@click.command("list")
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def list_models(config: Path | None, as_json: bool) -> None:
    """List the downloaded models; `models` lists those of a gateway."""
    models = _models(config)
    notes = models.all()
    if as_json:
        print_json(msgspec.json.encode([_facts(models, note) for note in notes]))
        return
    rows = [(note.name, decimal(note.size), str(models.path_of(note))) for note in notes]
    empty = f"No model in {models.folder} yet: enginehouse pull hf.co/ORG/REPO"
    print_table(("model", "size", "path"), rows, empty=empty)


@click.command()
@config_option
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def show(config: Path | None, model: str, as_json: bool) -> None:
    """Show the files and the size of the downloaded MODEL."""
    models = _models(config)
    facts = _facts(models, models.get(model))
    if as_json:
        print_json(msgspec.json.encode(facts))
        return
    click.echo(f"{facts.name}: {decimal(facts.size)} at {facts.path}")
    for file in facts.files:
        click.echo(f"  {file.path}  {decimal(file.size)}  sha256:{file.sha256}")


@click.command()
@config_option
@click.argument("model")
@click.option("-y", "--yes", is_flag=True, help="Delete without asking.")
def rm(config: Path | None, model: str, yes: bool) -> None:
    """Delete the files of the downloaded MODEL."""
    models = _models(config)
    note = models.get(model)
    if not yes:
        click.confirm(f"Delete {note.name} ({decimal(note.size)})?", abort=True)
    models.remove(note)
    click.echo(f"{note.name} is deleted")


def _models(config: Path | None) -> PulledModels:
    from enginehouse_offline.offline_gateway import OfflineGateway  # much that the help does not need

    return OfflineGateway(config, quiet=True).pulled_models()


class _Facts(msgspec.Struct):
    """A downloaded model, as ``--json`` prints it."""

    name: str
    path: str
    size: int
    files: Sequence[PulledFile]


def _facts(models: PulledModels, note: PulledNote) -> _Facts:
    return _Facts(note.name, str(models.path_of(note)), note.size, note.files)
