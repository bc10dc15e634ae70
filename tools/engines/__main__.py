"""Installs real engines, and a store of traces, for tests: ``make engines ENGINES="llama-server phoenix"``.

They come into the user's cache. Tests that need one are skipped where it is not installed.
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
