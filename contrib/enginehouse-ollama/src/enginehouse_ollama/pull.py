"""``enginehouse ollama pull``: has an Ollama server download a model, and shows the progress."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.error import URLError

import click


@click.group()
def ollama() -> None:
    """Operate Ollama servers."""


@ollama.command()
@click.argument("model")
@click.option("--url", default="http://127.0.0.1:11434", show_default=True, help="Address of the server.")
def pull(model: str, url: str) -> None:
    """Have the server download MODEL. The gateway finds it within half a minute."""
    last = ""
    for step in steps(url, model):
        if error := step.get("error"):
            raise click.ClickException(str(error))
        text = line_of(step)
        if text != last:
            click.echo(text)
        last = text


def steps(url: str, model: str) -> Iterator[dict[str, Any]]:
    """The progress that the server reports, an object for each line of its answer."""
    request = urllib.request.Request(
        f"{url}/api/pull", json.dumps({"model": model}).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request) as answer:
            yield from map(json.loads, answer)
    except URLError as error:
        raise click.ClickException(f"{url} does not pull {model}: {error}") from None


def line_of(step: dict[str, Any]) -> str:
    """One report in words: ``pulling 6a0746a1ec1a 40 %``."""
    total = step.get("total")
    return f"{step.get('status', '')} {100 * step.get('completed', 0) // total} %" if total else str(step.get("status"))
