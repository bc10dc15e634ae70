"""An address of this machine at which no other process listens."""

from __future__ import annotations

import os
import sys

_NUMBER = os.getpid()
OWN_ADDRESS = (
    f"127.{_NUMBER >> 16 & 255}.{_NUMBER >> 8 & 255}.{_NUMBER & 255}" if sys.platform == "linux" else "127.0.0.1"
)
"""Gateways of other tests probe ports of engines that have ended, and the system may have given those to others.

A scripted engine would play its script for such a probe. Linux answers at all of 127.0.0.0/8, other systems at
127.0.0.1 alone.
"""
