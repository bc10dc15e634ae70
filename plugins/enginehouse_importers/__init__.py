"""``enginehouse import NAME``: configurations of other programs, turned into ``enginehouse.toml``.

::

    kit/             what all importers use: tables that note what nobody read, files, commands, backends
    llama_swap/      llama-swap's config.yaml
    litellm          LiteLLM's config.yaml
    olla             Olla's config.yaml
    nexus            Nexus's nexus.toml
    ollama           the models of a running Ollama, or a Modelfile
    router_commands  the command lines of vllm-router and sglang-router
    presets          llama-server's presets of models
    commands         the commands
"""

from __future__ import annotations

from functools import partial
from typing import Any

from enginehouse import Register, hookimpl


@hookimpl
def register_commands(register: Register[Any]) -> None:
    """Offer one command for each program."""
    register("import llama-swap", partial(_command, "llama-swap"))
    register("import litellm", partial(_command, "litellm"))
    register("import olla", partial(_command, "olla"))
    register("import nexus", partial(_command, "nexus"))
    register("import ollama", partial(_command, "ollama"))
    register("import vllm-router", partial(_command, "vllm-router"))
    register("import sglang-router", partial(_command, "sglang-router"))
    register("import llama-server", partial(_command, "llama-server"))


def _command(name: str) -> Any:
    """Converts the configuration of another program."""
    from enginehouse_importers.commands import COMMANDS

    return COMMANDS[name]
