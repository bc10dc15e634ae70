"""The messages of a take-over, in the order in which they are sent.

::

    new:      Hello(wants="engines")
    running:  TakeOverOffer, with the listening sockets
    new:      Built                        its configuration and plugins are good, its backends are probed
    running:  EnginesLeft, with the lock   it accepts no connections and touches no engine from now on
    new:      EnginesTaken
    running:  Retired                      only now the new gateway accepts connections

The running gateway goes on as before if the conversation ends earlier. Afterwards it is the one that connects::

    running:  Hello(wants="connections")
    running:  PassedConnection, with its socket; any number
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import version
from typing import Literal, TypeVar

import msgspec

from enginehouse.interfaces.accounting import TakenLimit

FORMAT = 1
"""Changes whenever a message or the meaning of a file in the state folder does. ``Hello`` never changes."""
VERSION = version("enginehouse")

M = TypeVar("M", bound="TakeOverMessage")


class TakeOverMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The base class of all messages."""


class Hello(TakeOverMessage, frozen=True, kw_only=True):
    """Begins a conversation. ``version``: of the program that sends it."""

    format: int
    version: str
    pid: int
    wants: Literal["engines", "connections"]

    @staticmethod
    def of_this_process(wants: Literal["engines", "connections"]) -> Hello:
        return Hello(format=FORMAT, version=VERSION, pid=os.getpid(), wants=wants)


class TakeOverOffer(TakeOverMessage, frozen=True, kw_only=True):
    """The listening sockets of the process ``pid``; none if ``refused`` says why not."""

    version: str
    pid: int
    refused: str = ""


class Built(TakeOverMessage, frozen=True, kw_only=True):
    """The new gateway would start."""


class EnginesLeft(TakeOverMessage, frozen=True, kw_only=True):
    """The lock of the state folder, and so everything in the folder. ``refused``: why it is kept."""

    refused: str = ""


class EnginesTaken(TakeOverMessage, frozen=True, kw_only=True):
    """The new gateway has found the engines, and wants to listen."""


class Retired(TakeOverMessage, frozen=True, kw_only=True):
    """The new gateway is the only one from now on. ``limits``: what is taken of those of keys.

    ``ends_within``: the seconds in which the running one drains.
    """

    limits: Mapping[str, TakenLimit] = {}
    ends_within: float = 600.0


class PassedConnection(TakeOverMessage, frozen=True, kw_only=True):
    """A client's connection, and what was ``received`` on it for the next answer.

    ``stream``: the state of a stream that is the beginning of that answer; empty if nothing of it was sent.
    """

    received: bytes
    stream: bytes = b""
