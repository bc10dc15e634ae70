"""What the gateway and its agent say to each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Call(NamedTuple):
    """A call of a method of the agent."""

    number: int
    method: str
    arguments: tuple[Any, ...]


class Answer(NamedTuple):
    """The answer to the call of this number. ``problem``: why there is no value; empty if there is.

    ``lost``: an actor or its node is gone.
    """

    number: int
    value: Any
    lost: bool = False
    problem: str = ""


class Node(NamedTuple):
    """A machine of the cluster. ``free``: its resources that are not taken now; ``total``: all of them."""

    id: str
    address: str
    name: str
    labels: Mapping[str, str]
    total: Mapping[str, float]
    free: Mapping[str, float]
