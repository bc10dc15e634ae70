"""The commands ``enginehouse import NAME``. What converts is imported when a command runs."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import click

from enginehouse_importers.kit.command import (
    Convert,
    arguments_command,
    file_command,
    output_options,
    put_out,
    read_text,
)


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
