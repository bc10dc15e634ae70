"""The reports of a replay: figures and tables."""
