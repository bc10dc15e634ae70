"""The reports of a replay: figures, tables and plots."""
