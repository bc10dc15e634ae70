"""``python -m enginehouse``: the command line."""

from __future__ import annotations

from enginehouse.cli import main

if __name__ == "__main__":
    main()
