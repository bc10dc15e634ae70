"""Interceptors for agents: each is off until ``interceptors`` names it.

::

    answers          answers a request as the same one was answered
    join_duplicates  gives a request that is sent again the answer of the first
    volatile_lines   takes out lines that are new in each request
    small_tasks      serves titles, tags and suggestions by another model
    loops            ends answers that repeat themselves
    tool_calls       makes calls of tools of the text in which they leaked
    kept_answers     the memory of the first two
    asked            reads what requests ask, and patterns of the configuration
"""

from __future__ import annotations

from enginehouse import Register, hookimpl
from enginehouse_interceptors.answers import Answers
from enginehouse_interceptors.join_duplicates import JoinDuplicates
from enginehouse_interceptors.loops import Loops
from enginehouse_interceptors.small_tasks import SmallTasks
from enginehouse_interceptors.tool_calls import ToolCalls
from enginehouse_interceptors.volatile_lines import VolatileLines
from enginehouse_kit.interceptors import Interceptor


@hookimpl
def register_interceptors(register: Register[Interceptor]) -> None:
    """Offer the interceptors."""
    register("answers", Answers)
    register("join_duplicates", JoinDuplicates)
    register("volatile_lines", VolatileLines)
    register("small_tasks", SmallTasks)
    register("loops", Loops)
    register("tool_calls", ToolCalls)
