"""``enginehouse chat``: talks with a model."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import click
import msgspec

from enginehouse import GatewayError
from enginehouse.requests import escaped
from enginehouse_kit.gateway_client import GatewayClient, gateway_options
from enginehouse_operations import completion

Messages = list[dict[str, str]]


class _ChatDelta(msgspec.Struct, frozen=True):
    content: str | None = None
    reasoning_content: str | None = None


class _ChatChoice(msgspec.Struct, frozen=True):
    delta: _ChatDelta = _ChatDelta()


class _ChatUsage(msgspec.Struct, frozen=True):
    completion_tokens: int = 0


class _ChatError(msgspec.Struct, frozen=True):
    message: str = "the stream broke"


class _ChatEvent(msgspec.Struct, frozen=True):
    """The part of an event of a chat that is printed."""

    choices: list[_ChatChoice] = []
    usage: _ChatUsage | None = None
    error: _ChatError | None = None


@click.command()
@gateway_options
@click.argument("model", shell_complete=completion.models)
@click.argument("prompt", required=False)
@click.option("--system", help="Instructions for the model.")
@click.option("--stats", is_flag=True, help="Print time to first token and tokens per second.")
def chat(gateway: GatewayClient, model: str, prompt: str | None, system: str | None, stats: bool) -> None:
    """Chat with MODEL.

    PROMPT, or a text on standard input, is asked once. Without it, this is a conversation: each line is a turn, Ctrl-C
    stops an answer, and Ctrl-D ends.
    """
    messages: Messages = [{"role": "system", "content": system}] if system else []
    if prompt is None and not sys.stdin.isatty():
        prompt = sys.stdin.read()
    if prompt is not None:
        messages.append({"role": "user", "content": prompt})
        _answer(gateway, model, messages, stats)
        return
    for line in _lines():
        messages.append({"role": "user", "content": line})
        try:
            messages.append({"role": "assistant", "content": _answer(gateway, model, messages, stats)})
        except GatewayError as error:
            messages.pop()
            click.secho(str(error), err=True, fg="red")


def _lines() -> Iterator[str]:
    """What the user types, line by line."""
    with suppress(ImportError):
        import readline  # noqa: F401  # history and editing for input()
    while True:
        try:
            line = input(">>> ").strip()
        except (EOFError, KeyboardInterrupt):
            click.echo()
            return
        if line:
            yield line


def _answer(gateway: GatewayClient, model: str, messages: Messages, stats: bool) -> str:
    """Print the answer as it comes; its text. Ctrl-C ends it early."""
    began, first, text, tokens = time.monotonic(), None, "", 0
    body: dict[str, Any] = {"model": model, "messages": messages, "stream": True}
    body["stream_options"] = {"include_usage": True}
    with suppress(KeyboardInterrupt):
        for event in gateway.events("v1", "chat", "completions", body=body):
            read = gateway.read(event, _ChatEvent)
            if read.error is not None:
                raise GatewayError(f"{model}: {read.error.message}")
            for choice in read.choices[:1]:
                piece = choice.delta.content or ""
                first = first or (time.monotonic() if piece or choice.delta.reasoning_content else None)
                text += piece
                click.echo(escaped(piece), nl=False)
            tokens = read.usage.completion_tokens if read.usage else tokens
    click.echo()
    if stats and first is not None:
        click.echo(_stats(began, first, tokens), err=True)
    return text


def _stats(began: float, first: float, tokens: int) -> str:
    taken = time.monotonic() - first
    rate = f", {tokens} tokens, {(tokens - 1) / taken:.1f} tokens/s" if tokens > 1 and taken else ""
    return f"first token after {first - began:.2f} s{rate}"
