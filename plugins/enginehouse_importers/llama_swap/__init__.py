"""llama-swap's ``config.yaml``."""
