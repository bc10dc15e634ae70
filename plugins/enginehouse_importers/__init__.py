"""``enginehouse import NAME``: configurations of other programs, turned into ``enginehouse.toml``."""
