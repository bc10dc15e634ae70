"""Tools: which function an answer calls, and the call as a client gets it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Literal
from zlib import crc32

import msgspec

from enginehouse import InvalidRequest
from enginehouse_sim.grammar.grammar import JSON_OBJECT
from enginehouse_sim.server.endpoints.structured import schema_text


class Function(msgspec.Struct):
    """A function that can be called; ``parameters`` is a JSON schema."""

    name: str
    parameters: Any = None

    @property
    def grammar(self) -> str:
        """What the arguments of a call follow."""
        return JSON_OBJECT if self.parameters is None else schema_text(self.parameters)


class Tool(msgspec.Struct):
    """One of a request's ``tools``."""

    function: Function


class FunctionName(msgspec.Struct):
    """The name of a function."""

    name: str


class NamedTool(msgspec.Struct):
    """``tool_choice`` of one function."""

    function: FunctionName


ToolChoice = Literal["none", "auto", "required"] | NamedTool


class ToolCall:
    """The call that an answer is; ``finish`` is why such an answer ends when it is complete."""

    def __init__(self, function: Function, finish: str) -> None:
        self.function = function
        self.finish = finish

    def message(self, arguments: str) -> dict[str, Any]:
        """The whole message."""
        function = {"name": self.function.name, "arguments": arguments}
        return {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "tool_calls": [{"id": _call_id(), "type": "function", "function": function}],
        }

    def greeting(self) -> dict[str, Any]:
        """The first delta of a stream."""
        function = {"name": self.function.name, "arguments": ""}
        call = {"index": 0, "id": _call_id(), "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    def delta(self, arguments: str) -> dict[str, Any]:
        """A further delta."""
        return {"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}


def tool_call(tools: Sequence[Tool], choice: ToolChoice | None, seed: Sequence[int]) -> ToolCall | None:
    """The call that is asked for; ``None`` if the answer may be text, which it is then.

    If any function will do, ``seed`` (the prompt) decides. Raises ``InvalidRequest`` for a choice among no tools, or of
    one that is not among them.
    """
    functions = [tool.function for tool in tools]
    if isinstance(choice, NamedTool):
        for function in functions:
            if function.name == choice.function.name:
                return ToolCall(function, "stop")
        raise InvalidRequest(f"'tool_choice' names {choice.function.name!r}, which is none of the tools")
    if choice != "required":
        return None
    if not functions:
        raise InvalidRequest("'tool_choice' is 'required', and there are no tools to choose from")
    return ToolCall(functions[crc32(repr(seed).encode()) % len(functions)], "tool_calls")


def _call_id() -> str:
    return f"call_{random.getrandbits(96):024x}"
