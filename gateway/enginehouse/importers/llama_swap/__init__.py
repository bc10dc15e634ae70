"""llama-swap's ``config.yaml``, turned into ``enginehouse.toml``."""
