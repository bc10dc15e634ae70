"""Brings real engines, and a store of traces, into the user's cache: ``make engines ENGINES="llama-server phoenix"``.

Tests that want an engine are skipped where this has not been run, or could not do its work.
"""

from __future__ import annotations

import sys

from tests.support.real_engines import engines_folder
from tools.engines import llama_server, phoenix, vllm

_BRING = {"llama-server": llama_server.bring, "phoenix": phoenix.bring, "vllm": vllm.bring}


def main(names: list[str]) -> None:
    unknown = sorted(set(names) - set(_BRING))
    if unknown:
        sys.exit(f"unknown engines: {', '.join(unknown)}; known are {', '.join(_BRING)}")
    engines_folder().mkdir(parents=True, exist_ok=True)
    for name in names:
        _BRING[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
