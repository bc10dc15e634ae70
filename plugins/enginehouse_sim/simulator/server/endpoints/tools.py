"""Tool calls: the choice of a function, and the form of the call."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Literal
from zlib import crc32

import msgspec

from enginehouse import InvalidRequest
from enginehouse_sim.simulator.grammar.grammar import JSON_OBJECT
from enginehouse_sim.simulator.server.endpoints.structured import schema_text


class Function(msgspec.Struct):
    """A function that the model can call; ``parameters`` is a JSON schema."""

    name: str
    parameters: Any = None

    @property
    def grammar(self) -> str:
        """The grammar of the call's arguments."""
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
    """An answer that is a tool call; ``finish`` is its finish reason."""

    def __init__(self, function: Function, finish: str) -> None:
        self.function = function
        self.finish = finish

    def message(self, arguments: str) -> dict[str, Any]:
        """The message of a reply that is not a stream."""
        function = {"name": self.function.name, "arguments": arguments}
        return {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "tool_calls": [{"id": new_call_id(), "type": "function", "function": function}],
        }

    def first_delta(self) -> dict[str, Any]:
        function = {"name": self.function.name, "arguments": ""}
        call = {"index": 0, "id": new_call_id(), "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    def delta(self, arguments: str) -> dict[str, Any]:
        return {"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}


def tool_call(tools: Sequence[Tool], choice: ToolChoice | None, seed: Sequence[int]) -> ToolCall | None:
    """The call to generate, or ``None`` for a text: the engine calls a function only if it must.

    ``seed``: the prompt's tokens, which choose a function if any will do. Raises ``InvalidRequest`` if the choice names
    an unknown function, or requires a function where there is none.
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


def new_call_id(prefix: str = "call") -> str:
    """An id for a tool call, such as ``call_0123``."""
    return f"{prefix}_{random.getrandbits(96):024x}"
